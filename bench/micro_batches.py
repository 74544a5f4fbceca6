"""CPU time of a stream with small micro-batches, compared with Spark's own Kafka connector if Maven can fetch it.

A producer sends 1,000 records a second, and a query without a trigger interval reads them into Spark's `noop` sink, so
that nearly all of its time is per micro-batch. Both connectors use the same topic in the same session and take turns.
The CPU share is that of the JVM, all Python processes that Spark started, and the broker, in cores, after a warm-up.
The goal is for the CPU time of a micro-batch: the share also depends on how fast they follow each other.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import NamedTuple

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from bench.broker_process import BrokerProcess, producer, serving
from bench.process_tree import tree_cpu_s
from bench.rows import Row
from logbrook.client import Client
from logbrook.spark import session
from tests.interop.java.download_cache import MissingToolError
from tests.interop.java.jars import spark_connector_jars

_TOPIC = "small"
_PARTITIONS = 2
_VALUE_BYTES = 100
_ROWS_PER_S = 1_000
_SENDS_PER_S = 50
_ROUNDS = 3
_WARM_UP_S = 12.0
_MEASURED_S = 15.0
_CPU_RATIO_MAX = 1.0
_NAMES = {"logbrook": "", "kafka": " with Spark's Kafka connector"}


class Share(NamedTuple):
    """CPU share in cores, and micro-batches per second."""

    cores: float
    batches_per_s: float

    @property
    def batch_cpu_ms(self) -> float:
        return self.cores / self.batches_per_s * 1000


def run() -> list[Row]:
    connectors = ["logbrook"]
    conf = {"spark.sql.shuffle.partitions": "2"}
    try:
        conf["spark.jars"] = ",".join(spark_connector_jars())
        connectors.append("kafka")
    except MissingToolError as error:
        print(f"skipping Spark's own Kafka connector: {error}")
    with serving("--durability", "interval") as broker:
        with Client(broker.address) as client:
            client.create_topic(_TOPIC, _PARTITIONS)
        spark = session("logbrook-bench", master=f"local[{_PARTITIONS}]", conf=conf)
        try:
            with _sending(broker):
                busy = _in_turns(spark, broker, connectors)
            idle = _in_turns(spark, broker, connectors)
        finally:
            spark.stop()
    what = f"stream of {_ROWS_PER_S} rows/s"
    return [*_share_rows(what, busy), *_batch_rows(what, busy), *_share_rows("stream without new rows", idle)]


@contextmanager
def _sending(broker: BrokerProcess) -> Iterator[None]:
    stopped = Event()
    client = producer(broker, **{"linger.ms": 1})

    def send() -> None:
        started, sends = time.monotonic(), 0
        while not stopped.wait(max(0.0, started + sends / _SENDS_PER_S - time.monotonic())):
            _send(client, _ROWS_PER_S // _SENDS_PER_S)
            sends += 1

    thread = Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
        client.flush(30)


def _send(client: Producer, count: int) -> None:
    for number in range(count):
        client.produce(_TOPIC, os.urandom(_VALUE_BYTES), partition=number % _PARTITIONS)
    client.poll(0)


def _in_turns(spark: SparkSession, broker: BrokerProcess, connectors: list[str]) -> dict[str, list[Share]]:
    shares: dict[str, list[Share]] = {connector: [] for connector in connectors}
    for _ in range(_ROUNDS):
        for connector in connectors:
            shares[connector].append(_measure(spark, broker, connector))
    return shares


def _measure(spark: SparkSession, broker: BrokerProcess, connector: str) -> Share:
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    options = {"kafka.bootstrap.servers": broker.address, "subscribe": _TOPIC}
    rows = spark.readStream.format(connector).options(**options).load()
    with tempfile.TemporaryDirectory(prefix="logbrook-bench-checkpoint-") as checkpoint:
        query = rows.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        try:
            query.awaitTermination(int(_WARM_UP_S))
            first = _batches(query)
            cpu_s, started = tree_cpu_s(gateway.proc.pid) + broker.cpu_s(), time.monotonic()
            query.awaitTermination(int(_MEASURED_S))
            cpu_s = tree_cpu_s(gateway.proc.pid) + broker.cpu_s() - cpu_s
            wall_s = time.monotonic() - started
            return Share(cpu_s / wall_s, max(1, _batches(query) - first) / wall_s)
        finally:
            query.stop()


def _batches(query: object) -> int:
    progress = query.lastProgress  # type: ignore[attr-defined]
    return -1 if progress is None else int(progress.batchId)


def _share_rows(what: str, shares: dict[str, list[Share]]) -> list[Row]:
    return [
        Row(
            f"{what}, CPU share{_NAMES[connector]}",
            statistics.median(run.cores for run in measured),
            "cores",
            None,
            False,
        )
        for connector, measured in shares.items()
    ]


def _batch_rows(what: str, shares: dict[str, list[Share]]) -> list[Row]:
    rows = []
    for connector, measured in shares.items():
        cpu_ms = statistics.median(run.batch_cpu_ms for run in measured)
        rows.append(Row(f"{what}, CPU per micro-batch{_NAMES[connector]}", cpu_ms, "ms", None, False))
    if "kafka" in shares:
        pairs = zip(shares["logbrook"], shares["kafka"], strict=True)
        ratio = statistics.median(ours.batch_cpu_ms / theirs.batch_cpu_ms for ours, theirs in pairs)
        rows.append(Row(f"{what}, CPU of Spark's Kafka connector", ratio, "times", _CPU_RATIO_MAX, False))
    return rows
