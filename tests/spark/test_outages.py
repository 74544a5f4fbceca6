"""A broker that is killed and restarted on its port while queries run: they continue, and deliver exactly once."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from logbrook.client import Client
from logbrook.spark.application_files import driver_directory
from logbrook.spark.pipeline.outage_watch import OutageWatch
from logbrook.spark.tables.commits import load_existing
from logbrook.spark.tables.format import TableOptions, open_format
from logbrook.spark.tables.union import history
from logbrook.testing.copy.topics import read_topic
from logbrook.testing.kill.broker_process import BrokerProcess
from logbrook.testing.processes import free_port, pause, working_directory
from tests.interop.waiting import wait_until
from tests.spark.limits import QUERY_S_MAX

INPUT, OUTPUT = "input", "output"
PARTITIONS = 2
# Records are written in three parts of this number.
PART = 80
WINDOW_S = 10
WINDOWS = 3 * PART // WINDOW_S
OFFSETS_PER_BATCH = 80
# Much later than the other records, so that it closes their windows.
LAST = 1_000_000
READY_S_MAX = 60.0
OUTAGE_S = 3.0


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    with working_directory("outage") as (directory, reaper):
        broker = BrokerProcess(f"{directory}/data", free_port(), f"{directory}/log", ["--metrics", ""], reaper)
        broker.start()
        broker.wait_until_ready(READY_S_MAX)
        yield broker
        broker.kill()


def kill_and_restart(broker: BrokerProcess, outage_s: float = 0.0) -> None:
    broker.kill()
    if outage_s:
        wait_until(lambda: is_displayed(broker.address), "a message of the outage", READY_S_MAX)
        pause(outage_s)
    broker.start()
    broker.wait_until_ready(READY_S_MAX)


def is_displayed(address: str) -> bool:
    messages = OutageWatch(driver_directory()).update([])
    return any(message.startswith(f"waiting for {address}: cannot connect") for message in messages)


def produce(address: str, seconds: Iterable[int]) -> None:
    """Write seconds as values, alternating between both partitions."""
    producer = Producer({"bootstrap.servers": address})
    for number in seconds:
        producer.produce(INPUT, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def read_input(spark: SparkSession, address: str) -> DataFrame:
    reader = spark.readStream.format("logbrook").option("kafka.bootstrap.servers", address).option("subscribe", INPUT)
    return reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", OFFSETS_PER_BATCH).load()


def start_copy(spark: SparkSession, address: str, directory: Path) -> StreamingQuery:
    """Start a query that copies the input to a topic, exactly once."""
    options = {"kafka.bootstrap.servers": address, "topic": OUTPUT, "delivery": "exactly-once"}
    writer = read_input(spark, address).select("value", "partition").writeStream.format("logbrook").options(**options)
    return writer.option("checkpointLocation", str(directory / "copy")).trigger(processingTime="0 seconds").start()


def start_windows(spark: SparkSession, address: str, directory: Path) -> StreamingQuery:
    """Start a query that counts the input in windows, into a table."""
    rows = read_input(spark, address).selectExpr("timestamp_seconds(bigint(string(value))) as at")
    windows = rows.withWatermark("at", "30 seconds").groupBy(f.window("at", f"{WINDOW_S} seconds")).count()
    writer = windows.selectExpr("bigint(window.start) as since", "count").writeStream.format("logbrook_table")
    writer = writer.option("checkpointLocation", str(directory / "windows")).trigger(processingTime="0 seconds")
    return writer.start(str(directory / "table"))


def records_read(query: StreamingQuery) -> int:
    """Return the number of records up to the end of the last batch. Checks that the query has not failed."""
    assert query.exception() is None
    progress = query.lastProgress
    offsets = json.loads((progress and progress.sources[0].endOffset) or "{}")
    return sum(offsets[INPUT]["offsets"].values()) if offsets else 0


def rows_in(table: Path) -> int:
    version = load_existing(open_format(TableOptions.parse({"path": str(table)})))
    return sum(file.rows for file in version.data_files())


def test_queries_into_a_topic_and_a_table_continue_after_the_broker_was_killed(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    with Client(broker.address) as client:
        for topic in (INPUT, OUTPUT):
            client.create_topic(topic, PARTITIONS)
    produce(broker.address, range(PART))
    queries = [start_copy(spark, broker.address, tmp_path), start_windows(spark, broker.address, tmp_path)]
    try:
        wait_until(lambda: all(map(records_read, queries)), "the first batch of each", QUERY_S_MAX)
        # The queries have found the records, or will find them while the broker is down.
        produce(broker.address, range(PART, 2 * PART))
        kill_and_restart(broker, OUTAGE_S)
        produce(broker.address, range(2 * PART, 3 * PART))
        kill_and_restart(broker)
        produce(broker.address, [LAST])
        total = 3 * PART + 1
        wait_until(lambda: all(records_read(query) == total for query in queries), "all records", QUERY_S_MAX)
        # A batch without records, once the last one has closed their windows.
        wait_until(lambda: rows_in(tmp_path / "table") == WINDOWS, f"{WINDOWS} windows", QUERY_S_MAX)
        assert [query.exception() for query in queries] == [None, None]
    finally:
        for query in queries:
            query.stop()
    numbers = [*range(3 * PART), LAST]
    copies = read_topic(broker.address, OUTPUT, PARTITIONS, "read_committed", QUERY_S_MAX)
    assert {partition: [int(value) for _, value in records] for partition, records in copies.items()} == {
        partition: [number for number in numbers if number % PARTITIONS == partition] for partition in range(PARTITIONS)
    }
    windows = history(spark, str(tmp_path / "table")).orderBy("since").collect()
    assert [tuple(row) for row in windows] == [(since, WINDOW_S) for since in range(0, 3 * PART, WINDOW_S)]
