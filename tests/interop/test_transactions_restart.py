"""A broker stops or is killed during transactions: each is visible in all of its partitions or in none."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from logbrook import Broker
from logbrook.client import Client as RawClient
from logbrook.testing.kill.broker_process import BrokerProcess
from logbrook.testing.processes import free_port
from logbrook.testing.reaper import Reaper
from tests.interop.client_leaks import UNCONNECTED_SOCKETS, collect_leaks, forget_connection_errors
from tests.interop.clients.interface import Client, MemberOptions, Outgoing, Producer
from tests.interop.members import poll_until
from tests.interop.transactions import TRANSACTIONAL, UNCOMMITTED, read_to_end, transactional, values, write_plain
from tests.interop.waiting import WITHIN_S

pytestmark = pytest.mark.filterwarnings(UNCONNECTED_SOCKETS)

PARTITIONS = 3


class MortalBroker(ABC):
    """A broker that can be restarted with its data and at its address."""

    servers: str

    @abstractmethod
    def restart(self) -> None: ...


class StoppedBroker(MortalBroker):
    """A broker in this process that is shut down cleanly."""

    def __init__(self, broker: Broker, servers: str) -> None:
        self._broker = broker
        self.servers = servers

    def restart(self) -> None:
        self._broker.stop()
        self._broker.start()


class KilledBroker(MortalBroker):
    """A broker in its own process that is ended with SIGKILL."""

    def __init__(self, process: BrokerProcess) -> None:
        self._process = process
        self.servers = process.address
        self._start()

    def restart(self) -> None:
        self._process.kill()
        self._start()

    def _start(self) -> None:
        self._process.start()
        self._process.wait_until_ready(WITHIN_S)


@contextmanager
def _stopped(directory: Path) -> Iterator[MortalBroker]:
    servers = f"127.0.0.1:{free_port()}"
    settings = {"network": {"listen": servers, "stop_ms": 300}}
    with Broker(data=str(directory), settings=settings) as broker:
        yield StoppedBroker(broker, servers)


@contextmanager
def _killed(directory: Path) -> Iterator[MortalBroker]:
    with Reaper() as reaper:
        flags = ("--durability=fsync", "--metrics=")
        process = BrokerProcess(str(directory / "data"), free_port(), str(directory / "log"), flags, reaper)
        try:
            yield KilledBroker(process)
        finally:
            process.end()


@pytest.fixture(
    params=[pytest.param(_stopped, id="stopped", marks=pytest.mark.long), pytest.param(_killed, id="killed")]
)
def broker(tmp_path: Path, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[MortalBroker]:
    with request.param(tmp_path) as running:
        yield running
    forget_connection_errors(caplog)
    collect_leaks()


def test_transactions_are_atomic_when_the_broker_ends(
    get_client: Callable[[str], Client], broker: MortalBroker
) -> None:
    # All clients share each restart, because it takes longer than the scenario of one of them.
    with ExitStack() as stack:
        runs = [stack.enter_context(closing(_Scenario(get_client(name), broker).run())) for name in TRANSACTIONAL]
        for _ in range(2):
            for run in runs:
                next(run)
            broker.restart()
        for run in runs:
            assert next(run, None) is None


class _Scenario:
    """Transactions of one client, in topics and with transactional ids of its own."""

    def __init__(self, client: Client, broker: MortalBroker) -> None:
        self._client = client
        self._servers = broker.servers
        self._topic = f"torn-{client.name}"
        self._source = f"source-{client.name}"
        self._group = f"copiers-{client.name}"

    def run(self) -> Generator[None]:
        """Yields twice: each time the broker is to be restarted."""
        with RawClient(self._servers) as raw:
            raw.create_topic(self._topic, PARTITIONS)
            raw.create_topic(self._source)
        write_plain(self._servers, self._source, b"one", b"two")
        with self._producer("before") as producer:
            self._write(producer, b"committed")
            producer.commit()
            self._write(producer, b"aborted")
            producer.abort()
        with self._producer("abandoned") as abandoned, self._producer("during") as producer:
            self._write(abandoned, b"abandoned")
            self._write(producer, b"half before")
            with self._client.member(self._servers, self._source, MemberOptions(self._group)) as member:
                poll_until([member], count=2)
                producer.send_offsets(member)
            yield
            # The transaction is still open, and its producer continues it.
            ends = self._client.ends(self._servers, self._topic, range(PARTITIONS), read_committed=True)
            assert [following for _, following in ends.values()] == [4] * PARTITIONS
            assert self._committed_offset() == -1
            producer.deliver(*self._records(b"half after"))
            producer.commit()
            self._write(producer, b"the next")
            producer.commit()
            # The next producer with the id aborts the open transaction.
            with self._producer("abandoned") as successor:
                self._write(successor, b"of its successor")
                successor.commit()
        expected = [b"committed", b"half before", b"half after", b"the next", b"of its successor"]
        self._assert_committed(expected)
        yield
        self._assert_committed(expected)
        everything = values(read_to_end(self._client, self._servers, self._topic, UNCOMMITTED, PARTITIONS), 0)
        assert set(everything) == {*expected, b"aborted", b"abandoned"}

    def _producer(self, name: str) -> Producer:
        return transactional(self._client, self._servers, f"{name}-{self._client.name}")

    def _records(self, value: bytes) -> list[Outgoing]:
        return [Outgoing(self._topic, value, partition=number) for number in range(PARTITIONS)]

    def _write(self, producer: Producer, value: bytes) -> None:
        producer.begin()
        producer.deliver(*self._records(value))

    def _assert_committed(self, expected: list[bytes]) -> None:
        records = read_to_end(self._client, self._servers, self._topic, partitions=PARTITIONS)
        assert [values(records, number) for number in range(PARTITIONS)] == [expected] * PARTITIONS
        assert self._committed_offset() == 2

    def _committed_offset(self) -> int:
        with self._client.admin(self._servers) as admin:
            return admin.group_offsets(self._group, self._source).get(0, -1)
