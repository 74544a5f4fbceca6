"""Latency of a small producer alone, and beside a consumer that reads old records at full speed: Logbrook and Kafka.

The producer, the consumer and the broker are processes of their own. The consumer's records are in the page cache
(warm), or dropped from it before each pass (cold), or cold on a disk that is limited to 50 MB/s. All brokers run at
the same time and take turns. Before the rounds that count, each is warmed up, so that the JVM has compiled its code.

Producer, consumer and broker share the processors, so a consumer costs every other process something. A consumer of
another broker, which has nothing to do with the producer's, shows how much of the difference that is.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import count
from pathlib import Path
from threading import Event
from typing import NamedTuple

from bench import librdkafka
from bench.disk_limit import LimitUnavailableError, ReadLimit
from bench.peers.kafka import Kafka
from bench.peers.logbrook import Logbrook
from bench.peers.system import Promise, System, UnavailableError
from bench.rows import Row
from logbrook.client import Client, ClientError
from logbrook.model.identifiers import Offset
from logbrook.records.batch import iter_headers
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.testing.processes import wait_until

OLD, NEW = "old", "new"
# A disk: /tmp can be an in-memory file system.
_DISK = "/var/tmp"
_MIB = 1 << 20
_BATCHES = 1_024
_FETCH_BYTES = _MIB
# The consumer reports its progress in steps of this size.
_STEP_BYTES = 16 * _MIB
_TOPIC_SETTINGS = {"segment.bytes": str(64 * _MIB), "max.message.bytes": str(2 * _MIB), "retention.ms": "-1"}
_POOL = librdkafka.Pool([os.urandom(1000)] * 1_000, partitions=1)
_RATE = 1_000
_SECONDS = 4.0
_WARM_UP_RATE = 10_000
_WARM_UP_S = 8.0
_ROUNDS = 9
_START_S_MAX = 120.0
_ADDED_MS_MAX = 2.0
_LIMIT_BYTES_PER_S = 50_000_000


class BesideCase(NamedTuple):
    name: str
    # "warm" or "cold"; None without a consumer.
    reader: str | None = None
    is_limited: bool = False
    # Reads from a broker other than the producer's.
    reads_elsewhere: bool = False


CASES = (
    BesideCase("alone"),
    BesideCase("beside a warm reader of another broker", "warm", reads_elsewhere=True),
    BesideCase("beside a warm reader", "warm"),
    BesideCase("beside a cold reader", "cold"),
    BesideCase("beside a cold reader at 50 MB/s", "cold", is_limited=True),
)


class BesideBroker(NamedTuple):
    system: str
    address: str
    # The partition of old records.
    directory: Path


class BesideSample(NamedTuple):
    p50_ms: float
    p99_ms: float
    # Speed of the consumer.
    mb_per_s: float


def run() -> list[Row]:
    samples: dict[tuple[str, str], list[BesideSample]] = defaultdict(list)
    with ExitStack() as stack:
        limit = _read_limit(stack)
        brokers = [stack.enter_context(_serving(system, limit)) for system in _systems()]
        elsewhere = stack.enter_context(_serving(Logbrook(), limit))
        for broker in (*brokers, elsewhere):
            fill(broker)
            _latency_ms(broker, _WARM_UP_RATE, _WARM_UP_S)
        for number in range(-1, _ROUNDS):
            for case in CASES:
                for broker in brokers:
                    if case.is_limited and limit is None:
                        continue
                    sample = measure(broker, case, limit, read=elsewhere if case.reads_elsewhere else broker)
                    if number >= 0:
                        samples[broker.system, case.name].append(sample)
    return [row for broker in brokers for row in _rows(broker.system, samples)]


def _rows(system: str, samples: dict[tuple[str, str], list[BesideSample]]) -> Iterator[Row]:
    alone_ms = statistics.median(sample.p99_ms for sample in samples[system, CASES[0].name])
    for case in CASES:
        if measured := samples[system, case.name]:
            has_goal = system == Logbrook.name and case.reader and not case.reads_elsewhere
            goal_ms = alone_ms + _ADDED_MS_MAX if has_goal else None
            title = f"{system}, acks=all, {_RATE:,} messages/s, {case.name}"
            p50_ms = statistics.median(sample.p50_ms for sample in measured)
            yield Row(f"{title}: p50", p50_ms, "ms", higher_is_better=False)
            p99_ms = statistics.median(sample.p99_ms for sample in measured)
            yield Row(f"{title}: p99", p99_ms, "ms", goal_ms, higher_is_better=False)
            if case.reader:
                yield Row(f"{title}: reader", statistics.median(sample.mb_per_s for sample in measured), "MB/s")


def _systems() -> Iterator[System]:
    yield Logbrook()
    try:
        kafka = Kafka()
        kafka.version()
        yield kafka
    except UnavailableError as error:
        print(f"NO KAFKA TO COMPARE WITH: {error}", file=sys.stderr)


def _read_limit(stack: ExitStack) -> ReadLimit | None:
    try:
        return stack.enter_context(closing(ReadLimit(Path(_DISK))))
    except LimitUnavailableError as error:
        print(f"NO LIMITED DISK, SO NOTHING IS MEASURED FOR SLOW DISKS: {error}", file=sys.stderr)
        return None


@contextmanager
def _serving(system: System, limit: ReadLimit | None) -> Iterator[BesideBroker]:
    directory = Path(tempfile.mkdtemp(prefix="logbrook-bench-", dir=_DISK))
    try:
        with system.server(system.variants()[Promise.LESS], directory) as server:
            if limit is not None:
                limit.add(server.pid)
            _wait_for_answer(server.address)
            yield BesideBroker(system.name, server.address, directory / "data" / f"{OLD}-0")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _wait_for_answer(address: str) -> None:
    until_s = time.monotonic() + _START_S_MAX
    while True:
        try:
            with Client(address) as client:
                if client.metadata([]).brokers:
                    return
        except ClientError:
            if time.monotonic() > until_s:
                raise
        Event().wait(0.05)


def fill(broker: BesideBroker) -> None:
    """Write 1 GiB in segments of 64 MiB, of which all but the last are closed."""
    batch = build_batch([Record(value=os.urandom(_MIB), timestamp=int(1000 * time.time()))])
    with Client(broker.address) as client:
        client.create_topic(NEW)
        client.create_topic(OLD, 1, _TOPIC_SETTINGS)
        # Kafka answers before all of its metadata names the topics.
        names = [NEW, OLD]
        assert wait_until(lambda: not any(topic.error_code for topic in client.metadata(names).topics), _START_S_MAX)
        for _ in range(_BATCHES):
            client.produce(OLD, 0, batch)
    os.sync()


def measure(
    broker: BesideBroker,
    case: BesideCase,
    limit: ReadLimit | None = None,
    duration_s: float = _SECONDS,
    *,
    read: BesideBroker | None = None,
) -> BesideSample:
    """Measure a producer at `broker`, and a consumer at `read`, by default the same one."""
    read = read or broker
    if case.reader is None:
        return BesideSample(*_latency_ms(broker, _RATE, duration_s), 0.0)
    with ExitStack() as stack:
        if case.is_limited:
            assert limit is not None
            stack.enter_context(limit.at(_LIMIT_BYTES_PER_S))
        command = [sys.executable, "-m", "bench.beside_reader", read.address, str(read.directory), case.reader]
        reader = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
        stack.callback(reader.kill)
        assert reader.stdout is not None
        # A warm reader has read everything once; a cold one reads at full speed.
        for _ in range((_BATCHES * _MIB if case.reader == "warm" else 4 * _STEP_BYTES) // _STEP_BYTES):
            assert reader.stdout.readline(), "the reader has ended"
        started_s = time.monotonic()
        p50_ms, p99_ms = _latency_ms(broker, _RATE, duration_s)
        took_s = time.monotonic() - started_s
        reader.kill()
        return BesideSample(p50_ms, p99_ms, len(reader.stdout.readlines()) * _STEP_BYTES / took_s / 1e6)


def _latency_ms(broker: BesideBroker, rate: int, duration_s: float) -> tuple[float, float]:
    """Return p50 and p99."""
    latencies, _ = librdkafka.latencies_ms(broker.address, NEW, _POOL, int(rate * duration_s), rate)
    ordered = sorted(latencies)
    return ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]


def read_forever(address: str, directory: str, kind: str) -> None:
    """Read the whole topic again and again; print a line for each step."""
    memory = bytearray()
    bytes_read = 0
    with Client(address) as client:
        end = client.list_offset(OLD, 0)
        for _ in count():
            if kind == "cold":
                _drop_from_page_cache(directory)
            offset = 0
            while offset < end:
                fetched = client.fetch(OLD, 0, Offset(offset), bytes_max=_FETCH_BYTES, memory=memory)
                memory = fetched.memory
                offset = max((header.next_offset for _, header in iter_headers(fetched.records)), default=offset)
                bytes_read += len(fetched.records)
                for _ in range(bytes_read // _STEP_BYTES):
                    print(flush=True)
                bytes_read %= _STEP_BYTES


def _drop_from_page_cache(directory: str) -> None:
    for path in Path(directory).glob("*.log"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


if __name__ == "__main__":
    read_forever(*sys.argv[1:])
