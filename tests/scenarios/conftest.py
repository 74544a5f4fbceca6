"""The flag that replaces the expected output of scenarios by the actual one."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-scenarios", action="store_true", help="write the present output into the scenarios")


@pytest.fixture
def rewrite_scenarios(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite-scenarios", default=False))
