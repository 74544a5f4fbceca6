"""Idempotent producers: whatever happens to the connection or the broker, each record is stored once and in order."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logbrook import Broker
from logbrook.client import Client as RawClient
from logbrook.model.identifiers import Offset
from logbrook.records.batch import NO_PRODUCER_ID, read_header
from logbrook.testing.processes import free_port
from tests.interop.client_leaks import UNCONNECTED_SOCKETS, collect_leaks, forget_connection_errors
from tests.interop.clients.interface import Client, Outgoing, ProducerOptions
from tests.interop.conftest import NAMES
from tests.interop.proxy import CuttingProxy, Moment
from tests.interop.waiting import WITHIN_S

pytestmark = pytest.mark.filterwarnings(UNCONNECTED_SOCKETS)

COUNT = 60
# A few records to a batch, so that there are many batches.
_OPTIONS = ProducerOptions(idempotent=True, batch_bytes=1_000)
# kcat is librdkafka, as confluent is: it is tested with the cut that causes duplicates.
_CUTS = [(name, moment) for moment in Moment for name in NAMES if name != "kcat" or moment is Moment.BEFORE_THE_ANSWER]


class Scene:
    """A broker behind a proxy."""

    def __init__(self, directory: Path) -> None:
        self.proxy = CuttingProxy()
        self.proxy.upstream = f"127.0.0.1:{free_port()}"
        network = {"listen": self.proxy.upstream, "advertise": self.proxy.address, "stop_ms": 500}
        self.broker = Broker(data=str(directory), settings={"network": network})
        self.broker.start()

    def close(self) -> None:
        self.proxy.close()
        self.broker.stop()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    scene = Scene(tmp_path_factory.mktemp("idempotence"))
    yield scene
    scene.close()
    collect_leaks()


@pytest.fixture
def topic(scene: Scene, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[str]:
    name = re.sub(r"[^a-z-]", "-", request.node.name)
    scene.broker.create_topic(name)
    yield name
    forget_connection_errors(caplog)


def _records(topic: str) -> list[Outgoing]:
    return [Outgoing(topic, b"%03d" % number + bytes(150)) for number in range(COUNT)]


def _numbers(client: Client, scene: Scene, topic: str) -> list[int]:
    return [int((record.value or b"")[:3]) for record in client.read_all(scene.proxy.address, topic)]


@pytest.mark.parametrize(("name", "moment"), _CUTS, ids=[f"{moment.value}-{name}" for name, moment in _CUTS])
def test_each_record_is_there_once_after_a_cut(
    get_client: Callable[[str], Client], scene: Scene, topic: str, name: str, moment: Moment
) -> None:
    client = get_client(name)
    scene.proxy.cut(moment, 2, 5)
    with client.producer(scene.proxy.address, _OPTIONS) as producer:
        producer.deliver(*_records(topic))
    assert scene.proxy.has_cut.is_set()
    assert _numbers(client, scene, topic) == list(range(COUNT))
    _assert_idempotent(scene, topic)


def test_each_record_is_there_once_after_a_restart(client: Client, scene: Scene, topic: str) -> None:
    scene.proxy.cut(Moment.BEFORE_THE_ANSWER, 3)
    with client.producer(scene.proxy.address, _OPTIONS) as producer:
        producer.send(_records(topic))
        assert scene.proxy.has_cut.wait(WITHIN_S), "the answer that the producer waits for is lost"
        scene.broker.stop()
        scene.broker.start()
        producer.flush()
    assert _numbers(client, scene, topic) == list(range(COUNT))
    _assert_idempotent(scene, topic)


def test_the_same_cut_makes_duplicates_without_idempotence(client: Client, scene: Scene, topic: str) -> None:
    """The control of the tests above: without idempotence, their cut is visible in the log."""
    scene.proxy.cut(Moment.BEFORE_THE_ANSWER, 2)
    with client.producer(scene.proxy.address, ProducerOptions(batch_bytes=1_000)) as producer:
        producer.deliver(*_records(topic))
    numbers = _numbers(client, scene, topic)
    assert len(numbers) > COUNT
    assert set(numbers) == set(range(COUNT))


def _assert_idempotent(scene: Scene, topic: str) -> None:
    with RawClient(scene.proxy.address) as raw:
        headers = [read_header(batch) for batch in raw.fetch(topic, 0, Offset(0)).batches]
    assert len(headers) >= 5, "there was hardly anything to cut"
    assert len({header.producer_id for header in headers}) == 1
    assert headers[0].producer_id != NO_PRODUCER_ID
