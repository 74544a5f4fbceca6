"""`spark.readStream` on a real Spark: restarts, progress and data loss.

test_read_records.py has its rows, test_stream_options.py its errors, and tests/unit the reader itself.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from logbrook import Broker
from tests.interop.waiting import wait_until
from tests.spark.limits import finish

Place = tuple[int, int]


class Stream:
    """A query that can be run repeatedly from one checkpoint, and the rows of each of its batches."""

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
        """Read all available records, and return the rows of this run's batches. Raises StreamingQueryException."""
        before = len(self.batches)
        query = self.start(availableNow=True, **options)
        finish(query)
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
    """A stream over an empty topic of two partitions."""
    broker.create_topic(topic, 2)
    return Stream(spark, broker, tmp_path / "checkpoint", subscribe=topic)


def produce(broker: Broker, topic: str, count: int, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.num.messages": 1})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=partition)
    assert producer.flush(10) == 0


@cache
def admin_of(broker: Broker) -> AdminClient:
    """Return an admin client that is kept alive: pending responses are lost with it."""
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


def delete_before(broker: Broker, topic: str, offset: int) -> None:
    for deleted in admin_of(broker).delete_records([ConfluentPartition(topic, 0, offset)]).values():
        deleted.result(10)


def recreate(broker: Broker, topic: str, partitions: int) -> None:
    admin_of(broker).delete_topics([topic])[topic].result(10)
    broker.create_topic(topic, partitions)


def places(start: int, end: int, partition: int = 0) -> list[Place]:
    return [(partition, offset) for offset in range(start, end)]


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
    # The starting offsets apply to new queries only.
    assert stream.run(startingOffsets="latest") == [places(5, 7) + places(0, 4, 2)]
    assert {number: stream.latest[topic]["offsets"][number] for number in "012"} == {"0": 7, "1": 3, "2": 4}


def test_a_batch_waits_for_enough_offsets_or_long_enough(stream: Stream, broker: Broker, topic: str) -> None:
    query = stream.start(minOffsetsPerTrigger=5, maxTriggerDelay="1h")
    try:
        produce(broker, topic, 4)
        # A trigger requests offsets at most twice: of the log start and of the log end.
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
        # Spark repeats the batch in which it was stopped.
        wait_until(lambda: stream.places[-1] == (0, 5), "the sixth record, which has waited long enough")
    finally:
        query.stop()


def times_asked(broker: Broker) -> int:
    """Return the number of offset requests to the broker."""
    requests = broker._running.services.probe.requests
    return sum(count for (api, _), count in list(requests.items()) if api == "ListOffsets")


def committed(broker: Broker, group_id: str) -> dict[tuple[str, int], int]:
    listed = admin_of(broker).list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id)])
    offsets = listed[group_id].result(10).topic_partitions
    return {(partition.topic, partition.partition): partition.offset for partition in offsets}


def test_progress_is_committed_as_a_consumer_group(stream: Stream, broker: Broker, topic: str) -> None:
    produce(broker, topic, 7)
    produce(broker, topic, 2, partition=1)
    query = stream.start(group__id="lag-watchers", kafka__group__id="nothing-is-committed-here")
    try:
        # After one more trigger the number is exact.
        exact = {(topic, 0): 7, (topic, 1): 2}
        wait_until(lambda: committed(broker, "lag-watchers") == exact, "the commit of the last batch")
        assert stream.batches == [places(0, 7) + places(0, 2, 1)]
    finally:
        query.stop()
    groups = {group.group_id for group in admin_of(broker).list_consumer_groups().result(10).valid}
    assert "lag-watchers" in groups
    assert "nothing-is-committed-here" not in groups


def test_a_recreated_topic_is_an_error_with_the_reason(stream: Stream, broker: Broker, topic: str) -> None:
    produce(broker, topic, 3)
    stream.run(group__id="again")
    assert committed(broker, "again") == {(topic, 0): 3, (topic, 1): 0}, "AvailableNow ends with a look for more"
    recreate(broker, topic, 2)
    produce(broker, topic, 9)
    with pytest.raises(StreamingQueryException, match=f"topic '{topic}' was deleted and created again since the query"):
        stream.run(group__id="again")
    assert committed(broker, "again").get((topic, 0), -1) < 0, "that is where the old topic was"


def test_records_deleted_before_they_are_read_are_an_error_with_the_offsets_or_skipped(
    stream: Stream, broker: Broker, topic: str
) -> None:
    produce(broker, topic, 3)
    stream.run()
    produce(broker, topic, 7)
    delete_before(broker, topic, 8)
    message = (
        f"offsets 3 to 7 of {topic}-0 are gone; the log now starts at 8; to continue .* set failOnDataLoss to false"
    )
    with pytest.raises(StreamingQueryException, match=message):
        stream.run()
    assert stream.run(failOnDataLoss=False) == [places(8, 10)]
    assert stream.places == places(0, 3) + places(8, 10)
