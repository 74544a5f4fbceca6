"""The topic sink with delivery exactly once: under kills of drivers and workers, and what its options do on Spark."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from logbrook import Broker
from logbrook.client import Client
from logbrook.client.coordinators import Coordinators
from logbrook.testing.exactly_once.campaign import DRIVER, Campaign, Plan
from logbrook.testing.exactly_once.driver import INPUT, OUTPUT, start_copy
from logbrook.testing.exactly_once.scene import Step

KILLS = 12


def test_a_killed_query_delivers_every_record_once_and_in_order(spark: SparkSession, tmp_path: Path) -> None:
    """Drivers and workers are killed at random moments and at those that matter most; the last run is left alone."""
    with Campaign(Plan(KILLS)) as campaign:
        campaign.kill_all()
        servers = campaign.broker.bootstrap_servers
        start_copy(spark, servers, campaign.scene).awaitTermination()
        outcome = campaign.compare()
        assert outcome.is_good, str(outcome)
        assert outcome.kills.total() >= KILLS
        assert outcome.kills[DRIVER] >= 3
        assert all(outcome.kills[step] for step in Step)
        check_source(spark, servers, outcome.records, tmp_path)


def check_source(spark: SparkSession, servers: str, records: int, directory: Path) -> None:
    """What the sink has left behind is read by our own source, which knows aborted records and markers from others."""
    assert read(spark, servers, OUTPUT, "read_committed").count() == records
    everything = read(spark, servers, OUTPUT, "read_uncommitted").count()
    assert everything > records, "something was aborted"
    assert read(spark, servers, INPUT, "read_committed").count() == records
    reader = spark.readStream.format("logbrook").option("kafka.bootstrap.servers", servers).option("subscribe", OUTPUT)
    reader = reader.option("startingOffsets", "earliest").option("isolation.level", "read_committed")
    frame = reader.option("maxOffsetsPerTrigger", 500).load()
    writer = frame.select("value").writeStream.format("parquet").option("checkpointLocation", str(directory / "c"))
    query = writer.trigger(availableNow=True).start(str(directory / "copy"))
    query.awaitTermination()
    progress = [one for one in query.recentProgress if one.numInputRows]
    assert len(progress) > 1
    assert sum(one.numInputRows for one in progress) == records, "records are counted, not offsets"
    assert spark.read.parquet(str(directory / "copy")).count() == records


def read(spark: SparkSession, servers: str, topic: str, isolation_level: str) -> DataFrame:
    reader = spark.read.format("logbrook").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    return reader.option("isolation.level", isolation_level).load()


def start_stream(spark: SparkSession, broker: Broker, topic: str, directory: Path, **options: str) -> Any:
    """Ten rows from a file to `topic`."""
    source = directory / "source"
    if not source.exists():
        spark.range(10).selectExpr("string(id) as value").coalesce(1).write.parquet(str(source))
    frame = spark.readStream.schema("value string").parquet(str(source))
    writer = frame.writeStream.format("logbrook").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    writer = writer.option("topic", topic).option("delivery", "exactly-once").options(**options)
    return writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True).start()


@pytest.mark.parametrize("app_id", [None, "the-app"])
def test_the_batch_is_noted_under_the_app_id_or_the_querys(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path, app_id: str | None
) -> None:
    broker.create_topic(topic, 1)
    query = start_stream(spark, broker, topic, tmp_path, **({"app.id": app_id} if app_id else {}))
    query.awaitTermination()
    with Client(broker.bootstrap_servers) as client:
        noted = Coordinators(client).committed(f"{app_id or query.id}-0")
    assert [one.offset for one in noted.values()] == [0]
    assert read(spark, broker.bootstrap_servers, topic, "read_committed").count() == 10


def test_a_checkpoint_that_is_replaced_needs_another_app_id(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    """Its batches are counted from 0 again, and would otherwise be taken for those that are written."""
    broker.create_topic(topic, 1)
    start_stream(spark, broker, topic, tmp_path, **{"app.id": topic}).awaitTermination()
    (tmp_path / "checkpoint").rename(tmp_path / "lost")
    with pytest.raises(PySparkException, match=f"app.id '{topic}' is in use by query"):
        start_stream(spark, broker, topic, tmp_path, **{"app.id": topic}).awaitTermination()
    assert read(spark, broker.bootstrap_servers, topic, "read_committed").count() == 10


def test_a_batch_query_is_refused_by_name(spark: SparkSession, broker: Broker, topic: str) -> None:
    broker.create_topic(topic, 1)
    writer = spark.range(1).selectExpr("string(id) as value").write.format("logbrook").mode("append")
    writer = writer.option("kafka.bootstrap.servers", broker.bootstrap_servers).option("topic", topic)
    with pytest.raises(PySparkException, match="option 'delivery': exactly-once is for streaming queries"):
        writer.option("delivery", "exactly-once").save()
