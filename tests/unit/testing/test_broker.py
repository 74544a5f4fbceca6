"""The broker inside a test: it starts quickly, is a real broker, and leaves nothing behind."""

import asyncio
import os
import re
import socket
import struct
import tempfile
import threading
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any
from unittest.mock import patch

import pytest

from logbrook.client import BrokerError, Client, ConnectFailedError, NetworkError
from logbrook.client.group_member import GroupMember
from logbrook.config import Durability
from logbrook.config.errors import SettingsRefusedError
from logbrook.model import InvalidTopicNameError, TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.ports import OsFiles
from logbrook.protocol.error_codes import ErrorCode
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.storage.errors import DirectoryLockedError
from logbrook.storage.partition_files import read_checkpoint
from logbrook.testing import broker_report
from logbrook.testing.broker import Broker
from logbrook.testing.broker_client import TopicRecord, read_records
from logbrook.testing.processes import wait_until

WAIT_S = 60.0
# ApiVersions, version 0, without a client id: the smallest request.
API_VERSIONS_REQUEST = struct.pack(">ihhih", 10, 18, 0, 1, -1)


def batch() -> bytearray:
    return build_batch([Record(value=b"v")])


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def test_produced_records_are_consumed() -> None:
    with Broker(["orders"]) as broker, Client(broker.bootstrap_servers) as client:
        assert [client.produce("orders", 0, batch()) for _ in range(3)] == [0, 1, 2]
        assert len(client.fetch("orders", 0, Offset(0)).batches) == 3


def test_configured_topics_exist_after_the_start() -> None:
    with Broker({"one": 1, "three": 3}) as broker, Client(broker.bootstrap_servers) as client:
        assert (client.partitions("one"), client.partitions("three")) == ([0], [0, 1, 2])
        broker.create_topic("made", 2, {"retention.ms": "60000"})
        assert client.partitions("made") == [0, 1]
        with pytest.raises(BrokerError) as raised:
            client.partitions("nobody")
        assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_stopped_broker_leaves_no_threads_or_files() -> None:
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
                # It is a new broker each time.
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
        # Other settings keep the values of the test kit.
        assert (config.groups.initial_rebalance_delay_ms, config.metrics.listen) == (0, "")


def test_maintenance_is_done_when_a_test_asks_for_it() -> None:
    with Broker(settings={"maintenance": {"mode": "on-demand"}}) as broker, Client(broker.bootstrap_servers) as client:
        broker.create_topic("t", 1, {"retention.ms": "1", "file.delete.delay.ms": "0"})
        client.produce("t", 0, build_batch([Record(value=b"v", timestamp=1_000)]))
        assert broker.run_maintenance() is not None


def test_a_failed_start_is_reported_and_leaves_nothing_behind(tmp_path: Path) -> None:
    before = threads()
    with Broker(data=str(tmp_path)), pytest.raises(DirectoryLockedError):
        Broker(data=str(tmp_path)).start()
    with pytest.raises(OSError, match=r"[Aa]ddress already in use"), Broker() as taken:
        Broker(settings={"network": {"listen": taken.bootstrap_servers}}).start()
    assert threads() == before


def test_a_failed_topic_creation_is_reported_and_leaves_nothing(tmp_path: Path) -> None:
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


def values(broker: Broker, topic: str) -> list[bytes | None]:
    return [record.value for record in broker.records(topic)]


def test_the_data_directory_may_be_a_path(tmp_path: Path) -> None:
    with Broker(["t"], data=tmp_path / "data") as broker:
        assert broker.data == str(tmp_path / "data")


def test_settings_have_the_notation_of_the_file() -> None:
    text = '[storage]\nwal_bytes_max = "64MiB"\n[topics]\nauto_create = true\n'
    for settings in (
        {"storage": {"wal_bytes_max": "64MiB"}, "topics": {"auto_create": True}},
        {"storage.wal_bytes_max": "64MiB", "topics.auto_create": "yes"},
        text,
    ):
        with Broker(settings=settings) as broker:
            config = broker._running.config
            assert (config.storage.wal_bytes_max, config.topics.auto_create) == (64 << 20, True)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"topics": {"auto_creat": True}}, "topics.auto_creat is not a setting; did you mean topics.auto_create?"),
        ({"topic": {"auto_create": True}}, r"\[topic\] is not a section; did you mean \[topics\]?"),
        ({"topics.partitions": "many"}, 'topics.partitions = "many", but it must be a whole number'),
        ("[topics]\nauto_creat = true", "settings:2: topics.auto_creat is not a setting"),
    ],
)
def test_mistakes_in_settings_are_refused_with_a_suggestion(settings: Any, problem: str) -> None:
    with pytest.raises(SettingsRefusedError, match=problem):
        Broker(settings=settings)


def test_records_are_produced_and_read() -> None:
    with Broker({"orders": 3}) as broker:
        broker.produce("orders", "first", b"second", None, key="k", headers={"h": "1"}, partition=2, timestamp_ms=5)
        assert broker.records("orders") == [
            TopicRecord(2, 0, 5, b"k", b"first", (("h", b"1"),)),
            TopicRecord(2, 1, 5, b"k", b"second", (("h", b"1"),)),
            TopicRecord(2, 2, 5, b"k", None, (("h", b"1"),)),
        ]
        assert broker.records("orders", 0) == []
        with pytest.raises(BrokerError, match="UNKNOWN_TOPIC"):
            broker.produce("nope", b"v")


def test_a_restart_keeps_the_port_and_the_data() -> None:
    with Broker(["t"]) as broker:
        address, data = broker.bootstrap_servers, broker.data
        broker.produce("t", b"before")
        with Client(address) as client:
            assert client.partitions("t") == [0]
            broker.restart()
            assert (broker.bootstrap_servers, broker.data) == (address, data)
            assert client.produce("t", 0, batch()) == 1
        assert values(broker, "t") == [b"before", b"v"]
    assert not os.path.exists(data)


def test_the_port_stays_reserved_while_a_broker_is_killed() -> None:
    with Broker() as broker:
        _, port = broker._running.address
        broker.kill()
        others = [socket.create_server(("127.0.0.1", 0)) for _ in range(50)]
        assert port not in {other.getsockname()[1] for other in others}
        broker.restart()
        assert broker._running.address[1] == port
        for other in others:
            other.close()


@pytest.mark.parametrize("durability", ["fsync", "interval"])
def test_a_kill_keeps_acknowledged_records_and_closes_nothing_cleanly(durability: str) -> None:
    before = threads()
    with Broker(["t"], settings={"storage.durability": durability}) as broker:
        data = broker.data
        broker.produce("t", *[b"%d" % number for number in range(100)])
        with Client(broker.bootstrap_servers) as client:
            assert client.partitions("t") == [0]
            broker.kill()
            with pytest.raises(NetworkError):
                client.metadata()
        for unavailable in (lambda: broker.records("t"), broker.pause, lambda: broker.create_topic("u")):
            with pytest.raises(RuntimeError, match="the broker was killed"):
                unavailable()
        checkpoint = read_checkpoint(OsFiles(data))
        assert checkpoint is None or not checkpoint.clean
        broker.start()
        assert values(broker, "t") == [b"%d" % number for number in range(100)]
    assert threads() == before


def test_a_kill_while_records_are_written_loses_no_acknowledged_one(tmp_path: Path) -> None:
    acknowledged: list[int] = []

    def write() -> None:
        with Client(broker.bootstrap_servers) as client, suppress(NetworkError):
            while True:
                acknowledged.append(client.produce("t", 0, batch()))

    def has_acknowledged(count: int) -> bool:
        return len(acknowledged) >= count

    with Broker(["t"], data=tmp_path) as broker:
        for enough in (20, 60):
            writer = threading.Thread(target=write)
            writer.start()
            assert wait_until(partial(has_acknowledged, enough), WAIT_S)
            broker.kill()
            writer.join(WAIT_S)
            broker.start()
            assert {record.offset for record in broker.records("t")} >= set(acknowledged)


def test_a_paused_broker_accepts_requests_and_answers_them_when_it_is_resumed() -> None:
    with Broker(["t"]) as broker:
        host, port = broker._running.address
        broker.pause()
        broker.pause()
        with socket.create_connection((host, port)) as connected:
            connected.sendall(API_VERSIONS_REQUEST)
            connected.settimeout(0.2)
            with pytest.raises(TimeoutError):
                connected.recv(1)
            with pytest.raises(RuntimeError, match="the broker is paused"):
                broker.records("t")
            broker.resume()
            connected.settimeout(WAIT_S)
            assert connected.recv(1)


def test_a_paused_broker_can_be_killed_and_stopped() -> None:
    with Broker(["t"]) as broker:
        host, port = broker._running.address
        broker.pause()
        with socket.create_connection((host, port)) as connected:
            connected.sendall(API_VERSIONS_REQUEST)
            broker.kill()
            connected.settimeout(WAIT_S)
            with suppress(ConnectionResetError):
                assert connected.recv(1) == b"", "it is closed without an answer"
        broker.restart()
        broker.pause()


def test_a_full_disk_refuses_writes_until_it_ends(tmp_path: Path) -> None:
    for data in (None, tmp_path):
        with Broker(["t"], data=data) as broker, Client(broker.bootstrap_servers) as client:
            client.produce("t", 0, batch())
            with broker.fault("disk_full"):
                with pytest.raises(BrokerError, match="KAFKA_STORAGE_ERROR"):
                    client.produce("t", 0, batch())
                assert values(broker, "t") == [b"v"], "reads work"
            assert client.produce("t", 0, batch()) == 1


def test_a_failed_disk_refuses_writes_until_a_restart(tmp_path: Path) -> None:
    with Broker(["t"], data=tmp_path) as broker, Client(broker.bootstrap_servers) as client:
        client.produce("t", 0, batch())
        with broker.fault("disk_failure"), pytest.raises(BrokerError, match="KAFKA_STORAGE_ERROR"):
            client.produce("t", 0, batch())
        with pytest.raises(BrokerError, match="KAFKA_STORAGE_ERROR"):
            client.produce("t", 0, batch())
        assert values(broker, "t") == [b"v"], "reads work"
        broker.heal()
        assert values(broker, "t") == [b"v"]
        broker.produce("t", b"w")


def test_a_broker_on_a_full_disk_can_be_restarted_and_stopped() -> None:
    with Broker(["t"]) as broker:
        broker.produce("t", b"v")
        with broker.fault("disk_full"):
            broker.restart()
            assert values(broker, "t") == [b"v"]


def test_slow_syncs_delay_acknowledgements(tmp_path: Path) -> None:
    with Broker(["t"], data=tmp_path) as broker, Client(broker.bootstrap_servers, timeout_s=WAIT_S) as client:
        with broker.fault("slow_sync", delay_ms=200):
            started_s = monotonic()
            client.produce("t", 0, batch())
            assert monotonic() - started_s >= 0.2
        assert client.produce("t", 0, batch()) == 1


def test_slow_syncs_are_refused_where_nothing_waits_for_them() -> None:
    with (
        Broker() as broker,
        pytest.raises(ValueError, match="slow_sync would have no effect"),
        broker.fault("slow_sync"),
    ):
        pass


def test_refused_connections(tmp_path: Path) -> None:
    with Broker(["t"], data=tmp_path) as broker, Client(broker.bootstrap_servers) as client:
        client.produce("t", 0, batch())
        with broker.fault("refuse_connections"):
            with pytest.raises(NetworkError):
                client.produce("t", 0, batch())
            with pytest.raises(ConnectFailedError):
                client.produce("t", 0, batch())
            broker.restart()
            with pytest.raises(ConnectFailedError):
                client.produce("t", 0, batch())
            with pytest.raises(RuntimeError, match="refuses connections"):
                broker.records("t")
        assert client.produce("t", 0, batch()) == 1


def test_an_unknown_fault_is_refused_with_a_suggestion() -> None:
    with Broker() as broker:
        for name, advice in (
            ("disk_ful", "did you mean disk_full?"),
            ("x", "the faults are disk_full, disk_failure, "),
        ):
            with pytest.raises(ValueError, match=re.escape(advice)), broker.fault(name):  # type: ignore[arg-type]
                pass


def test_healing_ends_everything() -> None:
    with Broker(["t"]) as broker:
        stack = ExitStack()
        stack.enter_context(broker.fault("disk_full"))
        stack.enter_context(broker.fault("refuse_connections"))
        broker.pause()
        broker.heal()
        broker.produce("t", b"v")
        broker.kill()
        broker.heal()
        assert values(broker, "t") == [b"v"]
        stack.close()
        assert values(broker, "t") == [b"v"]


def test_a_group_is_waited_for(tmp_path: Path) -> None:
    with Broker({"t": 2}) as broker, Client(broker.bootstrap_servers) as client:
        broker.produce("t", b"a", b"b", partition=0)
        with pytest.raises(TimeoutError, match="it does not exist"):
            broker.wait_for_group("g", timeout_s=0.05)
        with GroupMember(client, "g", ["t"]) as member:
            member.join()
            group = broker.wait_for_group("g")
            assert [len(info.partitions) for info in group.members] == [2]
            member.commit({TopicPartition("t", 0): 1})
            with pytest.raises(TimeoutError, match="it is Stable with 1 members and a lag of 1"):
                broker.wait_for_group("g", lag=0, timeout_s=0.05)
            member.commit({TopicPartition("t", 0): 2})
            assert broker.wait_for_group("g", lag=0).lag == 0
        assert broker.wait_for_group("g", members=0, state="Empty").members == ()


def test_it_is_an_async_context_manager() -> None:
    before = threads()

    async def produce() -> int:
        async with Broker(["t"]) as broker:
            with Client(broker.bootstrap_servers) as client:
                return client.produce("t", 0, batch())

    with asyncio.Runner() as runner:
        assert runner.run(produce()) == 0
    assert threads() == before


def test_the_log_tail_has_the_events_of_this_broker_only() -> None:
    with Broker() as broker, Broker() as other:
        broker.create_topic("mine")
        other.create_topic("theirs")
        tail = "\n".join(broker.log_tail)
        assert "topic created topic=mine" in tail
        assert "theirs" not in tail


def test_a_report_that_cannot_read_a_topic_reports_it_and_shows_the_others() -> None:
    with Broker(["a", "b"]) as broker:
        broker.produce("a", b"1")
        broker.produce("b", b"2")

        def read(client: Client, topic: str, *arguments: Any, **options: Any) -> list[TopicRecord]:
            if topic == "a":
                raise TimeoutError("it takes too long")
            return read_records(client, topic, *arguments, **options)

        with patch.object(broker_report, "read_records", read):
            report = broker_report.report_on(broker)
        assert report.topics.splitlines() == [
            "a: 1 partition, 1 records",
            "  not shown: it takes too long",
            "b: 1 partition, 1 records",
            "  0:0 key=null value='2'",
        ]


def test_a_report_is_bounded() -> None:
    with Broker([f"topic-{number:02}" for number in range(30)]) as broker:
        broker.produce("topic-29", *[b"x" * 1_000] * 50)
        lines = broker_report.report_on(broker, "topic-28").topics.splitlines()
        assert len(broker.log_tail) <= broker_report.LINES_MAX
    assert len(lines) == 1 + 10 + 5
    assert lines[0].startswith("topic-28")
    assert lines[1].startswith("topic-29")
    assert lines[2] == f"  0:45 key=null value='{'x' * 80}'... (1000 bytes)"
    assert lines[-1] == "and 20 more topics"
