"""Compaction beside a producer: Logbrook with its worker process, Logbrook in pure Python, and Kafka's log cleaner.

Each broker has a topic whose keys are all written twice, in closed segments, and a compaction lag that prevents its
compaction. Then the lag is set to 0. Measured: the time from there until the cleaner has passed all closed segments,
the CPU time of the broker and its children, and the p99 of a producer at 1,000 messages/s meanwhile, whose cost is part
of the CPU time. A smaller topic is compacted before, so that the JVM has compiled its cleaner. The time includes the
start of the worker, which was stopped after that topic.
"""

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from bench import librdkafka
from bench.broker_process import BrokerProcess
from bench.peers.kafka import DEFAULTS, JAVA_OPTIONS, classpath
from bench.peers.system import UnavailableError
from bench.process_tree import tree_cpu_s
from bench.rows import Row
from logbrook.client import Client
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.testing.processes import wait_until
from tests.interop.java.kafka_broker import KafkaBroker

_DISK = "/var/tmp"
_MIB = 1 << 20
_SEGMENT_BYTES = 32 * _MIB
_WARM_UP, _MEASURED, _PRODUCED = "warm-up", "measured", "produced"
_SIZES = {_WARM_UP: 96 * _MIB, _MEASURED: 384 * _MIB}
_VALUE_BYTES, _PER_BATCH = 1000, 500
_TOPIC_SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(_SEGMENT_BYTES),
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": str(24 * 3600 * 1000),
    "max.message.bytes": str(2 * _MIB),
    "file.delete.delay.ms": "0",
}
_INTERVAL_MS = 200
_CLEAN_S_MAX = 300.0
_RATE = 1_000
_ALONE_S = 2.0
_POOL = librdkafka.Pool([os.urandom(1000)] * 1_000, partitions=1)


class _Broker(NamedTuple):
    name: str
    address: str
    pid: int
    data: Path


class _Result(NamedTuple):
    mb_per_s: float
    cpu_s_per_gb: float
    p99_alone_ms: float
    p99_beside_ms: float


def run() -> list[Row]:
    rows = []
    for broker, result in _results():
        rows += [
            Row(f"{broker}, compaction of 384 MiB of 1 KB values", result.mb_per_s, "MB/s"),
            Row(f"{broker}, the same: CPU", result.cpu_s_per_gb, "s/GB", higher_is_better=False),
            Row(f"{broker}, p99 at {_RATE:,} messages/s, alone", result.p99_alone_ms, "ms", higher_is_better=False),
            Row(f"{broker}, the same beside it", result.p99_beside_ms, "ms", higher_is_better=False),
        ]
    return rows


def _results() -> Iterator[tuple[str, _Result]]:
    for serving in (_logbrook(is_compiled=True), _logbrook(is_compiled=False), _kafka()):
        try:
            with serving as broker:
                yield broker.name, _measure(broker)
        except UnavailableError as error:
            print(f"NO KAFKA TO COMPARE WITH: {error}", file=sys.stderr)


@contextmanager
def _logbrook(*, is_compiled: bool) -> Iterator[_Broker]:
    directory = tempfile.mkdtemp(prefix="logbrook-bench-", dir=_DISK)
    worker = "--maintenance-compaction-worker" if is_compiled else "--no-maintenance-compaction-worker"
    flags = ("--durability", "interval", "--maintenance-interval-ms", f"{_INTERVAL_MS}ms", worker)
    try:
        broker = BrokerProcess(f"{directory}/data", *flags)
        try:
            name = "Logbrook" if is_compiled else "Logbrook in pure Python"
            yield _Broker(name, broker.address, broker.pid, Path(directory, "data"))
        finally:
            broker.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _kafka() -> Iterator[_Broker]:
    directory = Path(tempfile.mkdtemp(prefix="logbrook-bench-", dir=_DISK))
    try:
        settings = {**DEFAULTS, "log.cleaner.backoff.ms": str(_INTERVAL_MS)}
        with KafkaBroker(classpath(), directory, settings, JAVA_OPTIONS) as broker:
            yield _Broker("Kafka", broker.bootstrap_servers, broker.pid, directory / "data")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _measure(broker: _Broker) -> _Result:
    with Client(broker.address) as client:
        client.create_topic(_PRODUCED)
        for topic, size in _SIZES.items():
            client.create_topic(topic, 1, _TOPIC_SETTINGS)
            assert wait_until(lambda topic=topic: not client.metadata([topic]).topics[0].error_code, 60)  # type: ignore[misc]
            _fill(client, topic, size)
    os.sync()
    _p99_ms(broker, _ALONE_S)
    _clean(broker, _WARM_UP)
    p99_alone_ms = statistics.median(_p99_ms(broker, _ALONE_S) for _ in range(3))
    beside: list[float] = []
    is_clean = Event()

    def produce() -> None:
        while not is_clean.is_set():
            beside.append(_p99_ms(broker, 1.0))

    producer = Thread(target=produce)
    producer.start()
    try:
        size = _log_bytes(broker, _MEASURED)
        cpu_s, took_s = _clean(broker, _MEASURED)
    finally:
        is_clean.set()
        producer.join()
    return _Result(size / took_s / 1e6, cpu_s / (size / 1e9), p99_alone_ms, statistics.median(beside))


def _fill(client: Client, topic: str, size: int) -> None:
    """Write all keys, and then all keys again."""
    values = [os.urandom(_VALUE_BYTES) for _ in range(_PER_BATCH)]
    batches = size // 2 // (_PER_BATCH * (_VALUE_BYTES + 20))
    now_ms = int(1000 * time.time())
    for _ in range(2):
        for number in range(batches):
            first = number * _PER_BATCH
            records = [Record(b"%010d" % (first + n), value, (), now_ms) for n, value in enumerate(values)]
            client.produce(topic, 0, build_batch(records))


def _clean(broker: _Broker, topic: str) -> tuple[float, float]:
    """Let the cleaner compact a topic. Return its CPU time and its duration."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entry = ConfigEntry("min.compaction.lag.ms", "0", incremental_operation=AlterConfigOpType.SET)
    resource.add_incremental_config(entry)
    cpu_s, started = tree_cpu_s(broker.pid), time.perf_counter()
    # Its answers are lost if it does not live as long.
    client = AdminClient({"bootstrap.servers": broker.address})
    for answer in client.incremental_alter_configs([resource]).values():
        answer.result()
    assert wait_until(lambda: _cleaned_offset(broker, topic) > 0, _CLEAN_S_MAX, poll_s=0.02)
    return tree_cpu_s(broker.pid) - cpu_s, time.perf_counter() - started


def _cleaned_offset(broker: _Broker, topic: str) -> int:
    """Return the offset below which the topic is clean, which both brokers save at the end of a pass."""
    if broker.name == "Kafka":
        checkpoint = broker.data / "cleaner-offset-checkpoint"
        lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
        return next((int(line.split()[2]) for line in lines if line.split()[:1] == [topic]), 0)
    state = broker.data / f"{topic}-0" / "state"
    # A checksum and a line of JSON.
    return int(json.loads(state.read_text().partition("\n")[2])["cleaned_offset"]) if state.exists() else 0


def _log_bytes(broker: _Broker, topic: str) -> int:
    total = 0
    for path in (broker.data / f"{topic}-0").glob("*.log"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def _p99_ms(broker: _Broker, duration_s: float) -> float:
    latencies, _ = librdkafka.latencies_ms(broker.address, _PRODUCED, _POOL, int(_RATE * duration_s), _RATE)
    return sorted(latencies)[int(len(latencies) * 0.99)]
