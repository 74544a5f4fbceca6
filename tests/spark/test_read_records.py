"""Every kind of record that a log can hold, read by a batch query and by a stream, against what librdkafka reads."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from logbrook import Broker
from logbrook.spark.errors import summarize_error
from tests.spark.limits import finish

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "1024", "min.cleanable.dirty.ratio": "0.01"}
NOW_MS = 1_700_000_000_000
Record = tuple[str, int, int, bytes | None, bytes | None, int, Any]


def produce_everything(broker: Broker, topic: str, compacted: str) -> int:
    """Fill a partition for each codec with tombstones, missing keys and headers; and one with offset gaps."""
    broker.create_topic(topic, len(CODECS), {"retention.ms": "-1"})
    broker.create_topic(compacted, 1, COMPACTED)
    for partition, codec in enumerate(CODECS):
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": codec, "linger.ms": 50})
        for number in range(100):
            producer.produce(
                topic,
                value=None if number % 10 == 3 else (b"%d " % number) * number,
                key=None if number % 7 == 0 else b"k%d" % (number % 5),
                partition=partition,
                timestamp=NOW_MS + number,
                headers=[("n", b"%d" % number), ("n", None), ("é", b"")] if number % 4 == 0 else None,
            )
        assert producer.flush(10) == 0
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.num.messages": 1})
    for number in range(120):
        value = None if number == 60 else b"x" * 60
        producer.produce(compacted, value, b"k%d" % (number % 3) if number % 20 else b"only-%d" % number)
    assert producer.flush(10) == 0
    assert broker.run_maintenance().logs_compacted >= 1
    return len(CODECS) * 100


def consume(broker: Broker, partitions: list[TopicPartition]) -> Iterator[Record]:
    """Return the records that librdkafka reads from each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "witness",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.assign(partitions)
        ends = 0
        while ends < len(partitions):
            message = consumer.poll(10)
            assert message is not None
            if message.error() is not None:
                ends += 1
                continue
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None
            assert partition is not None
            assert offset is not None
            yield topic, partition, offset, message.key(), message.value(), message.timestamp()[1], message.headers()
    finally:
        consumer.close()


def as_record(row: Row) -> Record:
    key, value = (None if data is None else bytes(data) for data in (row.key, row.value))
    headers = row.headers and [
        (header.key, None if header.value is None else bytes(header.value)) for header in row.headers
    ]
    return row.topic, row.partition, row.offset, key, value, row.time_ms, headers


def in_order(records: Any) -> list[Record]:
    return sorted(records, key=lambda record: record[:3])


def test_batch_and_stream_give_what_another_client_reads(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    compacted = f"{topic}-compacted"
    count = produce_everything(broker, topic, compacted)
    partitions = [TopicPartition(topic, number, 0) for number in range(len(CODECS))]
    expected = in_order(consume(broker, [*partitions, TopicPartition(compacted, 0, 0)]))
    left = [record for record in expected if record[0] == compacted]
    assert len(expected) - len(left) == count
    assert 0 < len(left) < 60, "it was not compacted"
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": f"{topic},{compacted}",
        "includeHeaders": "true",
    }

    def shaped(frame: DataFrame) -> DataFrame:
        return frame.selectExpr("*", "unix_millis(timestamp) as time_ms")

    # Finer than partitions, so that ranges begin and end within batches and within gaps.
    rows = spark.read.format("logbrook").options(**options, minPartitions="17").load()
    assert in_order(map(as_record, shaped(rows).collect())) == expected
    streamed: list[Record] = []
    stream = spark.readStream.format("logbrook").options(**options, startingOffsets="earliest").load()
    writer = shaped(stream).writeStream.foreachBatch(lambda frame, _: streamed.extend(map(as_record, frame.collect())))
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    finish(query)
    assert in_order(streamed) == expected


def test_corrupt_bytes_are_an_error_with_their_offset(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    broker.create_topic(topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.num.messages": 1})
    for number in range(10):
        producer.produce(topic, b"value %d" % number)
        assert producer.flush(10) == 0
    damage(broker, topic, b"value 6", b"value 7")
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
    frame = spark.read.format("logbrook").options(**options).load()
    where = f"{topic}-0 has a batch at or after offset "
    with pytest.raises(PySparkException) as error:
        frame.collect()
    assert summarize_error(error.value).startswith(where)
    assert "CRC32C" in summarize_error(error.value)
    stream = spark.readStream.format("logbrook").options(**options, startingOffsets=json.dumps({topic: {"0": 2}}))
    writer = stream.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    with pytest.raises(PySparkException) as error:
        finish(writer.trigger(availableNow=True).start())
    assert summarize_error(error.value).startswith(where)
    # The records before and after it can be read.
    for start, end in ((0, 6), (7, 10)):
        ends = {
            name: json.dumps({topic: {"0": at}}) for name, at in (("startingOffsets", start), ("endingOffsets", end))
        }
        whole = spark.read.format("logbrook").options(**options, **ends).load()
        assert sorted(row.offset for row in whole.collect()) == list(range(start, end))


def damage(broker: Broker, topic: str, old: bytes, new: bytes) -> None:
    """Change the bytes in the log of the topic's only partition, in place."""
    changed = 0
    for path in Path(broker.data).rglob("*.log"):
        if topic not in str(path):
            continue
        at = path.read_bytes().find(old)
        if at >= 0:
            with path.open("r+b") as file:
                file.seek(at)
                file.write(new)
            changed += 1
    assert changed == 1
