"""`spark.read` on a real Spark, compared row by row with confluent_kafka."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id
from pyspark.sql.types import StructType

from logbrook import Broker
from logbrook.client import Client
from logbrook.pipelines.report import REPORTS_TOPIC
from logbrook.pipelines.reporter import write_report
from logbrook.spark.errors import SparkError
from logbrook.spark.schema import spark_schema
from logbrook.spark.session_settings import FILTER_PUSHDOWN
from logbrook.spark.source import LogbrookDataSource

ORDERS = "orders"
PARTITIONS = 3
PER_PARTITION = 20
START_MS = 1_700_000_000_000
SCHEMA = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT"
HEADERS = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
SOON_S = 10.0


class Message(NamedTuple):
    """A record as another client reads it, in the shape of a row."""

    key: bytes | None
    value: bytes | None
    topic: str
    partition: int
    offset: int
    timestamp: datetime
    timestamp_type: int
    headers: list[tuple[str, bytes | None]] | None


@pytest.fixture(scope="session")
def orders(broker: Broker) -> list[Message]:
    """A topic with all features of records, each record in its own batch, timestamps of a partition a second apart."""
    broker.create_topic(ORDERS, PARTITIONS, {"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.num.messages": 1})
    for number in range(PARTITIONS * PER_PARTITION):
        producer.produce(
            ORDERS,
            value=None if number % 10 == 9 else json.dumps({"id": number, "at": "2024-01-01T00:00:00Z"}),
            key=None if number % 7 == 0 else f"key-{number}",
            partition=number % PARTITIONS,
            timestamp=START_MS + 1000 * (number // PARTITIONS),
            headers=[("number", b"%d" % number), ("none", None)] if number % 4 == 0 else None,
        )
    assert producer.flush(10) == 0
    return consume(broker, ORDERS, PARTITIONS * PER_PARTITION)


def consume(broker: Broker, topic: str, count: int) -> list[Message]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "witness", "enable.auto.commit": False}
    )
    messages: list[Message] = []
    try:
        consumer.assign([ConfluentPartition(topic, number, 0) for number in range(PARTITIONS)])
        while len(messages) < count:
            message = consumer.poll(10)
            assert message is not None
            assert message.error() is None
            kind, time_ms = message.timestamp()
            # In confluent_kafka the types count from one.
            place = (message.topic(), message.partition(), message.offset())
            messages.append(
                Message(message.key(), message.value(), *place, at(time_ms), kind - 1, message.headers())  # type: ignore[arg-type]
            )
    finally:
        consumer.close()
    return sorted(messages, key=lambda message: (message.partition, message.offset))


def at(time_ms: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=time_ms)


def read(spark: SparkSession, broker: Broker, schema: str | None = None, **options: Any) -> DataFrame:
    reader = spark.read.format("logbrook").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    for name, value in options.items():
        reader = reader.option(name.replace("__", "."), value)
    return (reader.schema(schema) if schema is not None else reader).load()


def places(frame: DataFrame) -> list[tuple[int, int]]:
    """Return the partition and the offset of each row."""
    return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())


def read_by_task(broker: Broker, **options: Any) -> list[list[tuple[int, int]]]:
    """Return the partition and the offset of each row of each task, read without Spark."""
    texts = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    texts |= {name: str(value) for name, value in options.items()}
    reader = LogbrookDataSource(texts).reader(spark_schema(["partition", "offset"]))
    tasks = []
    for partition in reader.partitions():
        rows = [row for batch in reader.read(partition) for row in batch.to_pylist()]
        tasks.append([(row["partition"], row["offset"]) for row in rows])
    return tasks


def all_places(*, start: int = 0, end: int = PER_PARTITION, partitions: tuple[int, ...] = (0, 1, 2)) -> list[Any]:
    return [(partition, offset) for partition in partitions for offset in range(start, end)]


def by_partition(**values: int) -> str:
    return json.dumps({ORDERS: {name.removeprefix("p"): value for name, value in values.items()}})


@contextmanager
def pushdown(spark: SparkSession, is_on: bool) -> Iterator[None]:
    spark.conf.set(FILTER_PUSHDOWN, str(is_on).lower())
    try:
        yield
    finally:
        spark.conf.set(FILTER_PUSHDOWN, "true")


def test_the_schema_is_that_of_sparks_kafka_source(spark: SparkSession, broker: Broker) -> None:
    assert read(spark, broker, subscribe=ORDERS).schema == StructType.fromDDL(SCHEMA)
    with_headers = read(spark, broker, subscribe=ORDERS, includeHeaders=True).schema
    assert with_headers == StructType.fromDDL(f"{SCHEMA}, {HEADERS}")


def test_rows_are_what_another_client_reads(spark: SparkSession, broker: Broker, orders: list[Message]) -> None:
    rows = read(spark, broker, subscribe=ORDERS, includeHeaders=True).orderBy("partition", "offset").collect()
    assert len(rows) == len(orders)
    for row, message in zip(rows, orders, strict=True):
        key, value = (None if data is None else bytes(data) for data in (row.key, row.value))
        headers = row.headers and [
            (header.key, None if header.value is None else bytes(header.value)) for header in row.headers
        ]
        time = row.timestamp.replace(tzinfo=None).astimezone(UTC) if row.timestamp.tzinfo is None else row.timestamp
        from_row = Message(key, value, row.topic, row.partition, row.offset, time, row.timestampType, headers)
        assert from_row == message


def test_columns_are_chosen_by_option_or_by_schema(spark: SparkSession, broker: Broker, orders: list[Message]) -> None:
    chosen = read(spark, broker, subscribe=ORDERS, columns="Offset, key, partition")
    assert chosen.columns == ["offset", "key", "partition"]
    assert places(chosen) == all_places()
    given = read(
        spark, broker, "partition INT, headers " + HEADERS.partition(" ")[2] + ", offset LONG", subscribe=ORDERS
    )
    rows = given.orderBy("partition", "offset").collect()
    assert given.columns == ["partition", "headers", "offset"]
    assert [row.headers is None for row in rows] == [order.headers is None for order in orders]


def test_a_schema_that_no_topic_has_is_an_error(spark: SparkSession, broker: Broker, orders: list[Message]) -> None:
    with pytest.raises(PySparkException, match="a topic has no column 'colour'; it has key, value"):
        read(spark, broker, "colour STRING", subscribe=ORDERS).count()
    with pytest.raises(PySparkException, match="column 'offset' is bigint, and the schema says string; cast it"):
        read(spark, broker, "offset STRING", subscribe=ORDERS).count()


def test_a_filter_spares_reading_and_changes_no_result(
    spark: SparkSession, broker: Broker, orders: list[Message]
) -> None:
    traffic = broker._running.services.probe.topics[ORDERS]
    frame = read(spark, broker, subscribe=ORDERS, columns="topic,partition,offset,timestamp")

    def bytes_read(condition: str, expected: list[Any]) -> int:
        before = traffic.bytes_out
        assert places(frame.where(condition)) == expected
        return traffic.bytes_out - before

    one_partition = "partition = 1 and topic = 'orders'"
    with pushdown(spark, False):
        everything = bytes_read(one_partition, all_places(partitions=(1,)))
    assert everything >= sum(len(order.value or b"") for order in orders)
    assert 0 < bytes_read(one_partition, all_places(partitions=(1,))) < everything * 0.4
    since = "timestamp > timestamp'2023-11-14 22:13:34 UTC' and partition <> 1 and offset < 18"
    assert 0 < bytes_read(since, all_places(start=15, end=18, partitions=(0, 2))) < everything * 0.5
    assert bytes_read("topic = 'other'", []) == 0


def test_a_time_filter_means_the_same_in_another_time_zone(
    spark: SparkSession, broker: Broker, orders: list[Message]
) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone")
    assert zone is not None
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        frame = read(spark, broker, subscribe=ORDERS).where("timestamp >= timestamp'2023-11-15 07:13:35'")
        assert places(frame) == all_places(start=15)
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_more_tasks_than_partitions_may_be_asked_for(
    spark: SparkSession, broker: Broker, orders: list[Message]
) -> None:
    frame = read(spark, broker, None, subscribe=ORDERS, columns="partition,offset", minPartitions=7)
    tasks = frame.select("partition", "offset", spark_partition_id().alias("task")).collect()
    assert sorted((row.partition, row.offset) for row in tasks) == all_places()
    assert len({row.task for row in tasks}) == 7
    for option, value in (("minPartitions", 7), ("maxRecordsPerPartition", 9)):
        tasks_read = read_by_task(broker, subscribe=ORDERS, **{option: value})
        assert len(tasks_read) == value
        assert sorted(place for task in tasks_read for place in task) == all_places()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"startingOffsets": by_partition(p0=5, p1=-2, p2=20), "endingOffsets": by_partition(p0=-1, p1=7, p2=20)},
            [(0, 5, 20), (1, 0, 7)],
        ),
        (
            {"startingTimestamp": START_MS + 16_500, "endingTimestamp": START_MS + 18_000},
            [(0, 17, 18), (1, 17, 18), (2, 17, 18)],
        ),
        (
            {
                "startingOffsetsByTimestamp": by_partition(p0=START_MS + 19_000, p1=START_MS + 9_000, p2=0),
                "endingOffsetsByTimestamp": by_partition(p0=2**50, p1=START_MS + 10_000, p2=0),
            },
            [(0, 19, 20), (1, 9, 10)],
        ),
        ({"startingTimestamp": "-1 minute", "startingOffsetsByTimestampStrategy": "latest"}, []),
    ],
)
def test_a_range_is_given_by_offsets_or_times(
    broker: Broker, orders: list[Message], options: dict[str, Any], expected: list[tuple[int, int, int]]
) -> None:
    tasks = read_by_task(broker, subscribe=ORDERS, **options)
    places_read = sorted(place for task in tasks for place in task)
    assert places_read == [(number, offset) for number, start, end in expected for offset in range(start, end)]


def test_partitions_and_a_range_reach_the_tasks_of_spark(
    spark: SparkSession, broker: Broker, orders: list[Message]
) -> None:
    frame = read(
        spark,
        broker,
        assign=json.dumps({ORDERS: [2, 0]}),
        startingOffsets=by_partition(p0=5, p2=-2),
        endingOffsets=by_partition(p0=-1, p2=7),
        columns="partition,offset",
    )
    assert places(frame) == [(0, offset) for offset in range(5, 20)] + [(2, offset) for offset in range(7)]


def test_a_pattern_does_not_fit_internal_topics(spark: SparkSession, broker: Broker, orders: list[Message]) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "makes-the-internal-topic"})
    consumer.commit(offsets=[ConfluentPartition(ORDERS, 0, 1)], asynchronous=False)
    consumer.close()
    with Client(broker.bootstrap_servers) as client:
        write_report(client, REPORTS_TOPIC, "orders", None)
    # Not all topics: other tests have topics that cannot be read.
    topics = read(spark, broker, subscribePattern=f"{ORDERS}|__.*", columns="topic").distinct().collect()
    assert [row.topic for row in topics] == [ORDERS]
    with pytest.raises(PySparkException, match=r"there is no topic like '__.*' at"):
        read(spark, broker, subscribePattern="__.*").count()


def test_an_empty_topic_has_no_rows(spark: SparkSession, broker: Broker, topic: str) -> None:
    broker.create_topic(topic)
    assert read(spark, broker, subscribe=topic).collect() == []


def test_json_values_are_structs(spark: SparkSession, broker: Broker, orders: list[Message]) -> None:
    options = {"value__format": "json", "value__schema": "id BIGINT, at TIMESTAMP", "subscribe": ORDERS}
    frame = read(spark, broker, **options)
    assert frame.schema["value"].dataType == StructType.fromDDL("id BIGINT, at TIMESTAMP")
    assert frame.schema["timestamp"].dataType.simpleString() == "timestamp"
    rows = frame.where("value.at = timestamp'2024-01-01 00:00:00 UTC' or value is null").select("value").collect()
    assert sorted(row.value.id for row in rows if row.value is not None) == [n for n in range(60) if n % 10 != 9]
    assert len(rows) == len(orders)
    given = read(spark, broker, "offset BIGINT, value STRUCT<id: INT>", subscribe=ORDERS, value__format="json")
    assert given.where("value.id = 30").count() == 1
    with pytest.raises(PySparkException, match="PARSE_SYNTAX_ERROR"):
        read(spark, broker, **options | {"value__schema": "id BIG INT"})


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"subscribe": "no-such-topic"}, "there is no topic 'no-such-topic' at 127.0.0.1:"),
    ({"kafka__bootstrap__servers": "127.0.0.1:1"}, "the cluster at 127.0.0.1:1 cannot be asked: cannot connect to"),
    (
        {"startingOfsets": "earliest"},
        "option 'startingofsets': there is no such option; did you mean 'startingOffsets'?",
    ),
    ({"kafka__bootstrap__servers": "nowhere"}, "option 'kafka.bootstrap.servers': 'nowhere' is not HOST:PORT"),
    ({"startingOffsets": "latest"}, "option 'startingOffsets': a batch query cannot have 'latest'"),
    ({"maxOffsetsPerTrigger": "1"}, "option 'maxOffsetsPerTrigger': it is for streams"),
    ({"assign": "{}"}, "option 'subscribe': it cannot be given together with 'assign'"),
    ({"subscribe": "", "assign": json.dumps({ORDERS: [7]})}, "option 'assign': topic 'orders' has no partition 7"),
    ({"startingOffsets": by_partition(p0=1)}, "it must name every partition that is read and no other; see orders-1"),
    ({"startingTimestamp": str(2**50)}, "there is no record at or after that time in orders-0, orders-1, orders-2"),
    (
        {"endingOffsets": by_partition(p0=21, p1=1, p2=1)},
        "offset 21 of orders-0 is not there; the log ends at 20; to continue with the remaining records",
    ),
    (
        {"startingOffsets": by_partition(p0=21, p1=1, p2=1)},
        "offset 21 of orders-0 is not there; the log ends at 20; to continue with the remaining records",
    ),
]


@pytest.mark.parametrize(("options", "sentence"), WRONG[:2])
def test_invalid_options_fail_early_with_one_sentence(
    spark: SparkSession, broker: Broker, orders: list[Message], options: dict[str, Any], sentence: str
) -> None:
    before_s = monotonic()
    with pytest.raises(PySparkException) as error:
        read(spark, broker, **{"subscribe": ORDERS} | options).count()
    assert sentence in str(error.value)
    assert monotonic() - before_s < SOON_S


@pytest.mark.parametrize(("options", "sentence"), WRONG)
def test_invalid_options_are_refused_by_the_source_itself(
    broker: Broker, orders: list[Message], options: dict[str, str], sentence: str
) -> None:
    """The same and more, without Spark."""
    texts = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": ORDERS}
    texts |= {name.replace("__", "."): text for name, text in options.items()}
    with pytest.raises(SparkError) as error:
        LogbrookDataSource(texts).reader(spark_schema(["offset"])).partitions()
    assert sentence.lower() in str(error.value).lower()


def test_planning_and_committing_load_no_compiled_code() -> None:
    """Spark does both in new processes, and the kernels take longer to load than a small query to run."""
    code = """
import sys
import logbrook.spark.source, logbrook.spark.stream_reader, logbrook.spark.writer
print([name for name in ("numba", "numpy", "pyarrow", "pandas", "logbrook.records.columns") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_deleted_records_are_an_error_with_the_offsets_or_skipped(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    broker.create_topic(topic, 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.num.messages": 1})
    for number in range(10):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(10) == 0
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for deleted in admin.delete_records([ConfluentPartition(topic, 0, 6)]).values():
        deleted.result(10)
    options = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 3, "1": 0}})}
    with pytest.raises(PySparkException, match=f"offset 3 of {topic}-0 is gone; the log now starts at 6; to continue"):
        read(spark, broker, **options).count()
    assert places(read(spark, broker, failOnDataLoss=False, **options)) == [(0, offset) for offset in range(6, 10)]
