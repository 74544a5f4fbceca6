"""Spark's own Kafka connector on a Logbrook topic: the same rows as with ours, which continues its checkpoints."""

from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from logbrook import Broker
from logbrook.client import Client
from logbrook.client.partition_requests import PartitionRequests
from logbrook.spark.checkpoint_import import import_checkpoint
from tests.spark.limits import finish

RECORDS = 300


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
    for number in range(RECORDS):
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


def contents(frame: DataFrame) -> Counter[str]:
    """Return how often each row occurs."""
    return Counter(map(str, frame.collect()))


def test_both_connectors_have_the_same_schema_and_give_the_same_rows(
    spark: SparkSession, broker: Broker, filled: str
) -> None:
    ours, theirs = (rows(spark, broker, filled, connector) for connector in ("logbrook", "kafka"))
    assert ours.schema == theirs.schema
    assert contents(ours) == contents(theirs)
    assert ours.count() == theirs.count() == RECORDS


def test_both_connectors_read_the_records_of_the_other(
    spark: SparkSession, broker: Broker, filled: str, topic: str
) -> None:
    source = rows(spark, broker, filled, "logbrook").select("key", "value", "headers")
    expected = contents(source)
    assert expected.total() == RECORDS
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
            assert contents(rows(spark, broker, copy, reader).select("key", "value", "headers")) == expected


def test_the_logbrook_source_continues_from_a_checkpoint_of_sparks_kafka_source(
    spark: SparkSession, broker: Broker, filled: str, tmp_path: Path
) -> None:
    """Offsets, batch ids and state are carried over, and the batch that failed is repeated."""
    totals: list[tuple[int, int, int]] = []

    def start(connector: str, failing: int | None) -> StreamingQuery:
        def note(rows: DataFrame, batch_id: int) -> None:
            count, offsets = rows.selectExpr("sum(n)", "sum(offsets)").collect()[0]
            totals.append((batch_id, count, offsets))
            if batch_id == failing:
                raise RuntimeError("the driver dies after the batch was written")

        options = {"subscribe": filled, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "100"}
        reader = spark.readStream.format(connector).options(**options)
        frame = reader.option("kafka.bootstrap.servers", broker.bootstrap_servers).load()
        sums = frame.groupBy("topic").agg(f.count("offset").alias("n"), f.sum("offset").alias("offsets"))
        writer = sums.writeStream.outputMode("update").foreachBatch(note)
        return writer.option("checkpointLocation", str(tmp_path / connector)).trigger(availableNow=True).start()

    with pytest.raises(StreamingQueryException, match="the driver dies"):
        finish(start("kafka", failing=1))
    with Client(broker.bootstrap_servers) as client:
        imported = import_checkpoint(str(tmp_path / "kafka"), str(tmp_path / "logbrook"), PartitionRequests(client))
        ends = [client.list_offset(filled, partition) for partition in range(3)]
    assert (imported.batch_id, imported.is_committed, imported.starting) == (1, False, None)
    before = totals.copy()
    finish(start("logbrook", failing=None))
    repeated, *later = totals[len(before) :]
    assert repeated == before[-1], "the same batch id, rows and state"
    assert later[-1][1:] == (RECORDS, sum(end * (end - 1) // 2 for end in ends)), "each record once"
