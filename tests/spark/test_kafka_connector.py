"""Spark's own Kafka connector reads and writes a Logbrook topic, and gives the same rows as ours."""

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from logbrook import Broker
from logbrook.client import Client


@pytest.fixture(scope="module", autouse=True)
def connector(spark: SparkSession) -> None:
    if not spark.conf.get("spark.jars", ""):
        pytest.skip("Spark's own Kafka connector is fetched with Maven, and could not be")


@pytest.fixture
def filled(broker: Broker, topic: str) -> str:
    """A topic with keys, tombstones, and headers on some records."""
    with Client(broker.bootstrap_servers) as client:
        client.create_topic(topic, 3)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": "zstd"})
    for number in range(300):
        producer.produce(
            topic,
            f"value {number}".encode() if number % 5 else None,
            key=f"key {number % 17}".encode() if number % 3 else None,
            headers=[("trace", b"1"), ("empty", None)] if number % 2 else None,
        )
    assert producer.flush(30) == 0
    return topic


def rows(spark: SparkSession, broker: Broker, topic: str, connector: str) -> DataFrame:
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, "includeHeaders": "true"}
    return spark.read.format(connector).options(**options).load()


def are_equal(one: DataFrame, other: DataFrame) -> bool:
    """Whether the same rows are in both, each as often."""
    return one.count() > 0 and one.exceptAll(other).isEmpty() and other.exceptAll(one).isEmpty()


def test_both_connectors_have_the_same_schema_and_give_the_same_rows(
    spark: SparkSession, broker: Broker, filled: str
) -> None:
    ours, theirs = (rows(spark, broker, filled, connector) for connector in ("logbrook", "kafka"))
    assert ours.schema == theirs.schema
    assert are_equal(ours, theirs)


def test_what_theirs_writes_ours_reads_and_the_reverse(
    spark: SparkSession, broker: Broker, filled: str, topic: str
) -> None:
    source = rows(spark, broker, filled, "logbrook").select("key", "value", "headers")
    copies = {}
    for connector in ("logbrook", "kafka"):
        copy = f"{topic}-by-{connector}"
        with Client(broker.bootstrap_servers) as client:
            client.create_topic(copy, 2)
        options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": copy, "includeHeaders": "true"}
        source.write.format(connector).mode("append").options(**options).save()
        copies[connector] = copy
    for reader in ("logbrook", "kafka"):
        for copy in copies.values():
            assert are_equal(rows(spark, broker, copy, reader).select("key", "value", "headers"), source)
