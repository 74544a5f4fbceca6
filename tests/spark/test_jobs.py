"""The bulk jobs: archive, replay and audit."""

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from logbrook import Broker
from logbrook.spark.errors import DataLossError
from logbrook.spark.jobs.archive import archive
from logbrook.spark.jobs.audit import PartitionAudit, audit, audit_report
from logbrook.spark.jobs.replay import ReplayColumnError, replay
from logbrook.spark.tables.union import history


def produce(broker: Broker, topic: str, numbers: range, *, step_ms: int = 1, partitions: int = 2) -> None:
    """Record n has the key n % 10, a value but for every seventh, and a header when n is odd."""
    began_ms = round(time.time() * 1000) - 100_000
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in numbers:
        producer.produce(
            topic,
            None if number % 7 == 0 else f"value {number}".encode(),
            key=str(number % 10).encode(),
            partition=number % partitions,
            timestamp=began_ms + number * step_ms,
            headers=[("odd", b"1")] if number % 2 else None,
        )
    assert producer.flush(30) == 0


def consume(broker: Broker, topic: str, count: int, partitions: int = 2) -> list[Any]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "t", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    consumed: list[Any] = []
    while len(consumed) < count:
        messages = consumer.consume(count - len(consumed), timeout=20)
        assert messages, f"{len(consumed)} of {count} came"
        consumed += messages
    assert consumer.consume(1, timeout=0.2) == []
    consumer.close()
    return consumed


def reading(broker: Broker, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, "includeHeaders": "true"}


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    chosen = frame.select("topic", "partition", "offset", "key", "value", "timestamp", "headers")
    return sorted(map(tuple, chosen.collect()), key=lambda row: row[:3])


# Archive


def test_an_archive_appends_new_records_is_replayed_and_reports_lost_records(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    target = f"{topic}-again"
    broker.create_topic(topic, 2)
    broker.create_topic(target, 2)
    table = str(tmp_path / "table")
    for numbers in (range(100), range(100, 130)):
        produce(broker, topic, numbers)
        assert archive(spark, reading(broker, topic), table).offsets == len(numbers)
    there = spark.read.format("logbrook").options(**reading(broker, topic)).load()
    assert rows_of(history(spark, table)) == rows_of(there)
    assert archive(spark, reading(broker, topic), table).ranges == ()
    assert history(spark, table).count() == 130

    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": target}
    assert replay(history(spark, table), options) == 130
    values = Counter(message.value() for message in consume(broker, target, 130))
    assert values == Counter(message.value() for message in consume(broker, topic, 130))

    produce(broker, topic, range(20))
    delete_before(broker, topic, 70)
    with pytest.raises(DataLossError, match=r"lost offsets 65 to 69"):
        archive(spark, reading(broker, topic), table)


def delete_before(broker: Broker, topic: str, offset: int) -> None:
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415

    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result(20)


# Replay


def test_a_replay_of_a_topic_has_the_same_records(spark: SparkSession, broker: Broker, topic: str) -> None:
    target = f"{topic}-again"
    broker.create_topic(topic, 2)
    broker.create_topic(target, 2)
    produce(broker, topic, range(100))
    rows = spark.read.format("logbrook").options(**reading(broker, topic)).load()
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": target}
    assert replay(rows, options, keep_partitions=True, keep_timestamps=True) == 100
    first, second = (
        Counter(
            (m.partition(), m.key(), m.value(), m.timestamp()[1], str(m.headers())) for m in consume(broker, t, 100)
        )
        for t in (topic, target)
    )
    assert first == second


def test_a_paced_replay_keeps_the_order_of_time_and_takes_its_time(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    target = f"{topic}-again"
    broker.create_topic(topic, 1)
    broker.create_topic(target, 1)
    produce(broker, topic, range(40), step_ms=100, partitions=1)
    rows = spark.read.format("logbrook").options(**reading(broker, topic)).load()
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": target}
    assert replay(rows, options, pace=4) == 40
    replayed = consume(broker, target, 40, partitions=1)
    assert [message.key() for message in replayed] == [str(number % 10).encode() for number in range(40)]
    # 39 steps of 100 ms at four times the speed are 975 ms, less what the first send takes to connect.
    spread_ms = replayed[-1].timestamp()[1] - replayed[0].timestamp()[1]
    assert spread_ms >= 300


def test_rows_that_are_no_records_are_not_replayed(spark: SparkSession) -> None:
    with pytest.raises(ReplayColumnError, match="'value'"):
        replay(spark.range(3), {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"})


# Audit


def audited(spark: SparkSession, broker: Broker, topic: str, **options: bool) -> list[PartitionAudit]:
    return audit(spark, {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}, **options)


def test_an_audit_counts_records(spark: SparkSession, broker: Broker, topic: str) -> None:
    broker.create_topic(topic, 3)
    produce(broker, topic, range(200))
    first, second, empty = audited(spark, broker, topic)
    assert [audit.counts.records for audit in (first, second, empty)] == [100, 100, 0]
    assert [audit.counts.tombstones for audit in (first, second)] == [15, 14]
    assert [audit.counts.missing_offsets for audit in (first, second, empty)] == [0, 0, 0]
    assert [audit.duplicates for audit in (first, second, empty)] == [0, 0, 0]
    assert first.keys is not None
    assert (first.keys.distinct, first.keys.largest_share) == (5, 0.2)
    assert all(audit.is_sound for audit in (first, second, empty))
    assert [row["partition"] for row in audit_report([first, second, empty])] == [0, 1, 2]
    # A quick audit leaves out what takes long.
    for quick in audited(spark, broker, topic, quick=True)[:2]:
        assert (quick.counts.records, quick.duplicates, quick.keys) == (100, None, None)


def test_an_audit_finds_duplicates_and_gaps(spark: SparkSession, broker: Broker, topic: str) -> None:
    broker.create_topic(topic, 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.bytes": "1"})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
    now_ms = round(time.time() * 1000)
    for key, value in (("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("d", "x")):
        producer.produce(topic, value, key=key, timestamp=now_ms)
        assert producer.flush(30) == 0
    broker.run_maintenance()
    for _ in range(3):
        producer.produce(topic, "same", key="same", timestamp=now_ms)
    assert producer.flush(30) == 0
    (audit,) = audited(spark, broker, topic)
    assert (audit.counts.records, audit.counts.missing_offsets) == (7, 1)
    assert audit.duplicates == 2
