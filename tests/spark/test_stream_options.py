"""The options of a stream on a real Spark, several in each query."""

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
from pyspark.sql.functions import spark_partition_id
from pyspark.sql.streaming.query import StreamingQuery

from logbrook import Broker
from logbrook.spark.sentences import sentence_of

TOPIC = "stream-options"
PARTITIONS = 3
OLD = 20
START_MS = 1_700_000_000_000
LATE_MS = 2**50


@pytest.fixture(scope="module")
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
    """What the batches of one query had: the rows, and the task that read each."""

    def __init__(self) -> None:
        self.batches: list[list[Row]] = []
        self.columns: list[str] = []

    def keep(self, frame: DataFrame, _: int) -> None:
        self.columns = frame.columns
        rows = frame.withColumn("task", spark_partition_id()).collect()
        # The first batch of a query comes even if there is nothing to read.
        if rows:
            self.batches.append(rows)

    @property
    def rows(self) -> list[Row]:
        return sorted((row for batch in self.batches for row in batch), key=lambda row: (row.partition, row.offset))

    @property
    def places(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for row in self.rows:
            found.setdefault(row.partition, []).append(row.offset)
        return found


class Case(NamedTuple):
    """What a query is told, from which offset on it then reads each partition, and in how many batches and tasks."""

    options: Mapping[str, Any]
    starts: Mapping[int, int]
    batches: int | None = 1
    tasks: int | None = None


def by_partition(*values: int) -> str:
    return json.dumps({TOPIC: {str(number): value for number, value in enumerate(values)}})


CASES = {
    "nothing": Case({}, {}, batches=0),
    "offsets": Case(
        {"startingOffsets": by_partition(5, -2, -1), "columns": "Offset, partition", "minPartitions": 7},
        {0: 5, 1: 0},
        tasks=7,
    ),
    "a time before times before offsets": Case(
        {
            "startingTimestamp": START_MS + 16_500,
            "startingOffsetsByTimestamp": by_partition(0, 0, 0),
            "startingOffsets": "latest",
            "maxRecordsPerPartition": 2,
        },
        {0: 17, 1: 17, 2: 17},
        tasks=6,
    ),
    "times before offsets": Case(
        {
            "startingOffsetsByTimestamp": by_partition(START_MS + 19_000, START_MS + 8_001, LATE_MS),
            "startingOffsetsByTimestampStrategy": "latest",
            "startingOffsets": "earliest",
        },
        {0: 19, 1: 9},
    ),
    "from now": Case(
        {"startingOffsets": "-10 minutes", "startingOffsetsByTimestampStrategy": "latest"}, {0: OLD, 1: OLD}
    ),
    "a time from now": Case(
        {"startingTimestamp": "-1h", "assign": json.dumps({TOPIC: [1, 0]}), "subscribe": ""}, {0: OLD, 1: OLD}
    ),
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
    "bytes per batch": Case({"startingOffsets": "earliest", "maxBytesPerTrigger": 4000}, {0: 0, 1: 0, 2: 0}, None),
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
def test_each_option_does_what_it_says(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    kept = {name: Kept() for name in CASES}
    for name, case in CASES.items():
        found = kept[name]
        start(spark, broker, case.options, found, tmp_path / name).awaitTermination()
        expected = {partition: list(range(first, ENDS[partition])) for partition, first in case.starts.items()}
        assert found.places == expected, name
        assert case.batches in (None, len(found.batches)), name
        if case.tasks is not None:
            assert len({row.task for row in found.rows}) == case.tasks, name
    assert kept["offsets"].columns == ["offset", "partition"]
    assert 2 <= len(kept["bytes per batch"].batches) <= 6
    sizes = [len(batch) for batch in kept["offsets per batch"].batches]
    assert max(sizes) <= 31
    for row in kept["json"].rows:
        # What does not fit is null, and the rest of the row is there.
        value = None if row.offset == OLD - 1 else {"id": row.offset, "more": [row.partition]}
        assert (row.value and row.value.asDict()) == value
        headers = [("n", b"%d" % row.offset)] if row.offset % 2 else None
        assert (row.headers and [(one.key, bytes(one.value)) for one in row.headers]) == headers


WRONG: list[tuple[Mapping[str, Any], str]] = [
    ({"subscribe": "no-such-topic"}, "there is no topic 'no-such-topic' at 127.0.0.1:"),
    ({"subscribe": "", "subscribePattern": "no-such-.*"}, "there is no topic like 'no-such-.*' at 127.0.0.1:"),
    ({"endingOffsets": "latest"}, "option 'endingOffsets': it is for batch queries"),
    ({"startingOffset": "latest"}, "there is no such option; did you mean 'startingOffsets'?"),
    ({"startingTimestamp": LATE_MS}, f"there is no record at or after that time in {TOPIC}-0, {TOPIC}-1, {TOPIC}-2"),
    ({"startingOffsets": by_partition(1)}, f"name every partition that is read and no other; see {TOPIC}-1, {TOPIC}-2"),
    ({"minOffsetsPerTrigger": 9, "maxOffsetsPerTrigger": 8}, "9 is more than maxOffsetsPerTrigger, 8"),
    ({"minPartitions": "0"}, "option 'minPartitions': it must be at least 1, not 0"),
    ({"columns": "key,colour"}, "option 'columns': it must name different ones of key, value, topic"),
    ({"value.format": "json"}, "option 'value.schema': it is required where 'value.format' is json"),
    ({"enable.auto.commit": "true"}, "option 'enable.auto.commit': it cannot be set here; say with group.id"),
]


@pytest.mark.usefixtures("readings")
def test_what_is_wrong_with_an_option_is_said_in_a_sentence(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    for number, (options, sentence) in enumerate(WRONG):
        with pytest.raises(PySparkException) as failed:
            start(spark, broker, options, Kept(), tmp_path / str(number)).awaitTermination()
        # Spark knows names of options in small letters only.
        assert sentence.lower() in sentence_of(failed.value).lower()


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
        query.awaitTermination(60)
    assert sentence_of(failed.value).startswith(
        f"topic '{topic}' was deleted and created again since the query read it"
    )
    assert values == [b"of the old topic"]


def _create_again(broker: Broker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics([topic])[topic].result(10)
    broker.create_topic(topic)
