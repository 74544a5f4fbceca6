"""A broker stops, or is killed, in the middle of transactions: each is there in all of its partitions or in none."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from logbrook import Broker
from logbrook.client import Client as RawClient
from logbrook.testing.kill.broker_process import BrokerProcess
from logbrook.testing.kill.free_port import free_port
from logbrook.testing.kill.guardian import Guardian
from tests.interop.client_leaks import UNCONNECTED_SOCKETS, collect_leaks
from tests.interop.clients.interface import Client, MemberOptions, Outgoing, Producer
from tests.interop.members import poll_until
from tests.interop.transactions import TRANSACTIONAL, UNCOMMITTED, read_to_end, transactional, values, write_plain
from tests.interop.waiting import WITHIN_S

pytestmark = pytest.mark.filterwarnings(UNCONNECTED_SOCKETS)

TOPIC = "torn"
SOURCE = "source"
PARTITIONS = 3
GROUP = "copiers"


@pytest.fixture(params=TRANSACTIONAL)
def client(request: pytest.FixtureRequest, get_client: Callable[[str], Client]) -> Client:
    """Each of those that have transactions."""
    return get_client(request.param)


class MortalBroker(ABC):
    """One that ends and comes back with its data, at the same address."""

    servers: str

    @abstractmethod
    def restart(self) -> None: ...


class StoppedBroker(MortalBroker):
    """It has the time to put things in order."""

    def __init__(self, broker: Broker, servers: str) -> None:
        self._broker = broker
        self.servers = servers

    def restart(self) -> None:
        self._broker.stop()
        self._broker.start()


class KilledBroker(MortalBroker):
    """A process of its own that gets SIGKILL."""

    def __init__(self, process: BrokerProcess) -> None:
        self._process = process
        self.servers = process.address
        self._start()

    def restart(self) -> None:
        self._process.kill()
        self._start()

    def _start(self) -> None:
        self._process.start()
        self._process.wait_until_it_answers(WITHIN_S)


@contextmanager
def _stopped(directory: Path) -> Iterator[MortalBroker]:
    servers = f"127.0.0.1:{free_port()}"
    settings = {"network": {"listen": servers, "stop_ms": 300}}
    with Broker(data=str(directory), settings=settings) as broker:
        yield StoppedBroker(broker, servers)


@contextmanager
def _killed(directory: Path) -> Iterator[MortalBroker]:
    with Guardian() as guardian:
        flags = ("--durability=fsync", "--metrics=")
        process = BrokerProcess(str(directory / "data"), free_port(), str(directory / "log"), flags, guardian)
        try:
            yield KilledBroker(process)
        finally:
            process.end()


@pytest.fixture(params=[_stopped, _killed], ids=["stopped", "killed"])
def broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[MortalBroker]:
    with request.param(tmp_path) as running:
        with RawClient(running.servers) as raw:
            raw.create_topic(TOPIC, PARTITIONS)
            raw.create_topic(SOURCE)
        yield running
    collect_leaks()


def test_no_transaction_is_torn_by_the_end_of_the_broker(client: Client, broker: MortalBroker) -> None:
    write_plain(broker.servers, SOURCE, b"one", b"two")
    with transactional(client, broker.servers, "before") as producer:
        _write(producer, b"committed")
        producer.commit()
        _write(producer, b"aborted")
        producer.abort()
    with (
        transactional(client, broker.servers, "abandoned") as abandoned,
        transactional(client, broker.servers, "during") as producer,
    ):
        _write(abandoned, b"abandoned")
        _write(producer, b"half before")
        with client.member(broker.servers, SOURCE, MemberOptions(GROUP)) as member:
            poll_until([member], count=2)
            producer.send_offsets(member)
        broker.restart()
        # It is open as it was, and its producer goes on with it.
        ends = client.ends(broker.servers, TOPIC, range(PARTITIONS), read_committed=True)
        assert [following for _, following in ends.values()] == [4] * PARTITIONS
        assert _committed_offset(client, broker) == -1
        producer.deliver(*_records(b"half after"))
        producer.commit()
        _write(producer, b"the next")
        producer.commit()
        # Whoever has the id next aborts what was left.
        with transactional(client, broker.servers, "abandoned") as successor:
            _write(successor, b"of its successor")
            successor.commit()
    expected = [b"committed", b"half before", b"half after", b"the next", b"of its successor"]
    _assert_committed(client, broker, expected)
    broker.restart()
    _assert_committed(client, broker, expected)
    everything = values(read_to_end(client, broker.servers, TOPIC, UNCOMMITTED, PARTITIONS), 0)
    assert set(everything) == {*expected, b"aborted", b"abandoned"}


def _records(value: bytes) -> list[Outgoing]:
    return [Outgoing(TOPIC, value, partition=number) for number in range(PARTITIONS)]


def _write(producer: Producer, value: bytes) -> None:
    producer.begin()
    producer.deliver(*_records(value))


def _assert_committed(client: Client, broker: MortalBroker, expected: list[bytes]) -> None:
    found = read_to_end(client, broker.servers, TOPIC, partitions=PARTITIONS)
    assert [values(found, number) for number in range(PARTITIONS)] == [expected] * PARTITIONS
    assert _committed_offset(client, broker) == 2


def _committed_offset(client: Client, broker: MortalBroker) -> int:
    with client.admin(broker.servers) as admin:
        return admin.group_offsets(GROUP, SOURCE).get(0, -1)
