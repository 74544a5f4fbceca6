"""Options of a stream that Spark itself has a part in; tests/unit/spark/test_stream_reader.py tests the others."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from logbrook import Broker
from logbrook.spark.errors import summarize_error
from tests.spark.limits import finish

TOPIC = "stream-options"
PARTITIONS = 3
OLD = 20
START_MS = 1_700_000_000_000
LATE_MS = 2**50


@pytest.fixture(scope="session")
def readings(broker: Broker) -> None:
    """Old records in all partitions, a second apart, and a record of the last minute in the first two."""
    broker.create_topic(TOPIC, PARTITIONS, {"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.num.messages": 1})
    recent_ms = round(time.time() * 1000) - 60_000
    for partition in range(PARTITIONS):
        times = [START_MS + 1000 * number for number in range(OLD)] + [recent_ms] * (partition < PARTITIONS - 1)
        for number, time_ms in enumerate(times):
            headers: list[tuple[str, str | bytes | None]] | None = [("n", b"%d" % number)] if number % 2 else None
            value = b"no json" if number == OLD - 1 else json.dumps({"id": number, "more": [partition]}).encode()
            producer.produce(TOPIC, value, partition=partition, timestamp=time_ms, headers=headers)
    assert producer.flush(10) == 0


class Kept:
    """The rows of each batch of one query."""

    def __init__(self) -> None:
        self.batches: list[list[Row]] = []

    def keep(self, frame: DataFrame, _: int) -> None:
        rows = frame.collect()
        # The first batch of a query comes even if there is nothing to read.
        if rows:
            self.batches.append(rows)

    @property
    def rows(self) -> list[Row]:
        return sorted((row for batch in self.batches for row in batch), key=lambda row: (row.partition, row.offset))

    @property
    def places(self) -> dict[int, list[int]]:
        offsets: dict[int, list[int]] = {}
        for row in self.rows:
            offsets.setdefault(row.partition, []).append(row.offset)
        return offsets


class Case(NamedTuple):
    """Options of a query, the first offset of each partition that it reads, and its number of batches."""

    options: Mapping[str, Any]
    starts: Mapping[int, int]
    batches: int = 1


CASES = {
    "offsets per batch": Case(
        {
            "subscribe": "",
            "subscribePattern": "stream-opt.*",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": 31,
            "minOffsetsPerTrigger": 31,
            "maxTriggerDelay": "1h",
        },
        {0: 0, 1: 0, 2: 0},
        batches=3,
    ),
    "json": Case(
        {
            "startingOffsets": "earliest",
            "value.format": "json",
            "value.schema": "id INT, more ARRAY<INT>",
            "includeHeaders": "true",
            "isolation.level": "read_committed",
            "kafka.client.id": "a-stream",
            "kafka.request.timeout.ms": 20_000,
            "fetchOffset.numRetries": 2,
            "fetchOffset.retryIntervalMs": 50,
            "failOnDataLoss": "false",
            "groupIdPrefix": "has-no-meaning-here",
        },
        {0: 0, 1: 0, 2: 0},
    ),
}
ENDS = {0: OLD + 1, 1: OLD + 1, 2: OLD}


def start(spark: SparkSession, broker: Broker, options: Mapping[str, Any], kept: Kept, place: Path) -> StreamingQuery:
    """A query that reads what there is, and ends."""
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": TOPIC, **options}
    frame = spark.readStream.format("logbrook").options(**given).load()
    writer = frame.writeStream.foreachBatch(kept.keep).option("checkpointLocation", str(place))
    return writer.trigger(availableNow=True).start()


@pytest.mark.usefixtures("readings")
def test_every_stream_option_has_its_documented_effect(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    kept = {name: Kept() for name in CASES}
    for name, case in CASES.items():
        sink = kept[name]
        finish(start(spark, broker, case.options, sink, tmp_path / name))
        expected = {partition: list(range(first, ENDS[partition])) for partition, first in case.starts.items()}
        assert sink.places == expected, name
        assert len(sink.batches) == case.batches, name
    sizes = [len(batch) for batch in kept["offsets per batch"].batches]
    assert max(sizes) <= 31
    for row in kept["json"].rows:
        # Fields that do not fit are null, and the rest of the row is kept.
        value = None if row.offset == OLD - 1 else {"id": row.offset, "more": [row.partition]}
        assert (row.value and row.value.asDict()) == value
        headers = [("n", b"%d" % row.offset)] if row.offset % 2 else None
        assert (row.headers and [(header.key, bytes(header.value)) for header in row.headers]) == headers


@pytest.mark.usefixtures("readings")
def test_an_invalid_option_is_an_error_in_one_sentence(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """One error of the option parser and one of the planner; tests/unit/spark/test_stream_reader.py has all others."""
    for options, sentence in (
        ({"startingOffset": "latest"}, "there is no such option; did you mean 'startingOffsets'?"),
        ({"startingTimestamp": LATE_MS}, f"no record at or after that time in {TOPIC}-0, {TOPIC}-1, {TOPIC}-2"),
    ):
        with pytest.raises(PySparkException) as failed:
            finish(start(spark, broker, options, Kept(), tmp_path / sentence[:5]))
        # Spark passes option names in lower case.
        assert sentence.lower() in summarize_error(failed.value).lower()


def test_a_topic_that_is_created_again_between_two_batches_is_an_error_that_names_it(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    broker.create_topic(topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    values: list[bytes] = []

    def keep_and_create_again(frame: DataFrame, _: int) -> None:
        values.extend(bytes(row.value) for row in frame.collect())
        _create_again(broker, topic)
        producer.produce(topic, b"of the new topic")
        producer.produce(topic, b"of the new topic")
        assert producer.flush(10) == 0

    producer.produce(topic, b"of the old topic")
    assert producer.flush(10) == 0
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"}
    frame = spark.readStream.format("logbrook").options(**options).load()
    writer = frame.writeStream.foreachBatch(keep_and_create_again).option("checkpointLocation", str(tmp_path))
    query = writer.trigger(processingTime="0 seconds").start()
    with pytest.raises(PySparkException) as failed:
        finish(query)
    assert summarize_error(failed.value).startswith(
        f"topic '{topic}' was deleted and created again since the query read it"
    )
    assert values == [b"of the old topic"]


def _create_again(broker: Broker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics([topic])[topic].result(10)
    broker.create_topic(topic)
