"""Compaction throughput of a log in which half of the records are superseded."""

import os
import time

from bench.engine import NOW_MS, open_directory, scratch
from bench.rows import Row
from logbrook.config import CleanupPolicy, LogConfig
from logbrook.model import TopicPartition
from logbrook.records.batch import Codec
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.storage.compaction import compact

_RECORDS = 200_000
_PER_BATCH = 500
_CONFIG = LogConfig(segment_bytes=8 << 20, cleanup_policy=frozenset({CleanupPolicy.COMPACT}))


def run() -> list[Row]:
    return [_row(Codec.NONE), _row(Codec.LZ4)]


def _row(codec: Codec) -> Row:
    with scratch() as path:
        directory = open_directory(path)
        log = directory.create(TopicPartition("compacting", 0), _CONFIG)
        values = [os.urandom(100) for _ in range(_PER_BATCH)]
        for start in range(0, _RECORDS, _PER_BATCH):
            records = [
                Record(b"%08d" % ((start + number) % (_RECORDS // 2)), values[number], (), NOW_MS)
                for number in range(_PER_BATCH)
            ]
            log.append(build_batch(records, codec=codec), now_ms=NOW_MS)
        log.roll()
        directory.checkpoint()
        started = time.perf_counter()
        result = compact(log, NOW_MS + 1, force=True)
        took_s = time.perf_counter() - started
        assert result is not None
        directory.close()
    return Row(f"compaction, 100-byte values, {codec.name.lower()}", result.bytes_read / took_s / 1e6, "MB/s")
