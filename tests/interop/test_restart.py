"""Restart of a broker: committed records are kept, and connected clients continue."""

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from logbrook import Broker
from logbrook.testing.processes import free_port
from tests.interop.client_leaks import UNCONNECTED_SOCKETS, collect_leaks, forget_connection_errors
from tests.interop.clients.interface import BEGINNING, Client, Feature, MemberOptions, Outgoing
from tests.interop.conftest import NAMES
from tests.interop.members import poll_until

pytestmark = pytest.mark.filterwarnings(UNCONNECTED_SOCKETS)

# A scenario of one client. It yields where the broker is to be restarted.
Scenario = Callable[[Client, str, str], Generator[None]]


class RestartingBroker:
    """A broker that keeps its data and its address when it is restarted."""

    def __init__(self, directory: Path) -> None:
        self.servers = f"127.0.0.1:{free_port()}"
        self._broker = Broker(data=str(directory), settings={"network": {"listen": self.servers, "stop_ms": 500}})
        self._broker.start()

    def create_topic(self, name: str) -> None:
        self._broker.create_topic(name, 2)

    def restart(self) -> None:
        self.stop()
        self._broker.start()

    def stop(self) -> None:
        self._broker.stop()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestartingBroker]:
    running = RestartingBroker(tmp_path_factory.mktemp("restart"))
    yield running
    running.stop()
    collect_leaks()


def _produce(client: Client, servers: str, topic: str, numbers: range) -> set[bytes]:
    records = [Outgoing(topic, b"%d" % number, partition=number % 2) for number in numbers]
    with client.producer(servers) as producer:
        producer.deliver(*records)
    return {record.value for record in records if record.value is not None}


def _records_and_commits_survive(client: Client, servers: str, topic: str) -> Generator[None]:
    options = MemberOptions(f"group-{topic}", auto_commit=Feature.COMMIT in client.lacks)
    first = _produce(client, servers, topic, range(20))
    with client.member(servers, topic, options) as member:
        assert {record.value for record in poll_until([member], count=20)} == first
        if not options.auto_commit:
            member.commit()
    yield
    second = _produce(client, servers, topic, range(20, 30))
    with client.member(servers, topic, options) as member:
        assert {record.value for record in poll_until([member], count=10)} == second
    assert {record.value for record in client.read_all(servers, topic, partitions=2)} == first | second


def _a_connected_member_continues(client: Client, servers: str, topic: str) -> Generator[None]:
    options = MemberOptions(f"group-{topic}", auto_commit=Feature.COMMIT in client.lacks)
    first = _produce(client, servers, topic, range(20))
    with client.member(servers, topic, options) as member:
        assert {record.value for record in poll_until([member], count=20)} == first
        if not options.auto_commit:
            member.commit()
        yield
        second = _produce(client, servers, topic, range(20, 30))
        received = {record.value for record in poll_until([member], count=10)}
        if options.auto_commit:
            # The last offsets may not have been committed yet.
            received |= {record.value for record in poll_until([member], lambda: received >= second)}
            assert received >= second
        else:
            assert received == second


def _a_connected_reader_continues(client: Client, servers: str, topic: str) -> Generator[None]:
    _produce(client, servers, topic, range(20))
    with client.reader(servers, topic, {0: BEGINNING, 1: BEGINNING}) as reader:
        assert len(reader.read(20)) == 20
        yield
        second = _produce(client, servers, topic, range(20, 30))
        assert {record.value for record in reader.read(10)} == second


def _a_connected_producer_continues(client: Client, servers: str, topic: str) -> Generator[None]:
    records = [Outgoing(topic, b"%d" % number) for number in range(20)]
    with client.producer(servers) as producer:
        producer.deliver(*records[:10])
        yield
        producer.deliver(*records[10:])
    received = client.read_all(servers, topic, partitions=2)
    assert [record.value for record in received] == [b"%d" % number for number in range(20)]


@pytest.mark.parametrize(
    "scenario",
    [
        _records_and_commits_survive,
        _a_connected_member_continues,
        _a_connected_reader_continues,
        _a_connected_producer_continues,
    ],
    ids=lambda scenario: scenario.__name__.strip("_"),
)
def test_clients_continue_after_a_restart_of_the_broker(
    scenario: Scenario,
    get_client: Callable[[str], Client],
    broker: RestartingBroker,
    caplog: pytest.LogCaptureFixture,
    request: pytest.FixtureRequest,
) -> None:
    request.addfinalizer(lambda: forget_connection_errors(caplog))
    # All clients share the restart, because it takes longer than the scenario of one of them.
    with ExitStack() as stack:
        runs = []
        for name in NAMES:
            topic = f"{scenario.__name__}-{name}"
            broker.create_topic(topic)
            runs.append(stack.enter_context(closing(scenario(get_client(name), broker.servers, topic))))
        for run in runs:
            next(run)
        broker.restart()
        for run in runs:
            assert next(run, None) is None
