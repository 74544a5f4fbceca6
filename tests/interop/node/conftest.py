"""kafkajs, fetched by npm into the user's cache."""

import pytest

from tests.interop.java.download_cache import MissingToolError
from tests.interop.node.node_scenarios import NodeScenarios, install_packages


@pytest.fixture(scope="session")
def node() -> NodeScenarios:
    """Skips, saying why, where it cannot be had."""
    try:
        return NodeScenarios(install_packages())
    except MissingToolError as error:
        pytest.skip(f"NO KAFKAJS, SO NOTHING IS PROVEN FOR IT: {error}")
