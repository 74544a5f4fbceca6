"""A broker for the reports."""

from collections.abc import Iterator

import pytest

from logbrook import Broker
from logbrook.client import Client


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers) as client:
        yield client
