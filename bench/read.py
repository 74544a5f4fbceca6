"""Read throughput of the storage engine, relative to a raw mapping or `pread` of the same bytes."""

import mmap
import os
from functools import partial

from bench.engine import NOW_MS, batch_of, open_directory, scratch
from bench.rows import Compare, Row, median_seconds, paired_ratio
from logbrook.config import LogConfig
from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.storage.log import Log

_TOTAL_BYTES = 64 << 20
_FETCH_BYTES = 1 << 20
_LOOKUPS = 2000
_COMPARE = partial(paired_ratio, rounds=25)


def run() -> list[Row]:
    return _measure(_COMPARE, with_lookups=True)


def ratios(compare: Compare) -> list[Row]:
    """Return only the ratios to raw reads, for the guard."""
    return _measure(compare, with_lookups=False)


def _measure(compare: Compare, *, with_lookups: bool) -> list[Row]:
    batch = batch_of(16 << 10)
    with scratch() as path:
        directory = open_directory(path)
        closed = directory.create(TopicPartition("closed", 0), LogConfig())
        active = directory.create(TopicPartition("active", 0), LogConfig())
        for log in (closed, active):
            while log.size < _TOTAL_BYTES:
                log.append(batch, now_ms=NOW_MS)
        closed.roll()
        rows = [_mapped(path, closed, compare), _active(path, active, compare)]
        rows += _lookups(closed) if with_lookups else []
        directory.close()
    return rows


def _mapped(path: str, log: Log, compare: Compare) -> Row:
    offsets = _fetch_offsets(log)
    fd = os.open(f"{path}/{log.closed[0].path}", os.O_RDONLY)
    view = memoryview(mmap.mmap(fd, 0, prot=mmap.PROT_READ))
    os.close(fd)
    ranges = [
        (part.position, part.length) for offset in offsets for part in log.read(Offset(offset), _FETCH_BYTES).slices
    ]
    sink = bytearray(_FETCH_BYTES)

    def reference() -> None:
        for position, length in ranges:
            sink[:length] = view[position : position + length]

    def subject() -> None:
        for offset in offsets:
            for part in log.read(Offset(offset), _FETCH_BYTES).slices:
                sink[: part.length] = part.data

    ratio = compare(reference, subject)
    view.release()
    return Row("read of closed segments, 1 MiB at a time, of a memoryview copy", ratio, "ratio")


def _active(path: str, log: Log, compare: Compare) -> Row:
    offsets = _fetch_offsets(log)
    fd = os.open(f"{path}/{log.active.path}", os.O_RDONLY)
    ranges = [
        (part.position, part.length) for offset in offsets for part in log.read(Offset(offset), _FETCH_BYTES).slices
    ]

    def reference() -> None:
        for position, length in ranges:
            os.pread(fd, length, position)

    def subject() -> None:
        for offset in offsets:
            log.read(Offset(offset), _FETCH_BYTES)

    ratio = compare(reference, subject)
    os.close(fd)
    return Row("read of the active segment, 1 MiB at a time, of raw pread", ratio, "ratio")


def _lookups(log: Log) -> list[Row]:
    segment = log.closed[0]
    offsets = [log.log_end_offset * number // _LOOKUPS for number in range(_LOOKUPS)]

    def by_offset() -> None:
        for offset in offsets:
            segment.position_of(Offset(offset))

    def by_time() -> None:
        for number in range(_LOOKUPS // 10):
            log.find_time(NOW_MS + number % 1000)

    return [
        Row("offset lookups in a 64 MiB segment", _LOOKUPS / median_seconds(by_offset, 9), "lookups/s"),
        Row("time lookups in a 64 MiB segment", _LOOKUPS // 10 / median_seconds(by_time, 5), "lookups/s"),
    ]


def _fetch_offsets(log: Log) -> list[int]:
    """Return the fetch offsets of a consumer that reads the whole log."""
    offsets = []
    offset = 0
    while offset < log.log_end_offset:
        offsets.append(offset)
        length = log.read(Offset(offset), _FETCH_BYTES).length
        per_record = log.size / log.log_end_offset
        offset += max(1, round(length / per_record))
    return offsets
