"""Reading an offset range in a task, mostly from a real broker."""

import threading
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from logbrook import Broker
from logbrook.client import BrokerError, Client, Fetched
from logbrook.model import TopicPartition
from logbrook.protocol.error_codes import ErrorCode
from logbrook.records.batch import Codec
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.spark import arrow_batches, fetching
from logbrook.spark.errors import CorruptRecordsError, DataLossError, MissingTopicError, UnreachableError
from logbrook.spark.fetching import read_range
from logbrook.spark.offset_ranges import OffsetRange
from logbrook.spark.planner import DataLossWarning
from logbrook.spark.schema import spark_schema
from tests.unit.client.scripted_broker import ScriptedBroker
from tests.unit.spark.lying_client import (
    GOOD,
    NEXT,
    NOWHERE,
    TIME_MS,
    Filling,
    Liar,
    batch_at,
    options_for,
    read,
    read_from,
)

ALL = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
_numbers = count(1)
pytestmark = pytest.mark.usefixtures("own_clients")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers) as client:
        yield client


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"fetching-{next(_numbers)}"
    broker.create_topic(name)
    return name


def produce(client: Client, topic: str, records: int, per_batch: int = 1, size: int = 10) -> None:
    for first in range(0, records, per_batch):
        client.produce(topic, 0, batch_at(0, *[b"%0*d" % (size, first + n) for n in range(per_batch)]))


@pytest.mark.parametrize("codec", Codec)
def test_every_codec_is_read(client: Client, broker: Broker, topic: str, codec: Codec) -> None:
    records = [Record(b"k%d" % number, b"v" * number, timestamp=TIME_MS + number) for number in range(50)]
    client.produce(topic, 0, build_batch(records, codec=codec))
    rows = read(broker.bootstrap_servers, topic, 0, 50, ("key", "value", "offset"))
    assert rows == [{"key": record.key, "value": record.value, "offset": n} for n, record in enumerate(records)]


def test_rows_have_all_fields_of_records(client: Client, broker: Broker, topic: str) -> None:
    headers = [("a", b"1"), ("a", None), ("é", b"")]
    records = [
        Record(b"k", b"v", headers, TIME_MS),
        Record(b"tombstone", None, (), TIME_MS + 1),
        Record(None, b"", (), TIME_MS - 5),
    ]
    client.produce(topic, 0, build_batch(records))
    range_ = OffsetRange(TopicPartition(topic, 0), 0, 3)
    (batch,) = read_range(options_for(broker.bootstrap_servers), ALL, range_)
    assert batch.schema == to_arrow_schema(spark_schema(ALL), timezone="UTC")
    rows = batch.to_pylist()
    assert [(row["key"], row["value"]) for row in rows] == [(b"k", b"v"), (b"tombstone", None), (None, b"")]
    assert [row["timestamp"].timestamp() * 1000 for row in rows] == [TIME_MS, TIME_MS + 1, TIME_MS - 5]
    assert [(row["topic"], row["partition"], row["offset"], row["timestampType"]) for row in rows] == [
        (topic, 0, number, 0) for number in range(3)
    ]
    assert rows[0]["headers"] == [{"key": key, "value": value} for key, value in headers]
    assert [row["headers"] for row in rows[1:]] == [None, None], "null where there are none"


def test_a_range_is_read_exactly_wherever_batches_begin(client: Client, broker: Broker, topic: str) -> None:
    produce(client, topic, 20, per_batch=5)
    for start, end in ((0, 20), (0, 1), (4, 6), (5, 10), (7, 8), (19, 20)):
        assert read(broker.bootstrap_servers, topic, start, end) == list(range(start, end))


def test_many_fetches_are_one_stream_of_rows(client: Client, broker: Broker, topic: str) -> None:
    produce(client, topic, 60, per_batch=3)
    assert read(broker.bootstrap_servers, topic, 1, 59, fetch_max_bytes="300") == list(range(1, 59))


def test_a_record_larger_than_a_fetch_is_read(client: Client, broker: Broker, topic: str) -> None:
    produce(client, topic, 3, size=50_000)
    values = read(broker.bootstrap_servers, topic, 0, 3, ("value",), max_partition_fetch_bytes="1000")
    assert [len(value) for value in values] == [50_000] * 3


def test_a_fetch_has_the_size_and_the_wait_that_the_options_give(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    class Recorder(Liar):
        def fetch(self, topic: str, partition: int, offset: int, **limits: Any) -> Fetched:
            asked.append(limits)
            return super().fetch(topic, partition, offset)

    options = {"fetch_max_bytes": "5000", "max_partition_fetch_bytes": "700", "fetch_max_wait_ms": "20"}
    monkeypatch.setitem(fetching._clients, options_for(NOWHERE, **options).cluster, Recorder([batch_at(0, b"a")]))
    assert read(NOWHERE, "t", 0, 1, **options) == [0]
    assert (asked[0]["bytes_max"], asked[0]["max_wait_ms"]) == (700, 20)


def test_rows_come_in_batches_that_suit_spark(
    client: Client, broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(client, topic, 60, per_batch=20)
    monkeypatch.setattr(fetching, "ROWS_MAX", 8)
    monkeypatch.setattr(arrow_batches, "ROWS_MAX", 8)
    options, range_ = options_for(broker.bootstrap_servers), OffsetRange(TopicPartition(topic, 0), 0, 60)
    batches = list(read_range(options, ("offset",), range_))
    assert max(batch.num_rows for batch in batches) == 8
    assert [offset for batch in batches for offset in batch.column(0).to_pylist()] == list(range(60))
    monkeypatch.setattr(fetching, "BYTES_MAX", 1)
    monkeypatch.setattr(arrow_batches, "BYTES_MAX", 1)
    assert [batch.num_rows for batch in read_range(options, ("offset",), range_)] == [1] * 60


def test_batches_that_are_too_large_together_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [batch_at(number, bytes(2000), codec=Codec.ZSTD) for number in range(5)]
    monkeypatch.setattr(fetching, "_DECODED_BYTES_MAX", 3000)
    assert read_from(Liar(batches), 5) == [0, 1, 2, 3, 4]
    monkeypatch.setattr(fetching, "_DECODED_BYTES_MAX", 1000)
    with pytest.raises(
        CorruptRecordsError, match=r"t-0 has a batch at or after offset 0 .* decompresses to more than 1000"
    ):
        read_from(Liar(batches), 5)


def test_the_gaps_of_a_compacted_topic_are_no_loss(client: Client, broker: Broker) -> None:
    topic = f"fetching-{next(_numbers)}"
    broker.create_topic(
        topic, 1, {"cleanup.policy": "compact", "segment.bytes": "1024", "min.cleanable.dirty.ratio": "0.01"}
    )
    for number in range(60):
        keys = [b"k%d" % (number % 3), b"only-%d" % number if number % 20 == 0 else b"k"]
        client.produce(topic, 0, build_batch([Record(key, b"x" * 60, timestamp=TIME_MS) for key in keys]))
    assert broker.run_maintenance().logs_compacted >= 1
    end = client.list_offset(topic, 0)
    offsets = read(broker.bootstrap_servers, topic, 0, end)
    assert len(offsets) < end / 2, "it was not compacted"
    assert offsets == sorted(set(offsets))
    assert {0 + 1, 40 + 1, 80 + 1} <= set(offsets), "keys that came once are kept"
    latest = read(broker.bootstrap_servers, topic, end - 6, end, ("key",))
    assert set(latest) == {b"k", b"k0", b"k1", b"k2"}
    for start in range(0, end, 7):
        expected = [offset for offset in offsets if start <= offset < start + 7]
        assert read(broker.bootstrap_servers, topic, start, min(start + 7, end)) == expected


def test_values_may_be_json(client: Client, broker: Broker, topic: str) -> None:
    client.produce(topic, 0, batch_at(0, b'{"a": 1}', b"no json", b'{"a": 3}'))
    schema = StructType([StructField("a", LongType())])
    options = options_for(broker.bootstrap_servers, value_format="json")._replace(value_schema=schema)
    (batch,) = read_range(options, ("offset", "value"), OffsetRange(TopicPartition(topic, 0), 0, 3))
    assert batch.column("value").to_pylist() == [{"a": 1}, None, {"a": 3}]
    spark = StructType([StructField("offset", LongType()), StructField("value", schema)])
    assert batch.schema == to_arrow_schema(spark, timezone="UTC")


def delete_before(broker: Broker, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for deleted in admin.delete_records([ConfluentPartition(topic, 0, offset)]).values():
        assert deleted.result(10).low_watermark == offset


def test_records_deleted_by_retention_are_an_error_with_the_offsets(client: Client, broker: Broker, topic: str) -> None:
    produce(client, topic, 10)
    delete_before(broker, topic, 6)
    message = rf"^offset 2 of {topic}-0 is gone; the log now starts at 6; to continue .* failOnDataLoss to false$"
    with pytest.raises(DataLossError, match=message):
        read(broker.bootstrap_servers, topic, 2, 9)
    with pytest.warns(DataLossWarning, match=f"offset 2 of {topic}-0 is gone; the log now starts at 6"):
        assert read(broker.bootstrap_servers, topic, 2, 9, failOnDataLoss="false") == [6, 7, 8]
    with pytest.warns(DataLossWarning, match="the log now starts at 6"):
        assert read(broker.bootstrap_servers, topic, 2, 5, failOnDataLoss="false") == []


@pytest.mark.parametrize("fails", ["true", "false"])
def test_retention_overtakes_in_the_middle(client: Client, broker: Broker, topic: str, fails: str) -> None:
    produce(client, topic, 30)
    options = options_for(broker.bootstrap_servers, failOnDataLoss=fails, fetch_max_bytes="1")
    batches = read_range(options, ("offset",), OffsetRange(TopicPartition(topic, 0), 0, 30))
    read = next(batches).column(0).to_pylist()
    delete_before(broker, topic, 28)

    def read_on() -> None:
        for batch in batches:
            read.extend(batch.column(0).to_pylist())

    if fails == "true":
        with pytest.raises(DataLossError, match=rf"^offset \d+ of {topic}-0 is gone; the log now starts at 28"):
            read_on()
        assert read == list(range(len(read)))
        assert len(read) < 28
    else:
        with pytest.warns(DataLossWarning, match="the log now starts at 28"):
            read_on()
        assert read[-2:] == [28, 29]
        assert read[:-2] == list(range(len(read) - 2)), "nothing twice, and nothing out of order"


def test_offsets_after_the_end_are_an_error_with_the_offsets(client: Client, broker: Broker, topic: str) -> None:
    produce(client, topic, 3)
    with pytest.raises(DataLossError, match=rf"^offset 7 of {topic}-0 is not there; the log ends at 3;"):
        read(broker.bootstrap_servers, topic, 7, 9)
    with pytest.warns(DataLossWarning, match=f"offset 7 of {topic}-0 is not there; the log ends at 3"):
        assert read(broker.bootstrap_servers, topic, 7, 9, failOnDataLoss="false") == []


def test_a_deleted_topic_is_an_error_with_the_reason(broker: Broker) -> None:
    with pytest.raises(MissingTopicError, match="there is no topic 'none' at"):
        read(broker.bootstrap_servers, "none", 0, 1)


def test_an_address_without_a_broker_is_an_unreachable_error() -> None:
    with pytest.raises(
        UnreachableError, match=r"the cluster at 127.0.0.1:1 cannot be asked: cannot connect to 127.0.0.1:1"
    ):
        read(NOWHERE, "t", 0, 1)


def test_a_peer_of_another_protocol_is_an_unreachable_error() -> None:
    with (
        ScriptedBroker(lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n") as peer,
        pytest.raises(UnreachableError, match=r"cannot be asked: .* answers with HTTP: this is not a Kafka broker$"),
    ):
        read(peer.address, "t", 0, 1)


def test_a_broker_that_stops_during_a_read_is_an_unreachable_error() -> None:
    with Broker(["t"]) as gone:
        with Client(gone.bootstrap_servers) as client:
            produce(client, "t", 9)
        servers = gone.bootstrap_servers
        options = options_for(servers, fetch_max_bytes="1")
        batches = read_range(options, ("offset",), OffsetRange(TopicPartition("t", 0), 0, 9))
        assert next(batches).column(0).to_pylist() == [0]
    with pytest.raises(UnreachableError, match=rf"^the cluster at {servers} cannot be asked: "):
        list(batches)


def test_reading_continues_after_a_broker_restart(tmp_path: Path) -> None:
    data = str(tmp_path)
    with Broker(["t"], data=data) as before:
        with Client(before.bootstrap_servers) as client:
            produce(client, "t", 3)
        servers = before.bootstrap_servers
        assert read(servers, "t", 0, 3) == [0, 1, 2]
    with Broker(data=data, settings={"network": {"listen": servers}}):
        assert read(servers, "t", 0, 3) == [0, 1, 2], "the connection that is kept is a dead one"


def test_an_error_that_passes_is_not_the_end() -> None:
    @dataclass
    class Shaky(Liar):
        failures: int = 2

        def fetch(self, topic: str, partition: int, offset: int, **how: Any) -> Fetched:
            self.failures -= 1
            if self.failures >= 0:
                raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "fetching")
            return super().fetch(topic, partition, offset, **how)

    assert read_from(Shaky([GOOD, NEXT]), 2) == [0, 1]
    with pytest.raises(UnreachableError, match="fetching: NOT_LEADER_OR_FOLLOWER"):
        read_from(Shaky([GOOD], failures=9), 1)


def test_answers_are_fetched_ahead_and_only_so_many() -> None:
    @dataclass
    class Counting(Filling):
        taken: int = 0
        most_ahead: int = 0
        enough: threading.Event = field(default_factory=threading.Event)

        def fetch(self, topic: str, partition: int, offset: int, **how: Any) -> Fetched:
            fetched = super().fetch(topic, partition, offset, **how)
            self.most_ahead = max(self.most_ahead, len(self.asked) - self.taken)
            if len(self.asked) - self.taken == fetching._RESPONSES_MAX:
                self.enough.set()
            return fetched

    liar = Counting([batch_at(number, b"v") for number in range(40)], at_once=1)
    fetching._clients[options_for(NOWHERE).cluster] = liar  # type: ignore[assignment]
    range_ = OffsetRange(TopicPartition("t", 0), 0, 40)
    for batch in read_range(options_for(NOWHERE), ("offset",), range_):
        if range_.end - liar.taken > fetching._RESPONSES_MAX:
            assert liar.enough.wait(10), "nothing is fetched while this row is looked at"
        assert batch.column(0).to_pylist() == [liar.taken]
        # Cleared first: the thread may go on as soon as this row counts as taken.
        liar.enough.clear()
        liar.taken += 1
    assert liar.taken == 40
    assert liar.most_ahead == fetching._RESPONSES_MAX
    new, used = liar.memories[: fetching._RESPONSES_MAX], liar.memories[fetching._RESPONSES_MAX :]
    assert [size for size, _ in new] == [0] * fetching._RESPONSES_MAX
    assert len(set(used)) == fetching._RESPONSES_MAX, "the memory of an answer is used again"


def test_a_range_of_any_size_takes_no_more_memory_than_some_fetches(
    client: Client, broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch_bytes, count = 1 << 20, 100
    monkeypatch.setattr(fetching, "BYTES_MAX", fetch_bytes)
    options = options_for(broker.bootstrap_servers, fetch_max_bytes=str(fetch_bytes))
    batch = batch_at(0, *[bytes(1000)] * 500)
    for _ in range(count):
        client.produce(topic, 0, batch)
    range_ = OffsetRange(TopicPartition(topic, 0), 0, count * 500)
    arrow = pa.default_memory_pool()
    tracemalloc.start()
    try:
        before, arrow_before, arrow_most = tracemalloc.get_traced_memory()[0], arrow.bytes_allocated(), 0
        rows = 0
        for part in read_range(options, ("key", "value"), range_):
            rows += part.num_rows
            arrow_most = max(arrow_most, arrow.bytes_allocated() - arrow_before)
        most = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert rows == range_.size
    whole = count * len(batch)
    # Memory grows by doubling, and old and new blocks coexist while it is copied.
    assert most < 3 * fetching._RESPONSES_MAX * fetch_bytes < whole / 5
    assert arrow_most < 6 * fetch_bytes < whole / 5


def test_memory_that_one_large_batch_took_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_MEMORY_BYTES_MAX", 10_000)
    liar = Filling([batch_at(number, bytes(50_000 if number == 3 else 10)) for number in range(12)], at_once=1)
    assert read_from(liar, 12) == list(range(12))
    sizes = [size for size, _ in liar.memories]
    assert max(sizes) < 10_000
    assert sizes.count(0) == fetching._RESPONSES_MAX + 1, "each piece is new once, and one twice"


@given(sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=25))
def test_answers_of_all_sizes_share_memory_and_nothing_else(sizes: list[int]) -> None:
    values = [bytes([number % 256]) * size for number, size in enumerate(sizes)]
    liar = Filling([batch_at(number, value) for number, value in enumerate(values)], at_once=1)
    fetching._clients.clear()
    assert read_from(liar, len(values), ("value",)) == values


def renew(broker: Broker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics([topic])[topic].result(10)
    broker.create_topic(topic)


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_topic_that_is_created_again_in_the_middle_is_not_read_on_from(
    client: Client, broker: Broker, topic: str, fails: str
) -> None:
    produce(client, topic, 30)
    options = options_for(broker.bootstrap_servers, failOnDataLoss=fails, fetch_max_bytes="1")
    range_ = OffsetRange(TopicPartition(topic, 0), 0, 30, client.topic_id(topic))
    batches = read_range(options, ("offset",), range_)
    read = next(batches).column(0).to_pylist()
    renew(broker, topic)
    client.invalidate(topic)
    produce(client, topic, 30)

    def read_on() -> None:
        for batch in batches:
            read.extend(batch.column(0).to_pylist())

    sentence = f"^topic '{topic}' was deleted and created again since the query was planned"
    if fails == "true":
        with pytest.raises(DataLossError, match=sentence):
            read_on()
    else:
        with pytest.warns(DataLossWarning, match=sentence):
            read_on()
    assert read == list(range(len(read)))
    assert len(read) <= fetching._RESPONSES_MAX + 1, "what was fetched before, and nothing of the new topic"


def test_a_connection_that_knew_the_topic_of_before_reads_the_new_one(
    client: Client, broker: Broker, topic: str
) -> None:
    options = options_for(broker.bootstrap_servers, fetchOffset_numRetries="0")
    for size in (3, 5):
        produce(client, topic, size)
        range_ = OffsetRange(TopicPartition(topic, 0), 0, size, client.topic_id(topic))
        batches = read_range(options, ("offset",), range_)
        assert [offset for batch in batches for offset in batch.column(0).to_pylist()] == list(range(size))
        renew(broker, topic)
        client.invalidate(topic)


def test_a_reader_that_stops_early_leaves_no_thread(client: Client, broker: Broker, topic: str) -> None:
    produce(client, topic, 5)
    options = options_for(broker.bootstrap_servers, fetch_max_wait_ms="100")
    before = set(threading.enumerate())
    batches = read_range(options, ("offset",), OffsetRange(TopicPartition(topic, 0), 0, 9))
    next(batches)
    assert set(threading.enumerate()) > before
    batches.close()  # type: ignore[attr-defined]
    assert set(threading.enumerate()) == before
