"""The rows of a table plus the tail of its topic equal the topic, however much of it the table has."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from logbrook import Broker
from logbrook.client import Client
from logbrook.spark.errors import SchemaMismatchError, TableError
from logbrook.spark.tables.union import history_and_tail
from tests.spark.limits import finish


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
    finish(writer.start(str(directory / "table")))


# tests/unit/spark/tables/test_formats.py keeps and merges the offsets of tables of every format.
@pytest.mark.parametrize(
    "table_format",
    ["parquet", pytest.param("delta", marks=pytest.mark.long), pytest.param("iceberg", marks=pytest.mark.long)],
)
def test_the_union_of_table_and_topic_has_every_record_once(
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


def test_a_table_and_a_topic_with_different_columns_are_refused(
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
    narrow_table = str(tmp_path / "other")
    spark.range(1).write.format("logbrook_table").mode("append").save(narrow_table)
    with pytest.raises(
        TableError, match=r"it has no source offsets, because it was not written with source\.offsets=auto"
    ):
        history_and_tail(spark, narrow_table, options)
    upserted_table = str(tmp_path / "upserted")
    upsert = {"write.mode": "upsert", "upsert.keys": "id"}
    spark.range(1).write.format("logbrook_table").options(**upsert).mode("append").save(upserted_table)
    with pytest.raises(TableError, match="its rows are upserted by a key"):
        history_and_tail(spark, upserted_table, options)
