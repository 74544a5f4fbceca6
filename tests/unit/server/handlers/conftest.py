"""One real broker for all tests of the handlers; what they create has names of its own."""

from collections.abc import Iterator

import pytest

from logbrook.testing.broker import Broker
from tests.unit.server.handlers.kit import Peer


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker(settings={"topics": {"partitions": 2}, "log": {"segment_ms": 3_600_000}}) as broker:
        yield broker


@pytest.fixture
def peer(broker: Broker) -> Iterator[Peer]:
    """A client with a connection of its own."""
    with Peer(broker.bootstrap_servers) as peer:
        yield peer


@pytest.fixture
def other(broker: Broker) -> Iterator[Peer]:
    """A second client."""
    with Peer(broker.bootstrap_servers, client_id="other") as peer:
        yield peer
