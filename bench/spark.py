"""Records per second that Spark reads and writes, compared with Spark's own Kafka connector if Maven can fetch it.

Both connectors use the same topics in the same session and take turns, so that other load affects both. The first
rounds warm up the JVM and do not count. Rates are those of the best round; ratios are the median of the rounds. CPU
time is that of this process, the JVM, all Python processes that Spark started, and the broker.
"""

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from bench.broker_process import BrokerProcess, serving
from bench.process_tree import tree_cpu_s
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
_CPU_RATIO_MAX = 0.7


class Spent(NamedTuple):
    """Wall time and CPU time of one action."""

    wall_s: float
    cpu_s: float


def run() -> list[Row]:
    connectors = ["logbrook"]
    conf = {"spark.sql.shuffle.partitions": "2"}
    try:
        conf["spark.jars"] = ",".join(spark_connector_jars())
        connectors.append("kafka")
    except MissingToolError as error:
        print(f"skipping Spark's own Kafka connector: {error}")
    with serving("--durability", "interval") as broker:
        for name, value_bytes, count in _TOPICS:
            _fill(broker, name, value_bytes, count)
        spark = session("logbrook-bench", master=f"local[{_PARTITIONS}]", conf=conf)
        try:
            return [*_reading(spark, broker, connectors), *_writing(spark, broker, connectors)]
        finally:
            spark.stop()


def _fill(broker: BrokerProcess, topic: str, value_bytes: int, count: int) -> None:
    """Produce records with 8-byte keys and random values, in batches of a busy producer's size."""
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
        "Parquet files": _to_parquet,
    }
    rows = []
    for topic, value_bytes, count in _TOPICS:
        for query, act in queries.items():
            spent = _in_turns(
                spark,
                broker,
                {connector: partial(_read, spark, broker, topic, connector, act) for connector in connectors},
            )
            # Spark's Parquet writer takes most of the time of its query.
            goal = None if act is _to_parquet else _READ_RATIO_MIN
            rows += _rates(f"read {value_bytes} B values into {query}", spent, count, value_bytes, goal)
        into_table = _in_turns(spark, broker, {"logbrook": partial(_read, spark, broker, topic, "logbrook", _to_table)})
        rows += _rates(f"read {value_bytes} B values into a Delta table", into_table, count, value_bytes)
    return rows


def _writing(spark: SparkSession, broker: BrokerProcess, connectors: list[str]) -> list[Row]:
    rows = spark.range(_WRITTEN).selectExpr("cast(id as string) as key", "repeat('x', 100) as value")
    spent = _in_turns(spark, broker, {connector: partial(_write, rows, broker, connector) for connector in connectors})
    return _rates("write 100 B values", spent, _WRITTEN, 100, _WRITE_RATIO_MIN)


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


def _to_parquet(rows: DataFrame) -> None:
    directory = tempfile.mkdtemp(prefix="logbrook-bench-parquet-")
    try:
        rows.write.mode("overwrite").parquet(f"{directory}/files")
    finally:
        shutil.rmtree(directory)


def _in_turns(
    spark: SparkSession, broker: BrokerProcess, actions: dict[str, Callable[[], object]]
) -> dict[str, list[Spent]]:
    """Run the actions in turns; return what each took in every round after the warm-up."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    jvm_pid = gateway.proc.pid

    def cpu_s() -> float:
        return time.process_time() + tree_cpu_s(jvm_pid) + broker.cpu_s()

    spent: dict[str, list[Spent]] = {name: [] for name in actions}
    for number in range(_WARM_UP_ROUNDS + _ROUNDS):
        for name, action in actions.items():
            before_s = cpu_s()
            wall_s = seconds(action)
            if number >= _WARM_UP_ROUNDS:
                spent[name].append(Spent(wall_s, cpu_s() - before_s))
    return spent


def _rates(
    what: str, spent: dict[str, list[Spent]], count: int, value_bytes: int, ratio_min: float | None = None
) -> list[Row]:
    ours = spent["logbrook"]
    best_s = min(run.wall_s for run in ours)
    rows = [
        Row(f"{what}, rows", count / best_s / 1e6, "M/s"),
        Row(f"{what}, values", count * value_bytes / best_s / 1e6, "MB/s"),
        Row(f"{what}, CPU", statistics.median(run.cpu_s for run in ours) / count * 1e6, "s/M rows", None, False),
    ]
    if "kafka" in spent:
        pairs = [*zip(ours, spent["kafka"], strict=True)]
        ratio = statistics.median(theirs.wall_s / own.wall_s for own, theirs in pairs)
        cpu_ratio = statistics.median(own.cpu_s / theirs.cpu_s for own, theirs in pairs)
        rows.append(Row(f"{what}, times Spark's Kafka connector", ratio, "times", ratio_min))
        rows.append(Row(f"{what}, CPU of Spark's Kafka connector", cpu_ratio, "times", _CPU_RATIO_MAX, False))
    return rows
