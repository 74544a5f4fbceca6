"""Records read from several partitions, against a real broker."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from unittest.mock import patch

import pytest

from logbrook import Broker
from logbrook.client import BrokerError, Client, NetworkError, TimedOutError
from logbrook.client.admin import Admin
from logbrook.client.offset_specs import AtOffset, AtTime, Earliest, LastRecords, Latest, LogBounds
from logbrook.client.partition_requests import PartitionRequests
from logbrook.client.partitioner import murmur2
from logbrook.client.record_writer import RecordWriter
from logbrook.client.records_reader import RecordsReader
from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.records.record import Record
from logbrook.testing.processes import free_port


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers) as client:
        yield client


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name
    broker.create_topic(name, 3)
    return name


def write(client: Client, topic: str, partition: int, *values: bytes) -> None:
    with RecordWriter(client, topic) as writer:
        for number, value in enumerate(values):
            writer.write(Record(value=value, timestamp=1_000 * number), partition)


def read_all(reader: RecordsReader) -> dict[int, list[bytes | None]]:
    values: dict[int, list[bytes | None]] = {}
    while not reader.is_done:
        for run in reader.read():
            values.setdefault(run.partition.partition, []).extend(record.value for record in run.records)
    return values


def test_all_partitions_are_read_to_their_ends(client: Client, topic: str) -> None:
    for partition in range(3):
        write(client, topic, partition, *(b"%d-%d" % (partition, number) for number in range(100)))
    partitions = [TopicPartition(topic, number) for number in range(3)]
    starts = dict(zip(partitions, (0, 50, 99), strict=True))
    ends = dict(zip(partitions, (10, 100, 100), strict=True))
    with RecordsReader(client, starts, ends=ends, bytes_max=500) as reader:
        values_by_partition = read_all(reader)
        assert {number: len(values) for number, values in values_by_partition.items()} == {0: 10, 1: 50, 2: 1}
        assert values_by_partition[1] == [b"1-%d" % number for number in range(50, 100)]
        assert reader.is_done
        assert reader.read() == []


def test_without_an_end_later_records_are_read(client: Client, topic: str) -> None:
    with RecordsReader(client, {TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 0}) as reader:
        assert reader.read(wait_ms=1) == []
        write(client, topic, 1, b"late")
        runs = next(runs for _ in range(100) if (runs := reader.read()))
        assert [record.value for run in runs for record in run.records] == [b"late"]
        assert not reader.is_done


def test_deleted_records_are_skipped_and_counted(client: Client, topic: str) -> None:
    write(client, topic, 0, *(b"%d" % number for number in range(10)))
    partition = TopicPartition(topic, 0)
    Admin(client).topics.delete_records({partition: Offset(6)})
    with RecordsReader(client, {partition: 2}, ends={partition: 10}) as reader:
        assert read_all(reader)[0] == [b"6", b"7", b"8", b"9"]
        assert reader.lost == {partition: 4}


def test_reading_continues_after_a_restart_of_the_broker(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with Broker({"t": 1}, data=data) as broker:
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        client = Client(broker.bootstrap_servers)
        write(client, "t", 0, b"before")
        reader = RecordsReader(client, {TopicPartition("t", 0): 0})
        assert [record.value for run in reader.read() for record in run.records] == [b"before"]
    assert reader.read() == [], "a lost connection is retriable"
    with Broker(data=data, settings={"network": {"listen": f"127.0.0.1:{port}"}}) as broker:
        with Client(broker.bootstrap_servers) as another:
            write(another, "t", 0, b"after")
        runs = next(runs for _ in range(1000) if (runs := reader.read()))
        assert [record.value for run in runs for record in run.records] == [b"after"]
        reader.close()
        client.close()


class Outages:
    def __init__(self) -> None:
        self.events: list[str] = []

    def begin(self, error: NetworkError) -> None:
        self.events.append("begin")

    def end(self) -> None:
        self.events.append("end")


def test_with_a_listener_for_outages_reading_is_retried_without_a_limit(tmp_path: Path) -> None:
    data, outages = str(tmp_path / "data"), Outages()
    # A port outside of the ephemeral range, see `free_port`.
    settings = {"network": {"listen": f"127.0.0.1:{free_port()}"}}
    with Broker({"t": 1}, data=data, settings=settings) as broker:
        client = Client(broker.bootstrap_servers)
        reader = RecordsReader(client, {TopicPartition("t", 0): 0}, outages=outages)
        assert reader.read(wait_ms=1) == []
    client.timeout_s, until_s = 0.05, monotonic() + 0.5
    while monotonic() < until_s:
        assert reader.read(wait_ms=10) == []
    assert outages.events == ["begin"]
    assert reader.is_reconnecting
    client.timeout_s = 30.0
    with Broker(data=data, settings=settings):
        write(client, "t", 0, b"after")
        runs = next(runs for _ in range(1000) if (runs := reader.read()))
        assert [record.value for run in runs for record in run.records] == [b"after"]
        assert outages.events == ["begin", "end"]
        reader.close()
        client.close()


def test_a_broker_that_accepts_requests_and_answers_none_is_an_outage() -> None:
    outages = Outages()
    with Broker({"t": 1}) as broker, Client(broker.bootstrap_servers) as client:
        reader = RecordsReader(client, {TopicPartition("t", 0): 0}, outages=outages)
        assert reader.read(wait_ms=1) == []
        silent = socket.create_server(("127.0.0.1", 0))
        with (
            silent,
            patch.object(client, "leader", return_value=silent.getsockname()),
            patch.object(client, "timeout_s", 0.1),
        ):
            until_s = monotonic() + 30
            while not outages.events and monotonic() < until_s:
                reader.read(wait_ms=10)
            for _ in range(3):
                reader.read(wait_ms=10)
            assert outages.events == ["begin"]
        reader.close()


def test_a_single_slow_response_is_no_outage(client: Client, topic: str) -> None:
    outages = Outages()
    with RecordsReader(client, {TopicPartition(topic, 0): 0}, outages=outages) as reader:
        with patch.object(client, "leader", side_effect=TimedOutError("127.0.0.1", 1, 10.0)):
            assert reader.read(wait_ms=1) == []
        write(client, topic, 0, b"v")
        assert next(runs for _ in range(1000) if (runs := reader.read()))
        assert outages.events == []
        with patch.object(client, "leader", side_effect=TimedOutError("127.0.0.1", 1, 10.0)):
            for _ in range(3):
                assert reader.read(wait_ms=1) == []
        assert outages.events == ["begin"]


def test_a_deleted_topic_is_an_error_after_the_timeout(broker: Broker, topic: str) -> None:
    with (
        Client(broker.bootstrap_servers, timeout_s=0.5) as client,
        RecordsReader(client, {TopicPartition(topic, 0): 0}) as reader,
    ):
        Admin(client).topics.delete([topic])
        with pytest.raises(BrokerError, match="UNKNOWN_TOPIC"):
            read_all(reader)


def test_offset_specs_are_resolved_within_the_log(client: Client, topic: str) -> None:
    write(client, topic, 0, *(b"%d" % number for number in range(10)))
    long, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    Admin(client).topics.delete_records({long: Offset(2)})
    bounds = LogBounds(PartitionRequests(client), [long, empty])
    for spec, expected in (
        (Earliest(), (2, 0)),
        (Latest(), (10, 0)),
        (AtOffset(Offset(0)), (2, 0)),
        (AtOffset(Offset(5)), (5, 0)),
        (AtOffset(Offset(50)), (10, 0)),
        (LastRecords(3), (7, 0)),
        (LastRecords(30), (2, 0)),
        (AtTime(4_500), (5, 0)),
        (AtTime(99_000), (10, 0)),
        (AtTime(-5), (2, 0)),
    ):
        offsets = bounds.resolve(spec)
        assert (offsets[long], offsets[empty]) == expected, spec


def test_keys_are_hashed_as_by_kafka() -> None:
    # From the tests of Kafka's own clients (UtilsTest.testMurmur2).
    for key, hashed in (
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ):
        assert murmur2(key) == hashed & 0xFFFFFFFF


def test_records_without_a_key_are_spread_batch_by_batch(client: Client, topic: str) -> None:
    values = [os.urandom(100) for _ in range(100)]
    with RecordWriter(client, topic, batch_bytes=1_000) as writer:
        writer.write_values(values, 5)
    partitions = {TopicPartition(topic, number): 0 for number in range(3)}
    ends = LogBounds(PartitionRequests(client), partitions).ends
    assert min(ends.values()) > 20
    with RecordsReader(client, partitions, ends=ends) as reader:
        by_partition = read_all(reader)
    assert sorted(value or b"" for values in by_partition.values() for value in values) == sorted(values)


def test_records_and_runs_of_values_stay_in_order(client: Client, topic: str) -> None:
    with RecordWriter(client, topic, batch_bytes=500) as writer:
        for number in range(0, 100, 10):
            writer.write(Record(b"k", b"%d" % number, (), 1), 0)
            rest = [b"%d" % later for later in range(number + 1, number + 10)]
            writer.write_values(rest, 2, keys=[b"k"] * 9, partition=0)
        assert writer.written < 100
    assert writer.written == 100
    partition = TopicPartition(topic, 0)
    with RecordsReader(client, {partition: 0}, ends={partition: 100}) as reader:
        assert read_all(reader)[0] == [b"%d" % number for number in range(100)]


def test_a_value_larger_than_a_batch_gets_its_own_batch(client: Client, topic: str) -> None:
    values = [b"a", b"b" * 5_000, b"c", b"d" * 995, b"e"]
    with RecordWriter(client, topic, batch_bytes=1_000) as writer:
        writer.write_values(values, 1, partition=1)
    partition = TopicPartition(topic, 1)
    with RecordsReader(client, {partition: 0}, ends={partition: 5}) as reader:
        counts: list[int] = []
        while not reader.is_done:
            counts += [len(run.records) for run in reader.read()]
    assert counts == [1, 1, 1, 1, 1]


def test_keys_of_a_run_are_sent_to_their_partitions(client: Client, topic: str) -> None:
    keys = [b"key-%d" % number for number in range(50)]
    with RecordWriter(client, topic) as writer:
        writer.write_values(keys, 1, keys=keys)
    ends = LogBounds(PartitionRequests(client), [TopicPartition(topic, number) for number in range(3)]).ends
    with RecordsReader(client, dict.fromkeys(ends, 0), ends=ends) as reader:
        by_partition = read_all(reader)
    for number, values in by_partition.items():
        assert values == [key for key in keys if (murmur2(key) & 0x7FFFFFFF) % 3 == number]
    assert sum(map(len, by_partition.values())) == 50
