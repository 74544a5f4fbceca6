"""The topic sink with delivery exactly once: under kills of drivers and workers, and what its options do on Spark."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from logbrook import Broker
from logbrook.client import Client
from logbrook.client.coordinators import Coordinators
from logbrook.testing.exactly_once.campaign import DRIVER, ExactlyOnceCampaign, ExactlyOncePlan
from logbrook.testing.exactly_once.control_files import KillPoint
from logbrook.testing.exactly_once.driver import OUTPUT, start_copy
from tests.spark.limits import finish

# Kills of one driver run: two workers at random, one at each kill point, and the driver itself.
KILLS = 5


@pytest.mark.long
def test_a_killed_query_delivers_every_record_once_and_in_order(spark: SparkSession, tmp_path: Path) -> None:
    """A driver and its workers are killed at random moments and at the kill points; the last run is left alone.

    `make exactly-once` kills more often.
    """
    with ExactlyOnceCampaign(ExactlyOncePlan(KILLS)) as campaign:
        campaign.kill_all()
        while not all(campaign.outcome.kills[point] for point in KillPoint):
            # The driver ended before a task reached a kill point.
            campaign.plan = ExactlyOncePlan(campaign.outcome.kills.total() + KILLS)
            campaign.kill_all()
        servers = campaign.broker.bootstrap_servers
        finish(start_copy(spark, servers, campaign.control))
        outcome = campaign.compare()
        assert outcome.is_good, str(outcome)
        assert outcome.kills.total() >= KILLS
        assert outcome.kills[DRIVER] >= 1
        check_source(spark, servers, outcome.records, tmp_path)


def check_source(spark: SparkSession, servers: str, records: int, directory: Path) -> None:
    """Read the sink's output with our own source, which must skip aborted records and transaction markers."""
    assert read(spark, servers, OUTPUT, "read_committed").count() == records
    everything = read(spark, servers, OUTPUT, "read_uncommitted").count()
    assert everything > records, "something was aborted"
    reader = spark.readStream.format("logbrook").option("kafka.bootstrap.servers", servers).option("subscribe", OUTPUT)
    reader = reader.option("startingOffsets", "earliest").option("isolation.level", "read_committed")
    frame = reader.option("maxOffsetsPerTrigger", 500).load()
    writer = frame.select("value").writeStream.format("parquet").option("checkpointLocation", str(directory / "c"))
    query = writer.trigger(availableNow=True).start(str(directory / "copy"))
    finish(query)
    progress = [report for report in query.recentProgress if report.numInputRows]
    assert len(progress) > 1
    assert sum(report.numInputRows for report in progress) == records, "records are counted, not offsets"
    assert spark.read.parquet(str(directory / "copy")).count() == records


def read(spark: SparkSession, servers: str, topic: str, isolation_level: str) -> DataFrame:
    reader = spark.read.format("logbrook").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    return reader.option("isolation.level", isolation_level).load()


def start_stream(spark: SparkSession, broker: Broker, topic: str, directory: Path, **options: str) -> Any:
    """Start a query that writes ten rows from a file to `topic`."""
    source = directory / "source"
    if not source.exists():
        spark.range(10).selectExpr("string(id) as value").coalesce(1).write.parquet(str(source))
    frame = spark.readStream.schema("value string").parquet(str(source))
    writer = frame.writeStream.format("logbrook").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    writer = writer.option("topic", topic).option("delivery", "exactly-once").options(**options)
    return writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True).start()


def committed_batches(broker: Broker, group_id: str) -> list[int]:
    with Client(broker.bootstrap_servers) as client:
        return [committed.offset for committed in Coordinators(client).committed(group_id).values()]


def test_the_batch_is_recorded_under_the_query_id(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    broker.create_topic(topic, 1)
    query = finish(start_stream(spark, broker, topic, tmp_path))
    assert committed_batches(broker, f"{query.id}-0") == [0]
    assert read(spark, broker.bootstrap_servers, topic, "read_committed").count() == 10


def test_the_batch_is_recorded_under_the_app_id_and_a_replaced_checkpoint_needs_another(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    """The batches of a new checkpoint are counted from 0 again, and would be taken for those that are written."""
    broker.create_topic(topic, 1)
    finish(start_stream(spark, broker, topic, tmp_path, **{"app.id": topic}))
    assert committed_batches(broker, f"{topic}-0") == [0]
    (tmp_path / "checkpoint").rename(tmp_path / "lost")
    with pytest.raises(PySparkException, match=f"app.id '{topic}' is in use by query"):
        finish(start_stream(spark, broker, topic, tmp_path, **{"app.id": topic}))
    assert read(spark, broker.bootstrap_servers, topic, "read_committed").count() == 10


def test_a_batch_query_without_ids_is_refused(spark: SparkSession, broker: Broker, topic: str) -> None:
    broker.create_topic(topic, 1)
    writer = spark.range(1).selectExpr("string(id) as value").write.format("logbrook").mode("append")
    writer = writer.option("kafka.bootstrap.servers", broker.bootstrap_servers).option("topic", topic)
    with pytest.raises(PySparkException, match=r"option 'delivery': exactly-once needs app\.id and batch\.id"):
        writer.option("delivery", "exactly-once").save()
