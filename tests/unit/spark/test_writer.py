"""The topic sink without Spark: Arrow batches in, records in a real broker out."""

import pickle
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import count
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from logbrook import Broker
from logbrook.client import BrokerError, Client
from logbrook.model.identifiers import Offset
from logbrook.records.batch import Codec, read_header
from logbrook.records.columns.schema import HEADERS_TYPE
from logbrook.records.reader import iter_records
from logbrook.spark import sending
from logbrook.spark.errors import OptionError, RecordError, UnreachableError
from logbrook.spark.schema import SchemaError
from logbrook.spark.sending import close_idle, send_rows
from logbrook.spark.write_options import WriteOptions
from logbrook.spark.writer import (
    RepeatedRowsWarning,
    TopicArrowWriter,
    TopicStreamArrowWriter,
    batch_writer,
    stream_writer,
)
from logbrook.testing.processes import free_port
from tests.interop.java.cutting_proxy import CuttingProxy
from tests.unit.spark.key_partitions import key_partitions

_numbers = count(1)
SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker
        close_idle()


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic with three partitions."""
    name = f"topic-{next(_numbers)}"
    broker.create_topic(name, 3)
    return name


def options(broker: Broker, **changed: Any) -> WriteOptions:
    return WriteOptions(broker.bootstrap_servers)._replace(**changed)


def write(options: WriteOptions, *batches: Any) -> int:
    return send_rows(options, iter(batches))


def batch_of(**columns: Any) -> Any:
    """Return a RecordBatch of these columns, with Spark's types."""
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "headers": HEADERS_TYPE,
    }
    arrays = {
        name: column if isinstance(column, pa.Array) else pa.array(column, types.get(name))
        for name, column in columns.items()
    }
    return pa.RecordBatch.from_pydict(arrays)


def read_all(broker: Broker, topic: str) -> dict[int, list[Any]]:
    """Return the records of each partition that has some."""
    by_partition: dict[int, list[Any]] = {}
    with Client(broker.bootstrap_servers) as client:
        for partition in client.partitions(topic):
            records: list[Any] = []
            while len(records) < client.list_offset(topic, partition):
                for batch in client.fetch(topic, partition, Offset(len(records))).batches:
                    records += iter_records(batch, bytes_max=1 << 26)
            if records:
                by_partition[partition] = records
    return by_partition


def values(broker: Broker, topic: str) -> dict[int, list[bytes | None]]:
    return {partition: [record.value for record in records] for partition, records in read_all(broker, topic).items()}


def test_a_row_becomes_a_record_with_all_its_fields(broker: Broker, topic: str) -> None:
    when = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
    headers = [("h", b"1"), ("h", None)]
    batch = batch_of(
        key=[b"k", None],
        value=[b"v", None],
        partition=[1, 1],
        timestamp=[when, None],
        headers=[[{"key": key, "value": value} for key, value in headers], None],
        offset=pa.array([5, 6]),
        unknown=pa.array(["left", "alone"]),
    )
    assert write(options(broker, topic=topic), batch) == 2
    first, second = read_all(broker, topic)[1]
    assert (first.key, first.value, first.timestamp) == (b"k", b"v", round(when.timestamp() * 1000))
    assert list(first.headers) == headers
    assert (second.key, second.value, second.headers) == (None, None, ())
    assert second.timestamp > first.timestamp, "it is now"


def test_strings_are_written_as_utf_8(broker: Broker, topic: str) -> None:
    write(options(broker, topic=topic), batch_of(key=pa.array(["ä"]), value=pa.array(["ö"])))
    ((record,),) = read_all(broker, topic).values()
    assert (record.key, record.value) == ("ä".encode(), "ö".encode())


def test_rows_are_grouped_by_topic_and_partition_in_their_order(broker: Broker) -> None:
    rng = Random(2)
    topics = {f"grouped-{number}": partitions for number, partitions in enumerate([1, 5, 12])}
    for name, partitions in topics.items():
        broker.create_topic(name, partitions)
    rows = [(rng.choice(list(topics)), rng.randbytes(3), b"%d" % number) for number in range(5000)]
    batches = [
        batch_of(
            topic=[row[0] for row in some],
            key=[row[1] for row in some],
            value=[row[2] for row in some],
            headers=[[{"key": "number", "value": row[2]}] * rng.randrange(3) for row in some],
        )
        for some in (rows[:1500], rows[1500:1501], rows[1501:])
    ]
    assert write(options(broker, batch_bytes_max=2000, codec=Codec.LZ4), *batches) == 5000
    for name, partitions in topics.items():
        by_partition = read_all(broker, name)
        placed = key_partitions(pa.array([row[1] for row in rows], pa.binary()), partitions)
        for partition in range(partitions):
            expected = [
                row[1:] for row, place in zip(rows, placed, strict=True) if (row[0], place) == (name, partition)
            ]
            assert [(record.key, record.value) for record in by_partition.get(partition, [])] == expected
            assert all(
                header == ("number", record.value)
                for record in by_partition.get(partition, [])
                for header in record.headers
            )


def test_the_option_topic_overrides_the_column(broker: Broker, topic: str) -> None:
    write(options(broker, topic=topic), batch_of(value=[b"a", b"b"], topic=["missing", None], partition=[0, 0]))
    assert values(broker, topic) == {0: [b"a", b"b"]}


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name)
def test_batches_have_the_codec_and_at_most_the_size(broker: Broker, topic: str, codec: Codec) -> None:
    chosen = options(broker, topic=topic, codec=codec, batch_bytes_max=5000)
    write(chosen, batch_of(value=[b"%04d" % number * 50 for number in range(100)]))
    (written,) = values(broker, topic).values()
    assert written == [b"%04d" % number * 50 for number in range(100)]
    with Client(broker.bootstrap_servers) as client:
        headers = [
            read_header(batch)
            for number in range(3)
            for batch in client.fetch(topic, number, Offset(0), max_wait_ms=0).batches
        ]
    assert len(headers) == 5
    assert all(header.codec is codec and header.size <= 5000 for header in headers)


def test_rows_without_a_key_are_spread_evenly(broker: Broker, topic: str) -> None:
    write(options(broker, topic=topic), *[batch_of(value=[b"v"] * 10) for _ in range(30)])
    assert Counter({number: len(records) for number, records in read_all(broker, topic).items()}) == {
        0: 100,
        1: 100,
        2: 100,
    }


def test_no_rows_need_no_broker() -> None:
    nowhere = WriteOptions(f"127.0.0.1:{free_port()}", "t", delivery_timeout_s=0.2)
    assert write(nowhere) == 0
    assert write(nowhere, batch_of(value=[])) == 0
    with pytest.raises(UnreachableError, match=nowhere.bootstrap_servers):
        write(nowhere, batch_of(value=[b"a"]))


def test_batches_without_rows_are_skipped(broker: Broker, topic: str) -> None:
    empty = batch_of(value=[], partition=[])
    chosen = options(broker, topic=topic)
    assert write(chosen, empty, batch_of(value=[b"a"], partition=[2]), empty) == 1
    assert values(broker, topic) == {2: [b"a"]}


def refused(options: WriteOptions, batch: Any) -> RecordError:
    with pytest.raises(RecordError) as raised:
        write(options, batch)
    return raised.value


def test_a_row_without_a_topic_is_named(broker: Broker, topic: str) -> None:
    error = refused(options(broker), batch_of(topic=[topic, None], key=[b"", b"abc"], value=[b"v", b"v"]))
    assert str(error) == ("a record for no topic with a key of 3 bytes cannot be written: its column 'topic' is null")


def test_a_topic_that_does_not_exist_is_named(broker: Broker, topic: str) -> None:
    batch = batch_of(topic=[topic, "missing"], partition=[0, 4], key=[b"", None], value=[b"v", b"v"])
    error = refused(options(broker), batch)
    assert (error.topic, error.partition, error.key_length) == ("missing", 4, None)
    assert "there is no such topic at 127.0.0.1" in str(error)
    assert read_all(broker, topic) == {}


@pytest.mark.parametrize("partition", [-2, -1, 3, 2**31 - 1])
def test_a_partition_that_does_not_exist_is_named(broker: Broker, topic: str, partition: int) -> None:
    batch = batch_of(partition=[0, None, partition], key=[b"k", b"k", b"ab"], value=[b"v"] * 3)
    error = refused(options(broker, topic=topic), batch)
    assert str(error) == (
        f"a record for topic {topic!r}, partition {partition}, with a key of 2 bytes cannot be written: "
        "the topic has 3 partitions, numbered from 0"
    )
    assert read_all(broker, topic) == {}, "nothing of the batch was sent"


def test_a_record_that_is_too_large_is_named(broker: Broker, topic: str) -> None:
    chosen = options(broker, topic=topic, request_bytes_max=10_000)
    batch = batch_of(key=[b"k" * 7] * 5, value=[b"", bytes(9000), bytes(9980), None, b""], partition=[2] * 5)
    error = refused(chosen, batch)
    assert (error.topic, error.partition, error.key_length) == (topic, 2, 7)
    assert "max.request.size is 10000" in str(error)
    headers = [[{"key": "k", "value": bytes(4000)}] * number for number in (0, 3, 1)]
    assert "max.request.size" in str(refused(chosen, batch_of(value=[b""] * 3, headers=headers)))
    assert read_all(broker, topic) == {}
    write(chosen, batch_of(value=[bytes(9000)] * 3, headers=[[], None, [{"key": "k", "value": bytes(500)}]]))
    assert [len(value or b"") for written in values(broker, topic).values() for value in written] == [9000] * 3


def test_a_record_that_the_broker_finds_too_large_is_named(broker: Broker) -> None:
    broker.create_topic("narrow", 1, {"max.message.bytes": "2000"})
    with pytest.raises(BrokerError, match=r"narrow-0.*MESSAGE_TOO_LARGE.*batch\.size is 1000000: set it to less"):
        write(options(broker, topic="narrow"), batch_of(value=[bytes(3000)]))
    # Records that fit are not too large together if the batches are small enough.
    write(options(broker, topic="narrow", batch_bytes_max=1_900), batch_of(value=[bytes(1000)] * 5))
    assert sum(map(len, values(broker, "narrow").values())) == 5


def test_a_header_without_a_key_is_named(broker: Broker, topic: str) -> None:
    headers = [[], [{"key": "h", "value": None}], None, [{"key": "h", "value": b""}, {"key": None, "value": b""}]]
    batch = batch_of(value=[b"v"] * 4, key=[b"a", b"ab", b"abc", b"abcd"], partition=[1] * 4, headers=headers)
    error = refused(options(broker, topic=topic), batch)
    assert (error.topic, error.partition, error.key_length) == (topic, 1, 4)


def producer_ids(broker: Broker, topic: str) -> list[int]:
    with Client(broker.bootstrap_servers) as client:
        return [read_header(batch).producer_id for batch in client.fetch(topic, 0, Offset(0)).batches]


def test_the_next_task_has_the_producer_of_the_last(broker: Broker, topic: str) -> None:
    row = batch_of(value=[b"a"], partition=[0])
    for _ in range(3):
        write(options(broker, topic=topic), row)
    assert len(set(producer_ids(broker, topic))) == 1
    refused(options(broker, topic=topic), batch_of(value=[b"a"], partition=[9]))
    write(options(broker, topic=topic), row)
    assert len(set(producer_ids(broker, topic))) == 2, "a producer that has seen an error is not used again"


def test_a_producer_is_not_used_for_another_cluster_at_its_address() -> None:
    address = f"127.0.0.1:{free_port()}"
    chosen = WriteOptions(address, "t")
    for _ in range(2):
        with Broker(["t"], settings={"network": {"listen": address, "stop_ms": 200}}) as broker:
            for value in (b"a", b"b"):
                write(chosen, batch_of(value=[value]))
            assert values(broker, "t") == {0: [b"a", b"b"]}
            (kept,) = [sender for key, sender in sending._idle.items() if key == chosen]
            assert kept.producer.next_sequence("t", 0) == 2
    close_idle()


HEADERS = ArrayType(StructType().add("key", "string").add("value", "binary"))


def schema_of(**types: str | DataType) -> StructType:
    schema = StructType()
    for name, type_ in types.items():
        schema.add(name, type_)
    return schema


def test_the_writers_accept_the_columns_of_sparks_kafka_sink() -> None:
    full = schema_of(key="binary", value="string", headers=HEADERS, topic="string", partition="integer", other="double")
    batch, stream = batch_writer(SERVERS, full, False), stream_writer(SERVERS, full, False)
    assert isinstance(batch, TopicArrowWriter)
    assert isinstance(stream, TopicStreamArrowWriter)
    for writer in (batch, stream):
        copied = pickle.loads(pickle.dumps(writer))
        assert copied.options == writer.options == WriteOptions("localhost:9092")


@pytest.mark.parametrize(
    ("types", "sentence"),
    [
        ({"value": "integer"}, "column 'value' must be string or binary, not int; cast it"),
        ({"key": "long"}, "column 'key' must be string or binary, not bigint; cast it"),
        ({"topic": "binary"}, "column 'topic' must be string, not binary; cast it"),
        ({"partition": "long"}, "column 'partition' must be int, not bigint; cast it"),
        ({"timestamp": "long"}, "column 'timestamp' must be timestamp, not bigint; cast it"),
        (
            {"headers": MapType(StringType(), StringType())},
            "column 'headers' must be array<struct<key:string,value:binary>>, not map<string,string>; cast it",
        ),
        (
            {"headers": ArrayType(StructType().add("key", "string").add("value", "string"))},
            "column 'headers' must be array<struct<key:string,value:binary>>, "
            "not array<struct<key:string,value:string>>; cast it",
        ),
    ],
    ids=str,
)
def test_a_column_of_another_type_is_refused_by_name(types: dict[str, Any], sentence: str) -> None:
    schema = schema_of(**{"value": "string", "topic": "string", **types})
    for make in (batch_writer, stream_writer):
        with pytest.raises(SchemaError) as raised:
            make(SERVERS, schema, False)
        assert str(raised.value) == sentence


def test_columns_that_are_required() -> None:
    with pytest.raises(SchemaError, match=r"column 'value' is required.*there are key, topic"):
        batch_writer(SERVERS, schema_of(key="string", topic="string"), False)
    with pytest.raises(SchemaError, match="column 'topic' is required"):
        batch_writer(SERVERS, schema_of(value="string"), False)
    assert batch_writer({**SERVERS, "topic": "t"}, schema_of(value="string"), False).options.topic == "t"


def test_a_topic_cannot_be_overwritten_by_a_batch() -> None:
    schema = schema_of(value="string", topic="string")
    with pytest.raises(OptionError, match=r"a topic cannot be overwritten; write with mode\('append'\)"):
        batch_writer(SERVERS, schema, True)


def test_a_stream_in_complete_mode_appends_its_whole_result() -> None:
    schema = schema_of(value="string", topic="string")
    assert stream_writer(SERVERS, schema, True).options == stream_writer(SERVERS, schema, False).options


def test_a_higher_level_makes_smaller_batches(broker: Broker, topic: str) -> None:
    rows = batch_of(value=[b"%06d" % (number * 7919 % 100_003) * 3 for number in range(4000)], partition=[0] * 4000)
    for level in (1, 9):
        write(options(broker, topic=topic, codec=Codec.GZIP, level=level), rows)
    with Client(broker.bootstrap_servers) as client:
        fast, small = (len(batch) for batch in client.fetch(topic, 0, Offset(0), max_wait_ms=0).batches)
    assert small < fast


def test_a_task_that_is_run_again_writes_its_rows_again(broker: Broker, topic: str) -> None:
    """At least once: records of the first attempt may be stored twice, and those of the second are in order."""
    writer = batch_writer(
        {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic}, schema_of(value="binary"), False
    )
    rows = [batch_of(value=[b"%d" % number], partition=[0]) for number in range(5)]

    def until_the_task_dies() -> Iterator[Any]:
        yield from rows[:3]
        raise KeyError("the task dies")

    with pytest.raises(KeyError):
        writer.write(until_the_task_dies())
    assert writer.write(iter(rows)).records == 5
    assert values(broker, topic)[0][-5:] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_write_of_a_micro_batch_that_may_be_repeated_is_warned_of(
    broker: Broker, topic: str, start_task: Callable[..., None]
) -> None:
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic}
    writer = batch_writer(options, schema_of(value="binary"), False)
    start_task(0)
    with pytest.warns(RepeatedRowsWarning, match="delivery=exactly-once"):
        writer.write(iter([batch_of(value=[b"1"], partition=[0])]))
    start_task()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        writer.write(iter([batch_of(value=[b"2"], partition=[0])]))
    assert values(broker, topic)[0] == [b"1", b"2"]


def test_rows_arrive_once_through_a_network_that_cuts() -> None:
    proxy = CuttingProxy(cuts=6, every_bytes=150_000)
    with proxy, Broker({"t": 2}, settings={"network": {"advertise": proxy.address}}) as behind:
        proxy.target = behind.bootstrap_servers
        chosen = WriteOptions(proxy.address, "t", batch_bytes_max=10_000, request_bytes_max=30_000, request_timeout_s=5)
        numbers = [b"%06d" % number * 100 for number in range(3000)]
        batches = [
            batch_of(value=numbers[first : first + 500], partition=[0, 1] * 250) for first in range(0, 3000, 500)
        ]
        assert write(chosen, *batches) == 3000
        close_idle()
        assert proxy.cuts_done == 6
        assert values(behind, "t") == {0: numbers[::2], 1: numbers[1::2]}
