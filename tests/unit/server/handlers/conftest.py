"""One broker for all tests of the handlers that need no other; what they create has names of its own."""

from collections.abc import Iterator

import pytest

from tests.unit.server.handler_kit import HandlerShell
from tests.unit.server.handlers.kit import Peer


@pytest.fixture(scope="session")
def broker() -> Iterator[HandlerShell]:
    settings = {
        "topics": {"partitions": 2},
        "log": {"segment_ms": 3_600_000},
        "storage": {"durability": "interval"},
    }
    with HandlerShell(settings) as broker:
        yield broker


@pytest.fixture
def peer(broker: HandlerShell) -> Iterator[Peer]:
    with Peer(broker) as peer:
        yield peer


@pytest.fixture
def other(broker: HandlerShell) -> Iterator[Peer]:
    """A second client."""
    with Peer(broker, client_id="other") as peer:
        yield peer
