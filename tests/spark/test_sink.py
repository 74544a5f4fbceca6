"""The topic sink on Spark, verified with confluent_kafka."""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, TopicPartition
from pyarrow import parquet
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from logbrook import Broker
from tests.interop.waiting import Deadline
from tests.spark.limits import finish

WHEN = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
SCHEMA = (
    "topic string, partition int, key binary, value binary, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)


class Arrived(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int


def consume(broker: Broker, topic: str) -> dict[int, list[Arrived]]:
    """Return the records of each partition, in order."""
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "nobody",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = confluent_kafka.Consumer(settings)
    try:
        open_partitions = set(consumer.list_topics(topic, 10).topics[topic].partitions)
        by_partition: dict[int, list[Arrived]] = {partition: [] for partition in open_partitions}
        consumer.assign([TopicPartition(topic, partition, 0) for partition in open_partitions])
        deadline = Deadline()
        while open_partitions:
            deadline.check("reading everything")
            message = consumer.poll(0.1)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF
                open_partitions.discard(message.partition() or 0)
                continue
            arrived = Arrived(message.key(), message.value(), message.headers() or [], message.timestamp()[1])  # type: ignore[arg-type]
            by_partition[message.partition() or 0].append(arrived)
        return by_partition
    finally:
        consumer.close()


def values(broker: Broker, topic: str) -> list[bytes]:
    return sorted(record.value or b"" for records in consume(broker, topic).values() for record in records)


def save(frame: DataFrame, broker: Broker, **options: str) -> None:
    writer = frame.write.format("logbrook").mode("append").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    writer.options(**options).save()


def test_a_frame_arrives_row_by_row(spark: SparkSession, broker: Broker, topic: str) -> None:
    """Keys, headers, tombstones, given partitions and times, in two topics."""
    broker.create_topic(topic, 3)
    broker.create_topic(f"{topic}-b")
    rows = [
        (
            f"{topic}-b" if number % 5 == 0 else topic,
            0 if number % 5 == 0 else number % 3,
            None if number % 4 == 0 else b"key-%d" % number,
            None if number % 7 == 0 else b"value-%d" % number,
            WHEN if number % 2 else None,
            [("a", b"%d" % number), ("b", None)] if number % 3 == 0 else None,
        )
        for number in range(300)
    ]
    # One task, whose order is the order of the rows.
    save(spark.createDataFrame(rows, SCHEMA).coalesce(1), broker)
    written = {
        (name, number): arrived for name in (topic, f"{topic}-b") for number, arrived in consume(broker, name).items()
    }
    assert sum(map(len, written.values())) == len(rows)
    for (name, number), records in written.items():
        expected = [row for row in rows if row[:2] == (name, number)]
        assert [(record.key, record.value, record.headers) for record in records] == [
            (row[2], row[3], row[5] or []) for row in expected
        ]
        now_ms = datetime.now(UTC).timestamp() * 1000
        for record, row in zip(records, expected, strict=True):
            if row[4] is None:
                assert now_ms - 60_000 < record.timestamp_ms <= now_ms
            else:
                assert record.timestamp_ms == round(WHEN.timestamp() * 1000)


def test_large_values_are_written_with_a_codec(spark: SparkSession, broker: Broker, topic: str) -> None:
    """tests/unit/spark/test_writer.py has every codec."""
    frame = spark.range(4).select(f.repeat(f.col("id").cast("string"), 700_000).alias("value"))
    broker.create_topic(f"{topic}-zstd", 2)
    save(frame, broker, topic=f"{topic}-zstd", **{"kafka.compression.type": "zstd"})
    assert values(broker, f"{topic}-zstd") == [b"%d" % number * 700_000 for number in range(4)]
    broker.create_topic(topic, 2, {"max.message.bytes": "9000000"})
    larger = spark.range(3).select(f.repeat(f.col("id").cast("string"), 5_000_000).alias("value"))
    save(larger, broker, topic=topic, **{"kafka.max.request.size": "6000000"})
    assert values(broker, topic) == [b"%d" % number * 5_000_000 for number in range(3)]


def start_stream(
    spark: SparkSession,
    broker: Broker,
    rows: Any,
    directory: Path,
    *,
    shape: Callable[[DataFrame], DataFrame] = lambda frame: frame,
    mode: str = "append",
    **options: str,
) -> StreamingQuery:
    """Start a query that writes the rows of each Arrow table as a micro-batch, in order, and then ends."""
    (directory / "source").mkdir()
    for number, table in enumerate(rows):
        path = directory / "source" / f"{number}.parquet"
        parquet.write_table(table, path)
        os.utime(path, (number, number))
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    frame = shape(reader.parquet(str(directory / "source")))
    writer = frame.writeStream.outputMode(mode).format("logbrook").options(**options)
    writer = writer.option("kafka.bootstrap.servers", broker.bootstrap_servers)
    return writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True).start()


def test_a_stream_arrives_once_and_in_order(spark: SparkSession, broker: Broker, topic: str, tmp_path: Path) -> None:
    broker.create_topic(topic, 3)
    numbers = [[b"%d" % number for number in range(first, first + 100)] for first in (0, 100)]
    tables = [pa.table({"key": [number[-1:] for number in some], "value": some}) for some in numbers]
    query = start_stream(spark, broker, tables, tmp_path, topic=topic)
    finish(query)
    assert len([progress for progress in query.recentProgress if progress.numInputRows]) == 2, "micro-batches"
    by_partition = [[int(record.value or b"") for record in records] for records in consume(broker, topic).values()]
    assert all(by_partition), "keys are spread"
    assert [sorted(numbers) for numbers in by_partition] == by_partition
    assert sorted(number for numbers in by_partition for number in numbers) == list(range(200))


def test_output_mode_complete_appends_the_whole_result(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    """The same as Spark's Kafka sink. Options without effect are accepted."""
    broker.create_topic(topic, 1)
    tables = [pa.table({"key": keys, "value": keys}) for keys in ([b"a", b"b"], [b"a"])]
    counts = start_stream(
        spark,
        broker,
        tables,
        tmp_path,
        shape=lambda frame: frame.groupBy("key").count().selectExpr("key", "CAST(count AS STRING) AS value"),
        mode="complete",
        topic=topic,
        **{"kafka.linger.ms": "5", "kafka.security.protocol": "PLAINTEXT"},
    )
    finish(counts)
    assert values(broker, topic) == [b"1", b"1", b"1", b"2"], "a=1 and b=1, then a=2 and b=1"


def test_frames_that_cannot_be_written_are_refused_before_a_task_runs(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    frame = spark.range(1).select(f.col("id").alias("value"), f.lit(topic).alias("topic"))
    with pytest.raises(PySparkException, match="column 'value' must be string or binary, not bigint"):
        save(frame, broker)
    text = frame.select(f.col("value").cast("string").alias("value"), "topic")
    with pytest.raises(PySparkException, match=r"option 'compresion': there is no such option; did you mean"):
        save(text, broker, compresion="lz4")
    with pytest.raises(PySparkException, match="a topic cannot be overwritten"):
        text.write.format("logbrook").mode("overwrite").option("kafka.bootstrap.servers", "x:1").save()


def test_a_row_that_cannot_be_a_record_fails_its_query_by_name(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    broker.create_topic(topic, 2)
    row = spark.createDataFrame([(topic, 2, b"abc", b"v", None, None)], SCHEMA)
    with pytest.raises(
        PySparkException, match=f"topic '{topic}', partition 2, with a key of 3 bytes cannot be written"
    ):
        save(row, broker)
    with pytest.raises(PySparkException, match=r"topic 'missing', partition 2, with a key of 3 bytes.*no such topic"):
        save(row, broker, topic="missing")
    table = pa.table({"partition": pa.array([2], pa.int32()), "value": [b"v"]})
    query = start_stream(spark, broker, [table], tmp_path, topic=topic)
    with pytest.raises(PySparkException, match="the topic has 2 partitions"):
        finish(query)
    assert consume(broker, topic) == {0: [], 1: []}
