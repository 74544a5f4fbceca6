"""Repairing a quarantined partition, on an operator's word.

Every batch that is good stays, at its offset. What lies between good batches is dropped, and a copy of the file as it
was is kept beside the new one with the ending `.damaged`. Readers see a gap in the offsets where records were lost, as
they do in a compacted topic, and the log's end does not go back below what was durable.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from logbrook.ports import Files
from logbrook.records.batch import HEADER_BYTES, MAGIC_V2, check_batch
from logbrook.records.errors import RecordsError
from logbrook.storage.disk_errors import sync_directory, sync_file
from logbrook.storage.partition_files import RecoveryPoint
from logbrook.storage.paths import DAMAGED_SUFFIX, TEMPORARY_SUFFIX, log_path, parse_log
from logbrook.storage.sealed_json import create_anew
from logbrook.storage.swap import commit_swap, finish_swap

_COPY_BYTES = 1 << 20
_MAGIC_POSITION = 16


class Repaired(NamedTuple):
    """What was dropped, where the originals are, and where the log ends."""

    bytes_dropped: int
    kept_aside: list[str]
    end: RecoveryPoint


class _Salvage(NamedTuple):
    ranges: list[tuple[int, int]]
    length: int
    next_offset: int


class _GoodBatch(NamedTuple):
    start: int
    end: int
    base_offset: int
    next_offset: int


def repair_segments(files: Files, directory: str, end_offset_min: int) -> Repaired:
    """Rewrite every segment of a partition that has bad bytes. The partition must not be open. Raises OSError or
    StorageOfflineError; doing it again is safe."""
    bytes_dropped = 0
    kept_aside: list[str] = []
    base_offsets = sorted(base for name in files.list(directory) if (base := parse_log(name)) is not None)
    end = RecoveryPoint(end_offset_min, end_offset_min, 0)
    for base_offset, limit in zip(base_offsets, [*base_offsets[1:], end_offset_min], strict=False):
        path = log_path(directory, base_offset)
        file = files.open(path)
        try:
            size = file.size()
            data = file.map_readonly(size)
            salvage = _salvage(data, base_offset, max(limit, base_offset))
            if salvage.length < size:
                _copy(files, path + DAMAGED_SUFFIX, data, [(0, size)])
                _copy(files, path + TEMPORARY_SUFFIX, data, salvage.ranges)
                commit_swap(files, directory, path + TEMPORARY_SUFFIX, base_offset, base_offset + 1)
                finish_swap(files, directory, base_offset, base_offset + 1, [], files.unlink)
                bytes_dropped += size - salvage.length
                kept_aside.append(path + DAMAGED_SUFFIX)
            else:
                sync_file(file)
            data.release()
        finally:
            file.close()
        end = RecoveryPoint(max(end_offset_min, salvage.next_offset), base_offset, salvage.length)
    if not base_offsets:
        create_anew(files, log_path(directory, end.segment_base_offset)).close()
    # Whoever believes in the new end must find the segments under their names.
    sync_directory(files, directory)
    return Repaired(bytes_dropped, kept_aside, end)


def _salvage(data: memoryview, base_offset: int, limit: int) -> _Salvage:
    """The byte ranges of good batches with offsets from `base_offset` to `limit`, rising, neighbours joined.

    The checksum does not cover a batch's offset, so one with a good checksum may still claim an offset that is not its
    own. The most batches that agree with each other are right.
    """
    ranges: list[tuple[int, int]] = []
    length, next_offset = 0, base_offset
    inside = [batch for batch in _good_batches(data) if base_offset <= batch.base_offset < batch.next_offset <= limit]
    for batch in _longest_rising(inside):
        if batch.base_offset < next_offset:
            continue
        if ranges and ranges[-1][1] == batch.start:
            ranges[-1] = (ranges[-1][0], batch.end)
        else:
            ranges.append((batch.start, batch.end))
        length += batch.end - batch.start
        next_offset = batch.next_offset
    return _Salvage(ranges, length, next_offset)


def _longest_rising(batches: list[_GoodBatch]) -> list[_GoodBatch]:
    """The longest run of batches, some left out, whose base offsets rise."""
    # tails[n] is the batch with the lowest offset at which a run of n + 1 batches can end.
    tails: list[int] = []
    offsets: list[int] = []
    before: list[int | None] = []
    for number, batch in enumerate(batches):
        length = bisect_left(offsets, batch.base_offset)
        before.append(tails[length - 1] if length else None)
        tails[length : length + 1] = [number]
        offsets[length : length + 1] = [batch.base_offset]
    run: list[_GoodBatch] = []
    last = tails[-1] if tails else None
    while last is not None:
        run.append(batches[last])
        last = before[last]
    return run[::-1]


def _good_batches(data: memoryview) -> Iterator[_GoodBatch]:
    """Every batch with a good checksum. After a bad byte every place that could be a batch's start is tried."""
    position = 0
    while position + HEADER_BYTES <= len(data):
        try:
            header = check_batch(data, position, len(data))
        except RecordsError:
            position = _next_candidate(data, position + 1)
        else:
            yield _GoodBatch(position, position + header.size, header.base_offset, header.next_offset)
            position += header.size


def _next_candidate(data: memoryview, position: int) -> int:
    """The first place from `position` on that has a batch's magic where a batch has it."""
    while position + HEADER_BYTES <= len(data):
        chunk = bytes(data[position + _MAGIC_POSITION : position + _MAGIC_POSITION + _COPY_BYTES])
        found = chunk.find(MAGIC_V2)
        if found >= 0:
            return position + found
        position += len(chunk)
    return len(data)


def _copy(files: Files, path: str, data: memoryview, ranges: list[tuple[int, int]]) -> None:
    file = create_anew(files, path)
    try:
        position = 0
        for start, end in ranges:
            for at in range(start, end, _COPY_BYTES):
                part = data[at : min(at + _COPY_BYTES, end)]
                file.pwrite(part, position)
                position += len(part)
        sync_file(file)
    finally:
        file.close()
