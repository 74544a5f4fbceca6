"""The rows of a table and the tail of its topic are the topic, whatever has been written to which."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from logbrook import Broker
from logbrook.client import Client
from logbrook.spark.tables.errors import SchemaMismatchError, TableError
from logbrook.spark.tables.union import history_and_tail


def produce(broker: Broker, topic: str, counts: dict[int, int]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for partition, count in counts.items():
        for number in range(count):
            producer.produce(topic, f"{partition}: {number}".encode(), partition=partition)
    assert producer.flush(30) == 0


def shape(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("topic", "partition", "offset", "string(value) as text")


def fill(spark: SparkSession, options: dict[str, str], directory: Path, table_format: str) -> None:
    """Bring the table up to the topic's end."""
    reader = spark.readStream.format("logbrook").options(**options).option("startingOffsets", "earliest")
    writer = shape(reader.load()).writeStream.format("logbrook_table")
    writer = writer.options(**{"source.offsets": "auto", "table.format": table_format})
    writer = writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True)
    writer.start(str(directory / "table")).awaitTermination()


@pytest.mark.parametrize("table_format", ["delta", "iceberg", "parquet"])
def test_history_and_tail_are_the_whole_topic(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path, table_format: str
) -> None:
    with Client(broker.bootstrap_servers) as client:
        client.create_topic(topic, 3)
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
    table = str(tmp_path / "table")

    def whole() -> list[tuple[int, int]]:
        frame = history_and_tail(spark, table, options, shape=shape)
        return sorted((row.partition, row.offset) for row in frame.collect())

    produce(broker, topic, {0: 60, 1: 40})
    fill(spark, options, tmp_path, table_format)
    assert whole() == [(0, number) for number in range(60)] + [(1, number) for number in range(40)]
    # The table has no row of the last partition yet, and so no offset.
    produce(broker, topic, {1: 10, 2: 5})
    everything = [(0, number) for number in range(60)] + [(1, number) for number in range(50)]
    everything += [(2, number) for number in range(5)]
    assert whole() == everything
    fill(spark, options, tmp_path, table_format)
    assert whole() == everything


def test_a_table_and_a_topic_that_do_not_fit_are_told(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    broker.create_topic(topic)
    produce(broker, topic, {0: 3})
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
    rows = shape(spark.read.format("logbrook").options(**options).load())
    table = str(tmp_path / "table")
    rows.write.format("logbrook_table").option("source.offsets", "auto").mode("append").save(table)
    assert history_and_tail(spark, table, options, shape=shape).count() == 3
    with pytest.raises(SchemaMismatchError, match="column 'text' is not in the frame and is string in the table"):
        history_and_tail(spark, table, options)
    other = str(tmp_path / "other")
    spark.range(1).write.format("logbrook_table").mode("append").save(other)
    with pytest.raises(TableError, match=r"it holds no offsets, because it was not written with source\.offsets=auto"):
        history_and_tail(spark, other, options)
