"""The scenarios of replication. The comments of each file state the rules it shows."""

from pathlib import Path

import pytest

from tests.scenarios.replication_world import ReplicationWorld
from tests.scenarios.script import check

SCENARIOS = sorted((Path(__file__).parent / "replication").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, rewrite_scenarios: bool) -> None:
    check(path, ReplicationWorld().run, rewrite=rewrite_scenarios)
