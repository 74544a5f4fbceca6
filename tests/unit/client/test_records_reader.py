"""Records read from several partitions, against a real broker."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from logbrook import Broker
from logbrook.client import BrokerError, Client
from logbrook.client.admin import Admin
from logbrook.client.cluster import Cluster
from logbrook.client.positions import AtOffset, AtTime, End, Last, Positions, Start
from logbrook.client.record_writer import RecordWriter, murmur2
from logbrook.client.records_reader import RecordsReader
from logbrook.model import TopicPartition
from logbrook.records.record import Record


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
    found: dict[int, list[bytes | None]] = {}
    while not reader.is_done:
        for run in reader.read():
            found.setdefault(run.partition.partition, []).extend(one.value for one in run.records)
    return found


def test_all_partitions_are_read_to_their_ends(client: Client, topic: str) -> None:
    for partition in range(3):
        write(client, topic, partition, *(b"%d-%d" % (partition, number) for number in range(100)))
    partitions = [TopicPartition(topic, number) for number in range(3)]
    starts = dict(zip(partitions, (0, 50, 99), strict=True))
    ends = dict(zip(partitions, (10, 100, 100), strict=True))
    with RecordsReader(client, starts, ends=ends, bytes_max=500) as reader:
        found = read_all(reader)
        assert {number: len(values) for number, values in found.items()} == {0: 10, 1: 50, 2: 1}
        assert found[1] == [b"1-%d" % number for number in range(50, 100)]
        assert reader.is_done
        assert reader.read() == []


def test_what_comes_later_is_read_without_an_end(client: Client, topic: str) -> None:
    with RecordsReader(client, {TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 0}) as reader:
        assert reader.read(wait_ms=1) == []
        write(client, topic, 1, b"late")
        runs = next(runs for _ in range(100) if (runs := reader.read()))
        assert [one.value for run in runs for one in run.records] == [b"late"]
        assert not reader.is_done


def test_what_was_removed_is_skipped_and_counted(client: Client, topic: str) -> None:
    write(client, topic, 0, *(b"%d" % number for number in range(10)))
    partition = TopicPartition(topic, 0)
    Admin(client).topics.delete_records({partition: 6})
    with RecordsReader(client, {partition: 2}, ends={partition: 10}) as reader:
        assert read_all(reader)[0] == [b"6", b"7", b"8", b"9"]
        assert reader.lost == {partition: 4}


def test_it_goes_on_when_the_broker_is_back(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with Broker({"t": 1}, data=data) as broker:
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        client = Client(broker.bootstrap_servers)
        write(client, "t", 0, b"before")
        reader = RecordsReader(client, {TopicPartition("t", 0): 0})
        assert [one.value for run in reader.read() for one in run.records] == [b"before"]
    assert reader.read() == [], "nobody is there, which may pass"
    with Broker(data=data, settings={"network": {"listen": f"127.0.0.1:{port}"}}) as broker:
        with Client(broker.bootstrap_servers) as another:
            write(another, "t", 0, b"after")
        runs = next(runs for _ in range(1000) if (runs := reader.read()))
        assert [one.value for run in runs for one in run.records] == [b"after"]
        reader.close()
        client.close()


def test_a_topic_that_goes_away_is_an_error_in_the_end(broker: Broker, topic: str) -> None:
    with (
        Client(broker.bootstrap_servers, timeout_s=0.5) as client,
        RecordsReader(client, {TopicPartition(topic, 0): 0}) as reader,
    ):
        Admin(client).topics.delete([topic])
        with pytest.raises(BrokerError, match="UNKNOWN_TOPIC"):
            read_all(reader)


def test_positions_are_within_the_log(client: Client, topic: str) -> None:
    write(client, topic, 0, *(b"%d" % number for number in range(10)))
    long, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    Admin(client).topics.delete_records({long: 2})
    positions = Positions(Cluster(client), [long, empty])
    for position, expected in (
        (Start(), (2, 0)),
        (End(), (10, 0)),
        (AtOffset(0), (2, 0)),
        (AtOffset(5), (5, 0)),
        (AtOffset(50), (10, 0)),
        (Last(3), (7, 0)),
        (Last(30), (2, 0)),
        (AtTime(4_500), (5, 0)),
        (AtTime(99_000), (10, 0)),
        (AtTime(-5), (2, 0)),
    ):
        found = positions.offsets(position)
        assert (found[long], found[empty]) == expected, position


def test_the_hash_of_keys_is_kafkas() -> None:
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


def test_records_without_a_key_are_spread_by_batches(client: Client, topic: str) -> None:
    values = [os.urandom(100) for _ in range(100)]
    with RecordWriter(client, topic, batch_bytes=1_000) as writer:
        writer.write_values(values, 5)
    partitions = {TopicPartition(topic, number): 0 for number in range(3)}
    ends = Positions(Cluster(client), partitions).ends
    assert min(ends.values()) > 20
    with RecordsReader(client, partitions, ends=ends) as reader:
        found = read_all(reader)
    assert sorted(value or b"" for values in found.values() for value in values) == sorted(values)
