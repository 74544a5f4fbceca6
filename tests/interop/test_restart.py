"""A broker stops and starts again: what was committed is there, and clients that stayed connected go on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from logbrook import Broker
from logbrook.testing.kill.free_port import free_port
from tests.interop.client_leaks import UNCONNECTED_SOCKETS, collect_leaks
from tests.interop.clients.interface import BEGINNING, Client, Feature, MemberOptions, Outgoing
from tests.interop.members import poll_until

pytestmark = pytest.mark.filterwarnings(UNCONNECTED_SOCKETS)

TOPIC = "kept"


class RestartingBroker:
    """The same data at the same address, again and again."""

    def __init__(self, directory: Path) -> None:
        self.servers = f"127.0.0.1:{free_port()}"
        self._broker = Broker(
            {TOPIC: 2}, data=str(directory), settings={"network": {"listen": self.servers, "stop_ms": 500}}
        )
        self._broker.start()

    def restart(self) -> None:
        self.stop()
        self._broker.start()

    def stop(self) -> None:
        self._broker.stop()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RestartingBroker]:
    running = RestartingBroker(tmp_path)
    yield running
    running.stop()
    collect_leaks()


def _produce(client: Client, servers: str, numbers: range) -> set[bytes]:
    records = [Outgoing(TOPIC, b"%d" % number, partition=number % 2) for number in numbers]
    with client.producer(servers) as producer:
        producer.deliver(*records)
    return {one.value for one in records if one.value is not None}


def test_records_and_commits_survive_a_restart(client: Client, broker: RestartingBroker) -> None:
    options = MemberOptions("group", auto_commit=Feature.COMMIT in client.lacks)
    first = _produce(client, broker.servers, range(20))
    with client.member(broker.servers, TOPIC, options) as member:
        assert {one.value for one in poll_until([member], count=20)} == first
        if not options.auto_commit:
            member.commit()
    broker.restart()
    second = _produce(client, broker.servers, range(20, 30))
    with client.member(broker.servers, TOPIC, options) as member:
        assert {one.value for one in poll_until([member], count=10)} == second
    assert {one.value for one in client.read_all(broker.servers, TOPIC, partitions=2)} == first | second


def test_a_member_that_stays_goes_on_after_a_restart(client: Client, broker: RestartingBroker) -> None:
    options = MemberOptions("group", auto_commit=Feature.COMMIT in client.lacks)
    first = _produce(client, broker.servers, range(20))
    with client.member(broker.servers, TOPIC, options) as member:
        assert {one.value for one in poll_until([member], count=20)} == first
        if not options.auto_commit:
            member.commit()
        broker.restart()
        second = _produce(client, broker.servers, range(20, 30))
        received = {one.value for one in poll_until([member], count=10)}
        if options.auto_commit:
            # The last of what it had may not have been committed yet.
            received |= {one.value for one in poll_until([member], lambda: received >= second)}
            assert received >= second
        else:
            assert received == second


def test_a_reader_that_stays_goes_on_after_a_restart(client: Client, broker: RestartingBroker) -> None:
    _produce(client, broker.servers, range(20))
    with client.reader(broker.servers, TOPIC, {0: BEGINNING, 1: BEGINNING}) as reader:
        assert len(reader.read(20)) == 20
        broker.restart()
        second = _produce(client, broker.servers, range(20, 30))
        assert {one.value for one in reader.read(10)} == second


def test_a_producer_that_stays_goes_on_after_a_restart(client: Client, broker: RestartingBroker) -> None:
    records = [Outgoing(TOPIC, b"%d" % number) for number in range(20)]
    with client.producer(broker.servers) as producer:
        producer.deliver(*records[:10])
        broker.restart()
        producer.deliver(*records[10:])
    received = client.read_all(broker.servers, TOPIC, partitions=2)
    assert [one.value for one in received] == [b"%d" % number for number in range(20)]
