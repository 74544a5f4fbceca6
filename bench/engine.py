"""Temporary data directories and record batches for the benchmarks of the storage engine."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from logbrook.config import Durability, LogConfig, StorageConfig
from logbrook.ports import OsFiles, SystemClock
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.storage.log_directory import LogDirectory

NOW_MS = 1_700_000_000_000


@contextmanager
def scratch() -> Iterator[str]:
    """Yield a directory on the working directory's disk: an in-memory file system would flatter every number."""
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=os.getcwd()) as path:
        yield path


def open_directory(path: str, log_config: LogConfig | None = None, **settings: Any) -> LogDirectory:
    config = StorageConfig(**{"durability": Durability.INTERVAL, **settings})
    partition_config = log_config or LogConfig()
    return LogDirectory.open(
        OsFiles(path), config, clock=SystemClock(), now_ms=NOW_MS, config_of=lambda _partition: partition_config
    )


def batch_of(size: int, value_bytes: int = 100, timestamp: int = NOW_MS) -> bytearray:
    """Return a batch of about `size` bytes of incompressible records."""
    count = max(1, (size - 61) // (value_bytes + 16))
    records = [
        Record(b"%08d" % number, os.urandom(value_bytes), (), timestamp + number % 1000) for number in range(count)
    ]
    return build_batch(records)
