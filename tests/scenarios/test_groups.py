"""The scenarios of consumer groups. Each file is a story; its comments say which rule it shows."""

from pathlib import Path

import pytest

from tests.scenarios.group_world import GroupWorld
from tests.scenarios.script import check

SCENARIOS = sorted((Path(__file__).parent / "groups").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_the_story_goes_as_it_is_told(path: Path, rewrite_scenarios: bool) -> None:
    check(path, GroupWorld().run, rewrite=rewrite_scenarios)
