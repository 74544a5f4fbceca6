"""Idempotent producers: whatever happens to the connection or the broker, each record is there once and in order."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from logbrook import Broker
from logbrook.client import Client as RawClient
from logbrook.records.batch import NO_PRODUCER_ID, read_header
from logbrook.testing.kill.free_port import free_port
from tests.interop.client_leaks import UNCONNECTED_SOCKETS, collect_leaks
from tests.interop.clients.interface import Client, Outgoing, ProducerOptions
from tests.interop.proxy import CuttingProxy, Moment
from tests.interop.waiting import WITHIN_S

pytestmark = pytest.mark.filterwarnings(UNCONNECTED_SOCKETS)

TOPIC = "exactly-once"
COUNT = 60
# A few records to a batch, so that there are many batches.
_OPTIONS = ProducerOptions(idempotent=True, batch_bytes=1_000)
_RECORDS = [Outgoing(TOPIC, b"%03d" % number + bytes(150)) for number in range(COUNT)]


class Scene:
    """A broker behind a proxy."""

    def __init__(self, directory: Path) -> None:
        self.proxy = CuttingProxy()
        self.proxy.upstream = f"127.0.0.1:{free_port()}"
        network = {"listen": self.proxy.upstream, "advertise": self.proxy.address, "stop_ms": 500}
        self.broker = Broker([TOPIC], data=str(directory), settings={"network": network})
        self.broker.start()

    def close(self) -> None:
        self.proxy.close()
        self.broker.stop()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.close()
    collect_leaks()


def _numbers(client: Client, scene: Scene) -> list[int]:
    return [int((one.value or b"")[:3]) for one in client.read_all(scene.proxy.address, TOPIC)]


@pytest.mark.parametrize("moment", Moment, ids=lambda moment: moment.value)
def test_each_record_is_there_once_after_a_cut(client: Client, scene: Scene, moment: Moment) -> None:
    scene.proxy.cut(moment, 2, 5)
    with client.producer(scene.proxy.address, _OPTIONS) as producer:
        producer.deliver(*_RECORDS)
    assert scene.proxy.has_cut.is_set()
    assert _numbers(client, scene) == list(range(COUNT))
    _assert_idempotent(scene)


def test_each_record_is_there_once_after_a_restart(client: Client, scene: Scene) -> None:
    scene.proxy.cut(Moment.BEFORE_THE_ANSWER, 3)
    with client.producer(scene.proxy.address, _OPTIONS) as producer:
        producer.send(_RECORDS)
        assert scene.proxy.has_cut.wait(WITHIN_S), "the answer that the producer waits for is lost"
        scene.broker.stop()
        scene.broker.start()
        producer.flush()
    assert _numbers(client, scene) == list(range(COUNT))
    _assert_idempotent(scene)


def test_the_same_cut_makes_duplicates_without_idempotence(client: Client, scene: Scene) -> None:
    """So that the tests above cannot pass for nothing."""
    scene.proxy.cut(Moment.BEFORE_THE_ANSWER, 2)
    with client.producer(scene.proxy.address, ProducerOptions(batch_bytes=1_000)) as producer:
        producer.deliver(*_RECORDS)
    numbers = _numbers(client, scene)
    assert len(numbers) > COUNT
    assert set(numbers) == set(range(COUNT))


def _assert_idempotent(scene: Scene) -> None:
    with RawClient(scene.proxy.address) as raw:
        headers = [read_header(batch) for batch in raw.fetch(TOPIC, 0, 0).batches]
    assert len(headers) >= 5, "there was hardly anything to cut"
    assert len({header.producer_id for header in headers}) == 1
    assert headers[0].producer_id != NO_PRODUCER_ID
