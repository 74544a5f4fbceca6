"""Append throughput of the storage engine, relative to a raw checksum and write of the same bytes."""

import os
from functools import partial

from crc32c import crc32c

from bench.engine import NOW_MS, batch_of, open_directory, scratch
from bench.rows import Compare, Row, paired_ratio
from logbrook.config import Durability, LogConfig
from logbrook.model import TopicPartition

_BYTES_PER_ROUND = 8 << 20
_CONFIG = LogConfig(max_message_bytes=2 << 20)
_COMPARE = partial(paired_ratio, rounds=25)


def run() -> list[Row]:
    return [
        against_raw(1 << 10),
        against_raw(64 << 10, goal=0.7),
        against_raw(1 << 20),
        durable_against_raw(64 << 10),
    ]


def against_raw(size: int, goal: float | None = None, compare: Compare = _COMPARE) -> Row:
    """With `durability = "interval"`: one checksum and one write per batch."""
    batch = batch_of(size)
    appends = _BYTES_PER_ROUND // size
    with scratch() as path:
        directory = open_directory(path)
        log = directory.create(TopicPartition("append", 0), _CONFIG)
        raw = _RawFile(f"{path}/raw")

        def append() -> None:
            for _ in range(appends):
                log.append(batch, now_ms=NOW_MS)

        ratio = compare(lambda: raw.write(batch, appends), append)
        raw.close()
        directory.close()
    return Row(f"append, {size >> 10} KiB batches, of raw pwrite + CRC32C", ratio, "ratio", goal)


def durable_against_raw(size: int, compare: Compare = _COMPARE) -> Row:
    """With `durability = "fsync"`: two checksums and two writes per batch, and one sync per round."""
    batch = batch_of(size)
    appends = _BYTES_PER_ROUND // size
    with scratch() as path:
        directory = open_directory(path, durability=Durability.FSYNC)
        log = directory.create(TopicPartition("append", 0), _CONFIG)
        first, second = _RawFile(f"{path}/raw"), _RawFile(f"{path}/raw-wal")

        def reference() -> None:
            first.write(batch, appends)
            second.write(batch, appends)
            second.sync()

        def append() -> None:
            for _ in range(appends):
                log.append(batch, now_ms=NOW_MS)
            directory.commit()
            if directory.is_checkpoint_due():
                directory.checkpoint()

        ratio = compare(reference, append)
        first.close()
        second.close()
        directory.close()
    return Row(f"durable append, {size >> 10} KiB batches, of two raw writes and one sync", ratio, "ratio")


class _RawFile:
    """The reference: checksum and write the batch, nothing else."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT)
        self._position = 0

    def write(self, batch: bytearray, times: int) -> None:
        view = memoryview(batch)
        for _ in range(times):
            crc32c(view[21:])
            os.pwrite(self._fd, view, self._position)
            self._position += len(view)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def close(self) -> None:
        os.close(self._fd)
