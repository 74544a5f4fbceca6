"""The scenarios of consumer groups. The comments of each file state the rules it shows."""

from pathlib import Path

import pytest

from tests.scenarios.group_world import GroupWorld
from tests.scenarios.script import check

SCENARIOS = sorted((Path(__file__).parent / "groups").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, rewrite_scenarios: bool) -> None:
    check(path, GroupWorld().run, rewrite=rewrite_scenarios)
