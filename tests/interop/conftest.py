"""The clients, and a broker for all of them."""

import gc
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path

import pytest

from logbrook import Broker
from logbrook.testing.processes import wait_until as wait_for
from tests.interop.clients.aiokafka_client import AiokafkaClient
from tests.interop.clients.confluent_client import ConfluentClient
from tests.interop.clients.interface import Client
from tests.interop.clients.kafka_python_client import KafkaPythonClient
from tests.interop.clients.kcat_client import KcatClient
from tests.interop.clients.kcat_install import KcatMissingError, find_or_install_kcat
from tests.interop.leftovers import Before
from tests.interop.waiting import wait_until

NAMES = ("confluent", "kafka-python", "aiokafka", "kcat")
# kcat is librdkafka, as confluent is, behind a command line.
LIBRARIES = NAMES[:3]
_numbers = count(1)

NewTopic = Callable[..., str]
# For records with timestamps of long ago, which retention would delete.
KEPT_FOREVER = {"retention.ms": "-1"}
# Threads of a client that is closed end within this time.
_QUICK_END_S = 0.3


@pytest.fixture(autouse=True)
def nothing_stays(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check that tests of this folder, not of those below it, leave no thread and no process behind."""
    before = Before.now()
    yield
    if request.path.parent == Path(__file__).parent:
        left = before.left_behind()
        if not wait_for(lambda: before.left_behind() == [], _QUICK_END_S):
            # A caught error's frames can hold the last reference of a client. Collecting takes longer than most tests.
            gc.collect()
            wait_until(lambda: before.left_behind() == [], f"the end of {left}")


@pytest.fixture(scope="session")
def kcat_path() -> str:
    """Skips the test with the reason if kcat is neither installed nor installable."""
    try:
        return find_or_install_kcat()
    except KcatMissingError as error:
        pytest.skip(f"no kcat, so its interoperability is not tested: {error}")


@pytest.fixture(scope="session")
def get_client(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Client]]:
    """Return clients by name."""
    clients: dict[str, Client] = {}

    def get(name: str) -> Client:
        if name not in clients:
            clients[name] = _new_client(name, request)
        return clients[name]

    yield get
    for client in clients.values():
        client.close()


def _new_client(name: str, request: pytest.FixtureRequest) -> Client:
    if name == "kcat":
        return KcatClient(request.getfixturevalue("kcat_path"))
    kinds: dict[str, Callable[[], Client]] = {
        "confluent": ConfluentClient,
        "kafka-python": KafkaPythonClient,
        "aiokafka": AiokafkaClient,
    }
    return kinds[name]()


@pytest.fixture(params=NAMES)
def client(request: pytest.FixtureRequest, get_client: Callable[[str], Client]) -> Client:
    """Run the test with each client."""
    return get_client(request.param)


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest, get_client: Callable[[str], Client]) -> Client:
    """Run the test with each client of different code: for rules in which a second librdkafka adds nothing."""
    return get_client(request.param)


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """The broker of all tests that do not stop it."""
    with Broker() as running:
        yield running


@pytest.fixture
def servers(broker: Broker) -> str:
    return broker.bootstrap_servers


@pytest.fixture
def new_topic(broker: Broker, request: pytest.FixtureRequest) -> NewTopic:
    """Return a function that creates a topic named after the test."""
    name = re.sub(r"[^a-zA-Z0-9_-]", "-", request.node.name)[:150]

    def create(partitions: int = 1, settings: Mapping[str, str] | None = None) -> str:
        topic = f"{name}-{next(_numbers)}"
        broker.create_topic(topic, partitions, settings)
        return topic

    return create
