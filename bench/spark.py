"""Spark: records per second out of a topic and into one, beside Spark's own Kafka connector where Maven can fetch it.

Both connectors read the same topics in the same session and take turns, so that whatever else the machine does slows
both. The first rounds are not counted, since a JVM warms up. Rates are those of the best round; how many times as fast
one is as the other is the median of the rounds.
"""

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from bench.broker_process import BrokerProcess, serving
from bench.rows import Row, seconds
from logbrook.client import Client, Producer
from logbrook.records.columns import encode
from logbrook.spark import session
from tests.interop.java.download_cache import MissingToolError
from tests.interop.java.jars import spark_connector_jars

_WARM_UP_ROUNDS = 2
_ROUNDS = 5
_PARTITIONS = 2
# (name, bytes of a value, records)
_TOPICS = (("small", 100, 2_000_000), ("large", 1_000, 400_000))
_WRITTEN = 1_000_000
_BATCH_ROWS = 20_000
_READ_RATIO_MIN = 2.0
_WRITE_RATIO_MIN = 1.0


def run() -> list[Row]:
    connectors = ["logbrook"]
    conf = {"spark.sql.shuffle.partitions": "2"}
    try:
        conf["spark.jars"] = ",".join(spark_connector_jars())
        connectors.append("kafka")
    except MissingToolError as error:
        print(f"without Spark's own Kafka connector: {error}")
    with serving("--durability", "interval") as broker:
        for name, value_bytes, count in _TOPICS:
            _fill(broker, name, value_bytes, count)
        spark = session("logbrook-bench", master=f"local[{_PARTITIONS}]", conf=conf)
        try:
            return [*_reading(spark, broker, connectors), *_writing(spark, broker, connectors)]
        finally:
            spark.stop()


def _fill(broker: BrokerProcess, topic: str, value_bytes: int, count: int) -> None:
    """Records with a key of 8 bytes and a random value, in batches such as a busy producer makes."""
    with Client(broker.address) as client:
        client.create_topic(topic, _PARTITIONS)
        with Producer(client) as producer:
            for number in range(count // _BATCH_ROWS):
                values = os.urandom(value_bytes * _BATCH_ROWS)
                records = pa.RecordBatch.from_arrays(
                    [_fixed(os.urandom(8 * _BATCH_ROWS), 8), _fixed(values, value_bytes)], ["key", "value"]
                )
                partition = number % _PARTITIONS
                for batch in encode(
                    records,
                    now_ms=round(time.time() * 1000),
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    base_sequence=producer.next_sequence(topic, partition),
                ):
                    producer.send(topic, partition, batch)


def _fixed(data: bytes, width: int) -> Any:
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(data) // width, [None, pa.py_buffer(data)]).cast(
        pa.binary()
    )


def _reading(spark: SparkSession, broker: BrokerProcess, connectors: list[str]) -> list[Row]:
    queries: dict[str, Callable[[DataFrame], object]] = {
        "count": lambda rows: rows.count(),
        "sum(length(value))": lambda rows: rows.selectExpr("sum(length(value))").first(),
    }
    rows = []
    for topic, value_bytes, count in _TOPICS:
        for query, act in queries.items():
            took_s = _in_turns({one: partial(_read, spark, broker, topic, one, act) for one in connectors})
            rows += _rates(f"read {value_bytes} B values into {query}", took_s, count, value_bytes, _READ_RATIO_MIN)
        into_table = _in_turns({"logbrook": partial(_read, spark, broker, topic, "logbrook", _to_table)})
        rows += _rates(f"read {value_bytes} B values into a Delta table", into_table, count, value_bytes)
    return rows


def _writing(spark: SparkSession, broker: BrokerProcess, connectors: list[str]) -> list[Row]:
    rows = spark.range(_WRITTEN).selectExpr("cast(id as string) as key", "repeat('x', 100) as value")
    took_s = _in_turns({one: partial(_write, rows, broker, one) for one in connectors})
    return _rates("write 100 B values", took_s, _WRITTEN, 100, _WRITE_RATIO_MIN)


def _read(
    spark: SparkSession, broker: BrokerProcess, topic: str, connector: str, act: Callable[[DataFrame], object]
) -> None:
    options = {"kafka.bootstrap.servers": broker.address, "subscribe": topic}
    act(spark.read.format(connector).options(**options).load())


def _write(rows: DataFrame, broker: BrokerProcess, connector: str) -> None:
    topic = f"written-{time.time_ns()}"
    with Client(broker.address) as client:
        client.create_topic(topic, _PARTITIONS)
    options = {"kafka.bootstrap.servers": broker.address, "topic": topic}
    rows.write.format(connector).mode("append").options(**options).save()


def _to_table(rows: DataFrame) -> None:
    directory = tempfile.mkdtemp(prefix="logbrook-bench-table-")
    try:
        rows.write.format("logbrook_table").mode("append").save(f"{directory}/table")
    finally:
        shutil.rmtree(directory)


def _in_turns(acts: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """How long each took in each round that counts."""
    took_s: dict[str, list[float]] = {one: [] for one in acts}
    for number in range(_WARM_UP_ROUNDS + _ROUNDS):
        for one, act in acts.items():
            act_s = seconds(act)
            if number >= _WARM_UP_ROUNDS:
                took_s[one].append(act_s)
    return took_s


def _rates(
    what: str, took_s: dict[str, list[float]], count: int, value_bytes: int, ratio_min: float | None = None
) -> list[Row]:
    best_s = min(took_s["logbrook"])
    rows = [
        Row(f"{what}, rows", count / best_s / 1e6, "M/s"),
        Row(f"{what}, values", count * value_bytes / best_s / 1e6, "MB/s"),
    ]
    if "kafka" in took_s:
        ratio = statistics.median(
            theirs / ours for ours, theirs in zip(took_s["logbrook"], took_s["kafka"], strict=True)
        )
        rows.append(Row(f"{what}, times Spark's Kafka connector", ratio, "times", ratio_min))
    return rows
