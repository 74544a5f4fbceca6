"""The scenarios of transactions. The comments of each file state the rules it shows."""

from pathlib import Path

import pytest

from tests.scenarios.script import check
from tests.scenarios.transaction_world import TransactionWorld

SCENARIOS = sorted((Path(__file__).parent / "transactions").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, rewrite_scenarios: bool) -> None:
    check(path, TransactionWorld().run, rewrite=rewrite_scenarios)
