"""`spark.readStream` on a real Spark: what arrives, how much at a time, and what happens when the log changes."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from logbrook import Broker
from logbrook.spark.errors import DataLossError, SparkError
from logbrook.spark.planner import DataLossWarning
from logbrook.spark.schema import spark_schema
from logbrook.spark.source import LogbrookDataSource
from tests.interop.waiting import wait_until

SOON_S = 20.0
Place = tuple[int, int]


class Stream:
    """A query that can be run again and again from one checkpoint; it keeps what each of its batches had."""

    def __init__(self, spark: SparkSession, broker: Broker, checkpoint: Path, **options: Any) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self.options = {
            "kafka__bootstrap__servers": broker.bootstrap_servers,
            "startingOffsets": "earliest",
            "columns": "partition,offset",
        } | options
        self.batches: list[list[Place]] = []
        self.latest: dict[str, Any] = {}

    @property
    def places(self) -> list[Place]:
        return sorted(place for batch in self.batches for place in batch)

    def run(self, **options: Any) -> list[list[Place]]:
        """Read what is available, and return what this run's batches had. Raises StreamingQueryException."""
        before = len(self.batches)
        query = self.start(availableNow=True, **options)
        query.awaitTermination()
        if query.lastProgress is not None:
            self.latest = json.loads(query.lastProgress.sources[0].latestOffset or "{}")
        return self.batches[before:]

    def start(self, *, availableNow: bool | None = None, **options: Any) -> Any:  # noqa: N803 - Spark's name
        reader = self._spark.readStream.format("logbrook")
        for name, value in (self.options | options).items():
            reader = reader.option(name.replace("__", "."), value)
        writer = reader.load().writeStream.foreachBatch(self._keep)
        writer = writer.option("checkpointLocation", str(self._checkpoint))
        if availableNow:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime="0 seconds").start()

    def _keep(self, frame: DataFrame, _: int) -> None:
        rows = [(row.partition, row.offset) for row in frame.collect()]
        if rows:
            self.batches.append(sorted(rows))


@pytest.fixture
def stream(spark: SparkSession, broker: Broker, topic: str, tmp_path: Path) -> Stream:
    """Reads a topic of two partitions, which has nothing yet."""
    broker.create_topic(topic, 2)
    return Stream(spark, broker, tmp_path / "checkpoint", subscribe=topic)


def produce(broker: Broker, topic: str, count: int, partition: int = 0, size: int = 10) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.num.messages": 1})
    for number in range(count):
        producer.produce(topic, b"%0*d" % (size, number), partition=partition)
    assert producer.flush(10) == 0


@cache
def admin_of(broker: Broker) -> AdminClient:
    """Kept, because with it go the answers that it has not yet got."""
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


def delete_before(broker: Broker, topic: str, offset: int) -> None:
    for deleted in admin_of(broker).delete_records([ConfluentPartition(topic, 0, offset)]).values():
        deleted.result(10)


def recreate(broker: Broker, topic: str, partitions: int) -> None:
    admin_of(broker).delete_topics([topic])[topic].result(10)
    broker.create_topic(topic, partitions)


def places(start: int, end: int, partition: int = 0) -> list[Place]:
    return [(partition, offset) for offset in range(start, end)]


def test_rows_are_what_another_client_reads(spark: SparkSession, broker: Broker, topic: str, tmp_path: Path) -> None:
    broker.create_topic(topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(30):
        headers: list[tuple[str, str | bytes | None]] | None = [("n", b"%d" % number)] if number % 2 else None
        producer.produce(topic, b"v%d" % number if number % 5 else None, b"k%d" % number, headers=headers)
    assert producer.flush(10) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "witness"})
    consumer.assign([ConfluentPartition(topic, 0, 0)])
    messages = [(one.key(), one.value(), one.offset(), one.headers()) for one in consumer.consume(30, 10)]
    consumer.close()
    reader = spark.readStream.format("logbrook").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    frame = reader.options(subscribe=topic, startingOffsets="earliest", includeHeaders=True).load()
    query = frame.writeStream.format("memory").queryName("rows").trigger(availableNow=True).start()
    query.awaitTermination()
    rows = [
        (
            bytes(row.key),
            None if row.value is None else bytes(row.value),
            row.offset,
            row.headers and [(one.key, bytes(one.value)) for one in row.headers],
        )
        for row in spark.table("rows").orderBy("offset").collect()
    ]
    assert len(rows) == 30
    assert rows == messages


def test_a_restart_adds_nothing_and_loses_nothing_and_new_partitions_are_picked_up(
    stream: Stream, broker: Broker, topic: str
) -> None:
    produce(broker, topic, 5)
    produce(broker, topic, 3, partition=1)
    assert stream.run() == [places(0, 5) + places(0, 3, 1)]
    assert stream.run() == []
    produce(broker, topic, 2)
    admin_of(broker).create_partitions([NewPartitions(topic, 3)])[topic].result(10)
    produce(broker, topic, 4, partition=2)
    # Where to start is for new queries only.
    assert stream.run(startingOffsets="latest") == [places(5, 7) + places(0, 4, 2)]
    assert {number: stream.latest[topic]["offsets"][number] for number in "012"} == {"0": 7, "1": 3, "2": 4}


def test_a_batch_takes_no_more_offsets_than_allowed(stream: Stream, broker: Broker, topic: str) -> None:
    produce(broker, topic, 12)
    produce(broker, topic, 4, partition=1)
    batches = stream.run(maxOffsetsPerTrigger=8)
    assert [len(batch) for batch in batches] == [8, 8]
    assert batches[0] == places(0, 6) + places(0, 2, 1)
    assert stream.places == places(0, 12) + places(0, 4, 1)


def test_a_batch_takes_about_as_many_bytes_as_allowed(stream: Stream, broker: Broker, topic: str) -> None:
    produce(broker, topic, 12, size=10_000)
    batches = stream.run(maxBytesPerTrigger=50_000)
    assert len(batches) in (3, 4)
    assert max(map(len, batches)) <= 5
    assert stream.places == places(0, 12)


def test_a_batch_waits_for_enough_offsets_or_long_enough(stream: Stream, broker: Broker, topic: str) -> None:
    query = stream.start(minOffsetsPerTrigger=5, maxTriggerDelay="1h")
    try:
        produce(broker, topic, 4)
        # A trigger asks for them at most twice, where the log starts and where it ends.
        asked = times_asked(broker)
        wait_until(lambda: times_asked(broker) >= asked + 6, "that the query has looked at the four records")
        assert stream.batches == []
        produce(broker, topic, 1)
        wait_until(lambda: stream.batches == [places(0, 5)], "the five records, at once")
    finally:
        query.stop()
    produce(broker, topic, 1)
    query = stream.start(minOffsetsPerTrigger=5, maxTriggerDelay="1ms")
    try:
        # Spark does a batch again that it was stopped in.
        wait_until(lambda: stream.places[-1] == (0, 5), "the sixth record, which has waited long enough")
    finally:
        query.stop()


def times_asked(broker: Broker) -> int:
    """How often the broker was asked for offsets."""
    requests = broker._running.services.probe.requests
    return sum(count for (api, _), count in list(requests.items()) if api == "ListOffsets")


def committed(broker: Broker, group_id: str) -> dict[tuple[str, int], int]:
    listed = admin_of(broker).list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id)])
    found = listed[group_id].result(10).topic_partitions
    return {(one.topic, one.partition): one.offset for one in found}


def test_progress_is_committed_as_a_group_for_all_to_see(stream: Stream, broker: Broker, topic: str) -> None:
    produce(broker, topic, 7)
    produce(broker, topic, 2, partition=1)
    query = stream.start(kafka__group__id="lag-watchers")
    try:
        # One more trigger after the batch, and it is exact.
        exact = {(topic, 0): 7, (topic, 1): 2}
        wait_until(lambda: committed(broker, "lag-watchers") == exact, "the commit of the last batch")
        assert stream.batches == [places(0, 7) + places(0, 2, 1)]
    finally:
        query.stop()
    assert "lag-watchers" in {one.group_id for one in admin_of(broker).list_consumer_groups().result(10).valid}


def test_a_topic_that_was_created_again_is_an_error_that_says_so(stream: Stream, broker: Broker, topic: str) -> None:
    produce(broker, topic, 3)
    stream.run(group__id="again")
    assert committed(broker, "again") == {(topic, 0): 3, (topic, 1): 0}, "AvailableNow ends with a look for more"
    recreate(broker, topic, 2)
    produce(broker, topic, 9)
    with pytest.raises(StreamingQueryException, match=f"topic '{topic}' was deleted and created again since the query"):
        stream.run(group__id="again")
    assert committed(broker, "again").get((topic, 0), -1) < 0, "that is where the old topic was"


def test_retention_that_overtakes_is_an_error_with_the_numbers_or_left_out(
    stream: Stream, broker: Broker, topic: str
) -> None:
    produce(broker, topic, 3)
    stream.run()
    produce(broker, topic, 7)
    delete_before(broker, topic, 8)
    message = f"offsets 3 to 7 of {topic}-0 are gone; the log now starts at 8; to go on .* set failOnDataLoss to false"
    with pytest.raises(StreamingQueryException, match=message):
        stream.run()
    assert stream.run(failOnDataLoss=False) == [places(8, 10)]
    assert stream.places == places(0, 3) + places(8, 10)


def test_what_is_wrong_is_said_in_a_sentence_and_soon(stream: Stream) -> None:
    before_s = monotonic()
    with pytest.raises(StreamingQueryException, match=r"the cluster at 127.0.0.1:1 cannot be asked: cannot connect to"):
        stream.run(kafka__bootstrap__servers="127.0.0.1:1")
    assert monotonic() - before_s < SOON_S


@contextmanager
def reader_of(broker: Broker, **options: str) -> Iterator[Any]:
    """What Spark runs on the driver, without Spark."""
    texts = {"kafka.bootstrap.servers": broker.bootstrap_servers} | options
    reader = LogbrookDataSource(texts).streamReader(spark_schema(["offset"]))
    try:
        yield reader
    finally:
        reader.stop()


def take(reader: Any, start: dict[str, Any]) -> dict[str, Any]:
    """How far the next batch goes, as Spark asks for it."""
    end: dict[str, Any] = json.loads(json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit())))
    return end


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"subscribe": "no-such-topic"}, "there is no topic 'no-such-topic' at 127.0.0.1:"),
        ({"subscribePattern": "no-such-.*"}, "there is no topic like 'no-such-.*' at 127.0.0.1:"),
        ({"subscribe": "t", "endingOffsets": "latest"}, "option 'endingOffsets': it is for batch queries"),
        ({"subscribe": "t", "startingOffset": "latest"}, "there is no such option; did you mean 'startingOffsets'?"),
    ],
)
def test_what_is_wrong_is_said_by_the_source_itself(broker: Broker, options: dict[str, str], sentence: str) -> None:
    with pytest.raises(SparkError) as error, reader_of(broker, **options) as reader:
        reader.initialOffset()
    assert sentence in str(error.value)


def test_a_topic_that_is_gone_is_an_error_and_others_go_on(broker: Broker, topic: str) -> None:
    other = f"{topic}-other"
    broker.create_topic(topic, 2)
    broker.create_topic(other)
    options = {"subscribe": f"{topic},{other}", "startingOffsets": "earliest"}
    with reader_of(broker, **options) as reader:
        start = reader.initialOffset()
    admin_of(broker).delete_topics([topic])[topic].result(10)
    produce(broker, other, 2)
    gone = f"partitions that were being read are gone: {topic}-0, {topic}-1"
    with reader_of(broker, **options) as strict, pytest.raises(DataLossError, match=gone):
        take(strict, start)
    with reader_of(broker, failOnDataLoss="false", **options) as lenient:
        lenient.prepareForTriggerAvailableNow()
        with pytest.warns(DataLossWarning, match=gone):
            end = take(lenient, start)
        with pytest.warns(DataLossWarning, match=gone):
            splits = lenient.partitions(start, end)
    assert [(split.range.partition.topic, split.range.end) for split in splits] == [(other, 2)]
    assert end[topic] == start[topic], "it may come back"


def test_a_batch_of_a_topic_that_was_created_again_is_not_read_from_the_new_one(broker: Broker, topic: str) -> None:
    """Spark has planned it, and stopped before it was read."""
    broker.create_topic(topic)
    produce(broker, topic, 9)
    with reader_of(broker, subscribe=topic, startingOffsets="earliest") as before:
        start = before.initialOffset()
        end = take(before, start)
    recreate(broker, topic, 1)
    produce(broker, topic, 2)
    renewed = f"topic '{topic}' was deleted and created again"
    with reader_of(broker, subscribe=topic, failOnDataLoss="false") as after:
        with pytest.warns(DataLossWarning, match=renewed):
            assert [split.range.size for split in after.partitions(start, end)] == [0]
        with pytest.warns(DataLossWarning, match=renewed):
            later = take(after, end)
        assert later[topic]["offsets"] == {"0": 2}
        with pytest.warns(DataLossWarning, match=renewed):
            assert [split.range[1:3] for split in after.partitions(end, later)] == [(0, 2)]
    with reader_of(broker, subscribe=topic) as strict, pytest.raises(DataLossError, match=renewed):
        strict.partitions(start, end)


def test_a_log_that_was_cut_is_an_error_with_the_numbers_or_read_on_from_its_end(broker: Broker, topic: str) -> None:
    broker.create_topic(topic)
    produce(broker, topic, 3)
    with reader_of(broker, subscribe=topic, startingOffsets="earliest") as strict:
        start = strict.initialOffset()
        start[topic]["offsets"]["0"] = 7
        with pytest.raises(DataLossError, match=f"{topic}-0 ends at offset 3, and was read up to 7; to go on"):
            take(strict, start)
    with reader_of(broker, subscribe=topic, failOnDataLoss="false") as lenient:
        with pytest.warns(DataLossWarning, match="ends at offset 3"):
            end = take(lenient, start)
        assert end[topic]["offsets"] == {"0": 3}
        assert [split.range.size for split in lenient.partitions(start, end)] == [0]


def test_a_checkpoint_of_another_source_is_an_error_that_says_so(broker: Broker, topic: str) -> None:
    broker.create_topic(topic)
    with reader_of(broker, subscribe=topic) as reader, pytest.raises(SparkError, match="this source did not write"):
        take(reader, {topic: {"0": 5}})
