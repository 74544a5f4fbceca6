"""The broker inside a test: it is there in a moment, it is real, and nothing is left of it."""

import os
import socket
import tempfile
import threading
from pathlib import Path

import pytest

from logbrook.client import BrokerError, Client
from logbrook.config import Durability
from logbrook.model import InvalidTopicNameError
from logbrook.protocol.error_codes import ErrorCode
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.storage.errors import DirectoryLockedError
from logbrook.testing.broker import Broker


def batch() -> bytearray:
    return build_batch([Record(value=b"v")])


def threads() -> set[str]:
    return {one.name for one in threading.enumerate()}


def test_records_go_in_and_come_out() -> None:
    with Broker(["orders"]) as broker, Client(broker.bootstrap_servers) as client:
        assert [client.produce("orders", 0, batch()) for _ in range(3)] == [0, 1, 2]
        assert len(client.fetch("orders", 0, 0).batches) == 3


def test_topics_are_there_from_the_start_with_their_partitions() -> None:
    with Broker({"one": 1, "three": 3}) as broker, Client(broker.bootstrap_servers) as client:
        assert (client.partitions("one"), client.partitions("three")) == ([0], [0, 1, 2])
        broker.create_topic("made", 2, {"retention.ms": "60000"})
        assert client.partitions("made") == [0, 1]
        with pytest.raises(BrokerError) as raised:
            client.partitions("nobody")
        assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_it_is_gone_without_a_trace() -> None:
    before = threads()
    broker = Broker(["t"])
    broker.start()
    data, address = broker.data, broker.bootstrap_servers
    assert data.startswith(tempfile.gettempdir())
    assert os.path.isdir(data)
    broker.stop()
    assert not os.path.exists(data)
    assert threads() == before
    with pytest.raises(RuntimeError):
        _ = broker.bootstrap_servers
    host, port = address.split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))


def test_it_may_be_stopped_twice_and_started_again() -> None:
    broker = Broker(["t"])
    broker.stop()
    for _ in range(2):
        with broker:
            with pytest.raises(RuntimeError, match="running already"):
                broker.start()
            with Client(broker.bootstrap_servers) as client:
                # It is a new one each time.
                assert client.produce("t", 0, batch()) == 0
        broker.stop()


def test_it_is_removed_though_the_test_fails() -> None:
    data = []

    def fail() -> None:
        with Broker() as broker:
            data.append(broker.data)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not os.path.exists(data[0])


def test_given_a_directory_it_keeps_its_data_there(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    for expected in range(3):
        with Broker(["t"], data=data) as broker, Client(broker.bootstrap_servers) as client:
            assert broker.data == data
            assert client.produce("t", 0, batch()) == expected
    assert os.path.isdir(data)


def test_in_a_directory_it_is_as_durable_as_it_is_in_production(tmp_path: Path) -> None:
    with Broker(data=str(tmp_path)) as broker:
        assert broker._running.config.storage.durability is Durability.FSYNC
    with Broker() as broker:
        assert broker._running.config.storage.durability is Durability.INTERVAL


def test_settings_are_those_of_the_settings_file() -> None:
    settings = {"topics": {"auto_create": True, "partitions": 4}, "node_id": 7, "groups": {"members_max": 3}}
    with Broker(settings=settings) as broker:
        config = broker._running.config
        assert (config.topics.partitions, config.node_id, config.groups.members_max) == (4, 7, 3)
        # Beside them stays what suits a test.
        assert (config.groups.initial_rebalance_delay_ms, config.metrics.listen) == (0, "")


def test_maintenance_is_done_when_a_test_asks_for_it() -> None:
    with Broker(settings={"maintenance": {"mode": "on-demand"}}) as broker, Client(broker.bootstrap_servers) as client:
        broker.create_topic("t", 1, {"retention.ms": "1", "file.delete.delay.ms": "0"})
        client.produce("t", 0, build_batch([Record(value=b"v", timestamp=1_000)]))
        assert broker.run_maintenance() is not None


def test_what_keeps_it_from_starting_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    before = threads()
    with Broker(data=str(tmp_path)), pytest.raises(DirectoryLockedError):
        Broker(data=str(tmp_path)).start()
    with pytest.raises(OSError, match=r"[Aa]ddress already in use"), Broker() as taken:
        Broker(settings={"network": {"listen": taken.bootstrap_servers}}).start()
    assert threads() == before


def test_a_topic_that_cannot_be_made_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    before = threads()
    broker = Broker(["good", "no name"], data=str(tmp_path))
    with pytest.raises(InvalidTopicNameError):
        broker.start()
    assert threads() == before
    with Broker(data=str(tmp_path)) as again, Client(again.bootstrap_servers) as client:
        assert client.partitions("good") == [0]


def test_many_may_run_at_once() -> None:
    brokers = [Broker(["t"]) for _ in range(4)]
    for broker in brokers:
        broker.start()
    assert len({broker.bootstrap_servers for broker in brokers}) == 4
    for number, broker in enumerate(brokers):
        with Client(broker.bootstrap_servers) as client:
            assert [client.produce("t", 0, batch()) for _ in range(number)] == list(range(number))
    for broker in brokers:
        broker.stop()
