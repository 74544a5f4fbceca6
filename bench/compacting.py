"""Compaction of a log: throughput and CPU time in the worker process with compiled code, and in pure Python.

`python -m bench.compacting` prints a table for values of 100 bytes and 1 KB, uncompressed and compressed, and several
shares of unique keys. Pure Python compacts a log of a quarter of the size, in a time that is still much longer. The
worker is running when its time begins: it takes a second to start.
"""

import os
import sys
import time
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from bench.engine import NOW_MS, open_directory, scratch
from bench.process_tree import tree_cpu_s
from bench.rows import Row
from logbrook.config import CleanupPolicy, LogConfig
from logbrook.model import TopicPartition
from logbrook.records.batch import Codec
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.server.compaction_worker import CompactionWorker
from logbrook.storage.compaction import Cleaners, compact_with
from logbrook.storage.log_directory import LogDirectory

_BATCH_BYTES = 64 << 10
_CONFIG = LogConfig(segment_bytes=32 << 20, cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
_GOAL_MB_PER_S = 200.0


class _Case(NamedTuple):
    value_bytes: int
    codec: Codec = Codec.NONE
    unique_share: float = 0.5
    size: int = 48 << 20

    def __str__(self) -> str:
        return f"{self.value_bytes}-byte values, {self.codec.name.lower()}, {self.unique_share:.0%} unique keys"


class _Measured(NamedTuple):
    mb_per_s: float
    cpu_s_per_gb: float


def run() -> list[Row]:
    rows = []
    for case in (_Case(100), _Case(1000), _Case(1000, Codec.LZ4)):
        in_worker, in_pure_python = _measure(case)
        goal = _GOAL_MB_PER_S if case == _Case(1000) else None
        rows += [
            Row(f"compaction, {case}, worker", in_worker.mb_per_s, "MB/s", goal),
            Row(f"compaction, {case}, worker: CPU", in_worker.cpu_s_per_gb, "s/GB", higher_is_better=False),
            Row(f"compaction, {case}, pure Python", in_pure_python.mb_per_s, "MB/s"),
        ]
    return rows


def _measure(case: _Case) -> tuple[_Measured, _Measured]:
    """Return the numbers of the worker and of pure Python."""
    worker = CompactionWorker(bytes_min=0)
    try:
        # Start it.
        _compact(case._replace(size=1 << 20), worker.cleaner)
        return _compact(case, worker.cleaner), _compact(case._replace(size=case.size // 4), None)
    finally:
        worker.stop()


def _compact(case: _Case, cleaners: Cleaners | None) -> _Measured:
    with scratch() as path:
        # All keys fit into one pass, in both ways.
        directory = open_directory(path, compaction_map_bytes_max=256 << 20)
        _fill(directory, case)
        log = directory.get(TopicPartition("compacting", 0))
        cpu_s, started = tree_cpu_s(os.getpid()), time.perf_counter()
        result = compact_with(log, NOW_MS + 1, force=True, cleaners=cleaners)
        took_s, cpu_s = time.perf_counter() - started, tree_cpu_s(os.getpid()) - cpu_s
        assert result is not None
        directory.close()
    return _Measured(result.bytes_read / took_s / 1e6, cpu_s / (result.bytes_read / 1e9))


def _fill(directory: LogDirectory, case: _Case) -> None:
    """Write records of which the share of unique keys survives a compaction, in closed and synced segments."""
    log = directory.create(TopicPartition("compacting", 0), _CONFIG)
    per_batch = max(1, _BATCH_BYTES // (case.value_bytes + 20))
    # Half of each value is random, so that codecs have something to do and something to gain.
    values = [os.urandom(case.value_bytes // 2).hex().encode() for _ in range(per_batch)]
    count = case.size // (case.value_bytes + 20)
    keys = max(1, int(count * case.unique_share))
    for start in range(0, count, per_batch):
        records = [
            Record(b"%010d" % ((start + number) % keys), values[number], (), NOW_MS)
            for number in range(min(per_batch, count - start))
        ]
        log.append(build_batch(records, codec=case.codec), now_ms=NOW_MS)
    log.roll()
    directory.checkpoint()
    os.sync()


def _table() -> Iterator[str]:
    yield "| log | worker MB/s | CPU s/GB | pure Python MB/s | CPU s/GB | speed-up |"
    yield "|---|---|---|---|---|---|"
    codecs = (Codec.NONE, Codec.LZ4, Codec.ZSTD)
    for value_bytes, codec, unique_share in product((1000, 100), codecs, (0.1, 0.5, 1.0)):
        case = _Case(value_bytes, codec, unique_share)
        worker, pure = _measure(case)
        numbers = f"{worker.mb_per_s:.0f} | {worker.cpu_s_per_gb:.1f} | {pure.mb_per_s:.1f} | {pure.cpu_s_per_gb:.0f}"
        yield f"| {case} | {numbers} | {worker.mb_per_s / pure.mb_per_s:.0f} |"


if __name__ == "__main__":
    for line in _table():
        print(line)
        sys.stdout.flush()
