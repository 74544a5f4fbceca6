"""Kafka's own clients and tools, fetched by Maven into the user's cache, and JVMs to run them in."""

from collections.abc import Callable, Iterator

import pytest

from logbrook import Broker
from tests.interop.java.download_cache import MissingToolError
from tests.interop.java.jars import scenarios_classpath, tools_classpath
from tests.interop.java.kafka_tools import KafkaTools
from tests.interop.java.tool_host import ToolHost

# The newest clients; the newest tools are named in their POM.
NEWEST = "4.4.0"


@pytest.fixture(scope="session")
def tools_jars() -> str:
    return or_skip(tools_classpath)


@pytest.fixture(scope="session")
def scenarios_jars() -> str:
    return or_skip(lambda: scenarios_classpath(NEWEST))


def or_skip(get: Callable[[], str]) -> str:
    """Skips, saying why, where the classpath cannot be had."""
    try:
        return get()
    except MissingToolError as error:
        pytest.skip(f"NO JAVA TOOLS, SO NOTHING IS PROVEN FOR THEM: {error}")


@pytest.fixture(scope="session")
def tools_host(tools_jars: str, broker: Broker) -> Iterator[ToolHost]:
    """It is gone before the broker is: some tools leave clients open, which would complain of that."""
    with ToolHost(tools_jars, "KafkaToolHost") as host:
        yield host


@pytest.fixture(scope="session")
def scenarios_host(scenarios_jars: str) -> Iterator[ToolHost]:
    with ToolHost(scenarios_jars) as host:
        yield host


@pytest.fixture
def tools(tools_host: ToolHost, broker: Broker) -> KafkaTools:
    return KafkaTools(tools_host, broker)
