"""Kafka's own clients and tools, fetched by Maven into the user's cache, and JVMs to run them in."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logbrook import Broker
from tests.interop.java.download_cache import MissingToolError
from tests.interop.java.jars import scenarios_classpath, tools_classpath
from tests.interop.java.kafka_broker import KafkaBroker
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
    """Skip the test with the reason if the classpath cannot be built."""
    try:
        return get()
    except MissingToolError as error:
        pytest.skip(f"no Java tools, so their interoperability is not tested: {error}")


@pytest.fixture(scope="session")
def tools_host(tools_jars: str, broker: Broker) -> Iterator[ToolHost]:
    """A JVM for Kafka's tools. It ends before the broker: some tools leave clients open, which would log errors."""
    with ToolHost(tools_jars, "KafkaToolHost") as host:
        yield host


@pytest.fixture(scope="session")
def kafka(tools_jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A real Apache Kafka, which aborts transactions soon after their timeout."""
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
    with KafkaBroker(tools_jars, Path(tmp_path_factory.mktemp("kafka")), settings) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def scenarios_host(scenarios_jars: str) -> Iterator[ToolHost]:
    with ToolHost(scenarios_jars) as host:
        yield host


@pytest.fixture
def tools(tools_host: ToolHost, broker: Broker) -> KafkaTools:
    return KafkaTools(tools_host, broker)
