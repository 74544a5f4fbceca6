"""The pytest plugin: a broker for the session, and a topic name of its own for each test.

def test_orders(logbrook):
    producer = Producer({"bootstrap.servers": logbrook.bootstrap_servers})
    producer.produce(logbrook.topic, b"hello")
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from logbrook.testing.broker import Broker

_NAME_LENGTH_MAX = 200
_numbers = count(1)


@dataclass(frozen=True)
class LogbrookFixture:
    """What a test gets. `topic` was created for it, with one partition."""

    broker: "Broker"
    topic: str

    @property
    def bootstrap_servers(self) -> str:
        return self.broker.bootstrap_servers

    def create_topic(self, name: str, partitions: int = 1, settings: dict[str, str] | None = None) -> None:
        self.broker.create_topic(name, partitions, settings)


@pytest.fixture(scope="session")
def logbrook_broker() -> Iterator["Broker"]:
    """One broker for all tests of the session."""
    from logbrook.testing.broker import Broker  # noqa: PLC0415 - only those who ask for a broker pay for it

    with Broker() as broker:
        yield broker


@pytest.fixture
def logbrook(logbrook_broker: "Broker", request: pytest.FixtureRequest) -> LogbrookFixture:
    """A broker, and a fresh topic named after the test."""
    name = re.sub(r"[^a-zA-Z0-9_-]", "-", request.node.name)[:_NAME_LENGTH_MAX]
    topic = f"{name}-{next(_numbers)}"
    logbrook_broker.create_topic(topic)
    return LogbrookFixture(logbrook_broker, topic)
