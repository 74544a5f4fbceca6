"""The pytest plugin: a broker for the session, and a topic of its own for each test.

def test_orders(logbrook):
    producer = Producer({"bootstrap.servers": logbrook.bootstrap_servers})
    producer.produce(logbrook.topic, b"hello")
    producer.flush()
    assert [record.value for record in logbrook.records()] == [b"hello"]

The report of a failed test shows the end of the log of each broker in the process, and the last records of its topics.
"""

import re
import sys
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from logbrook.testing.broker import Broker
    from logbrook.testing.broker_client import Field, TopicRecord
    from logbrook.testing.cluster import Cluster

_NAME_LENGTH_MAX = 200
_numbers = count(1)


@dataclass(frozen=True)
class LogbrookFixture:
    """The value of the `logbrook` fixture. `topic` was created for the test, with one partition."""

    broker: "Broker"
    topic: str

    @property
    def bootstrap_servers(self) -> str:
        return self.broker.bootstrap_servers

    def create_topic(self, name: str, partitions: int = 1, settings: dict[str, str] | None = None) -> None:
        self.broker.create_topic(name, partitions, settings)

    def produce(self, *values: "Field", key: "Field" = None, headers: "Mapping[str, Field] | None" = None) -> None:
        """Write a record to `topic` for each value; see `Broker.produce`."""
        self.broker.produce(self.topic, *values, key=key, headers=headers)

    def records(self) -> "list[TopicRecord]":
        """Return all records of `topic`; see `Broker.records`."""
        return self.broker.records(self.topic)


@pytest.fixture(scope="session")
def logbrook_broker() -> Iterator["Broker"]:
    """One broker for all tests of the session."""
    from logbrook.testing.broker import Broker  # noqa: PLC0415 - imported only when the fixture is used

    with Broker() as broker:
        yield broker


@pytest.fixture
def logbrook(logbrook_broker: "Broker", request: pytest.FixtureRequest) -> Iterator[LogbrookFixture]:
    """A broker, and a fresh topic named after the test."""
    name = re.sub(r"[^a-zA-Z0-9_-]", "-", request.node.name)[:_NAME_LENGTH_MAX]
    topic = f"{name}-{next(_numbers)}"
    logbrook_broker.create_topic(topic)
    yield LogbrookFixture(logbrook_broker, topic)
    # The test may have paused or killed it.
    logbrook_broker.heal()


@pytest.fixture
def logbrook_cluster() -> Iterator["Cluster"]:
    """Three replicated brokers for one test."""
    from logbrook.testing.cluster import Cluster  # noqa: PLC0415 - imported only when the fixture is used

    with Cluster(nodes=3) as cluster:
        yield cluster


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the log and the topics of brokers to the report of a failed test."""
    report = yield
    # Without the module there is no broker, and nothing to import.
    reporting = sys.modules.get("logbrook.testing.broker_report")
    if reporting is not None:
        fixture = getattr(item, "funcargs", {}).get("logbrook")
        first_topic = fixture.topic if isinstance(fixture, LogbrookFixture) else None
        if report.failed:
            for broker in reporting.take_reports(first_topic):
                report.sections.append((f"Logbrook at {broker.address}: log", broker.log))
                report.sections.append((f"Logbrook at {broker.address}: topics", broker.topics))
        reporting.of_stopped.clear()
    return report
