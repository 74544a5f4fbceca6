"""kafkajs, fetched by npm into the user's cache."""

from collections.abc import Iterator

import pytest

from tests.interop.java.download_cache import MissingToolError
from tests.interop.node.node_scenarios import NodeScenarios, install_packages


@pytest.fixture(scope="session")
def node() -> Iterator[NodeScenarios]:
    """Skips the test with the reason if Node or kafkajs is missing."""
    try:
        packages = install_packages()
    except MissingToolError as error:
        pytest.skip(f"no kafkajs, so its interoperability is not tested: {error}")
    scenarios = NodeScenarios(packages)
    yield scenarios
    scenarios.stop()
