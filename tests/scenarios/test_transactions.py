"""The scenarios of transactions. Each file is a story; its comments say which rule it shows."""

from pathlib import Path

import pytest

from tests.scenarios.script import check
from tests.scenarios.transaction_world import TransactionWorld

SCENARIOS = sorted((Path(__file__).parent / "transactions").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_the_story_goes_as_it_is_told(path: Path, rewrite_scenarios: bool) -> None:
    check(path, TransactionWorld().run, rewrite=rewrite_scenarios)
