"""Column pruning, and filters that stay with their query."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from logbrook import Broker

PER_PARTITION = 5
PARTITIONS = 2
ROWS = PARTITIONS * PER_PARTITION


@pytest.fixture
def frame(spark: SparkSession, broker: Broker, topic: str) -> DataFrame:
    broker.create_topic(topic, PARTITIONS)
    produce(broker, topic, PER_PARTITION)
    return read(spark, broker, topic)


def produce(broker: Broker, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(count):
        for partition in range(PARTITIONS):
            producer.produce(topic, key=f"k{number}", value=f'{{"id": {number}}}', partition=partition)
    assert producer.flush(30) == 0


def read(spark: SparkSession, broker: Broker, topic: str, **options: str) -> DataFrame:
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
    return spark.read.format("logbrook").options(**given).options(**options).load()


def scanned(frame: DataFrame) -> list[set[str]]:
    """Return the columns of each scan in the optimized plan."""
    leaves = frame._jdf.queryExecution().optimizedPlan().collectLeaves()
    return [
        {leaf.output().apply(index).name() for index in range(leaf.output().size())}
        for leaf in (leaves.apply(number) for number in range(leaves.size()))
    ]


def test_a_scan_has_the_columns_that_the_query_uses(frame: DataFrame) -> None:
    count = frame.groupBy().count()
    assert scanned(count) == [{"partition"}]
    assert count.first() == (ROWS,)
    lengths = frame.where("key <> X'00'").selectExpr("sum(length(value))")
    assert scanned(lengths) == [{"key", "value"}]
    assert lengths.first() == (ROWS * len('{"id": 0}'),)
    assert scanned(frame) == [set(frame.columns)]
    assert frame.select("offset", "partition").distinct().count() == ROWS


def test_the_columns_of_a_filter_are_read(frame: DataFrame) -> None:
    filtered = frame.where("offset < 3 and topic like '%a%'").select("key")
    assert scanned(filtered) == [{"key", "offset", "topic"}]
    assert sorted(bytes(row.key) for row in filtered.collect()) == [b"k0", b"k0", b"k1", b"k1", b"k2", b"k2"]


def test_a_filter_of_one_query_has_no_effect_on_another(frame: DataFrame) -> None:
    low = frame.where("offset < 2")
    assert low.count() == 2 * PARTITIONS
    assert frame.count() == ROWS
    high = frame.where("offset >= 2 and partition = 1")
    assert low.union(high).count() == 2 * PARTITIONS + PER_PARTITION - 2
    assert low.alias("low").join(high.alias("high"), "key").count() == 0
    assert low.join(frame, ["partition", "offset"]).count() == 2 * PARTITIONS


def test_each_query_resolves_its_offsets(frame: DataFrame, broker: Broker, topic: str) -> None:
    assert frame.count() == ROWS
    produce(broker, topic, 1)
    assert frame.count() == ROWS + PARTITIONS


def test_decoded_values_keep_all_their_fields(
    spark: SparkSession, broker: Broker, topic: str, frame: DataFrame
) -> None:
    values = {"value.format": "json", "value.schema": "id BIGINT, name STRING"}
    decoded = read(spark, broker, topic, **values).select("value.id")
    assert scanned(decoded) == [{"value"}]
    assert sorted(row.id for row in decoded.collect()) == sorted([*range(PER_PARTITION)] * PARTITIONS)


def test_a_table_is_pruned_too(spark: SparkSession, frame: DataFrame, tmp_path: Path) -> None:
    location = str(tmp_path / "table")
    shown = frame.selectExpr("offset AS `a.b`", "partition", "cast(key AS string) AS key")
    shown.write.format("logbrook_table").mode("append").save(location)
    table = spark.read.format("logbrook_table").load(location)
    count = table.groupBy().count()
    assert scanned(count) == [{"partition"}]
    assert count.first() == (ROWS,)
    assert table.where("`a.b` < 2").select("key").count() == 2 * PARTITIONS
    shown.write.format("logbrook_table").mode("append").save(location)
    assert table.count() == 2 * ROWS
