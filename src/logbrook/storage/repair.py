"""Repair of a quarantined partition, on an operator's request.

Every valid batch is kept at its offset; bytes between valid batches are dropped, and a copy of the original file is
kept with the suffix `.damaged`, with zeros for blocks that the disk cannot read. Readers see an offset gap where
records were lost, as in a compacted topic. The log end offset does not move below the durable offset.
"""

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from logbrook.model.identifiers import Offset
from logbrook.ports import Advice, File, Files
from logbrook.records.batch import HEADER_BYTES, MAGIC_V2, check_batch
from logbrook.records.errors import RecordsError
from logbrook.storage.durable_files import PAGE_BYTES, create_or_replace, is_unreadable, sync_directory, sync_file
from logbrook.storage.partition_files import RecoveryPoint
from logbrook.storage.paths import DAMAGED_SUFFIX, TEMPORARY_SUFFIX, log_path, parse_log
from logbrook.storage.segment_files import commit_swap, finish_swap

_COPY_BYTES = 1 << 20
_MAGIC_POSITION = 16


class RepairResult(NamedTuple):
    """Bytes dropped, paths of the copies of the original files, and the new log end."""

    bytes_dropped: int
    kept_aside: list[str]
    end: RecoveryPoint


class _Salvage(NamedTuple):
    ranges: list[tuple[int, int]]
    length: int
    next_offset: Offset


class _GoodBatch(NamedTuple):
    start: int
    end: int
    base_offset: Offset
    next_offset: Offset


def repair_segments(files: Files, directory: str, end_offset_min: int) -> RepairResult:
    """Rewrite every damaged segment of a partition, which must not be open. Safe to repeat.

    Raises OSError or StorageOfflineError.
    """
    bytes_dropped = 0
    kept_aside: list[str] = []
    base_offsets = sorted(base for name in files.list(directory) if (base := parse_log(name)) is not None)
    end = RecoveryPoint(Offset(end_offset_min), Offset(end_offset_min), 0)
    for base_offset, limit in zip(base_offsets, [*base_offsets[1:], end_offset_min], strict=False):
        path = log_path(directory, Offset(base_offset))
        with closing(files.open(path)) as file:
            size = file.size()
            data = read_contents(file, size)
            salvage = _salvage(data, Offset(base_offset), max(limit, base_offset))
            if salvage.length < size:
                _copy(files, path + DAMAGED_SUFFIX, data, [(0, size)])
                _copy(files, path + TEMPORARY_SUFFIX, data, salvage.ranges)
                commit_swap(files, directory, path + TEMPORARY_SUFFIX, Offset(base_offset), Offset(base_offset + 1))
                finish_swap(files, directory, Offset(base_offset), Offset(base_offset + 1), [], files.unlink)
                bytes_dropped += size - salvage.length
                kept_aside.append(path + DAMAGED_SUFFIX)
            else:
                sync_file(file)
            data.release()
        end = RecoveryPoint(Offset(max(end_offset_min, salvage.next_offset)), Offset(base_offset), salvage.length)
    if not base_offsets:
        create_or_replace(files, log_path(directory, end.segment_base_offset)).close()
    # The caller records the new log end, so the segments' names must be durable first.
    sync_directory(files, directory)
    return RepairResult(bytes_dropped, kept_aside, end)


def read_contents(file: File, size: int) -> memoryview:
    """Return the bytes of the file, with zeros in place of blocks that the disk cannot read.

    A file is mapped only if all of it can be read: touching a mapped page that cannot be read kills the process.
    """
    buffer = memoryview(bytearray(min(size, _COPY_BYTES)))
    try:
        for position in range(0, size, _COPY_BYTES):
            file.pread_into(buffer[: size - position], position)
        return file.map_readonly(size)
    except OSError as error:
        if not is_unreadable(error):
            raise
    file.advise(Advice.EXACT)
    data = memoryview(bytearray(size))
    for position in range(0, size, PAGE_BYTES):
        try:
            file.pread_into(data[position : position + PAGE_BYTES], position)
        except OSError as error:
            if not is_unreadable(error):
                raise
    return data


def _salvage(data: memoryview, base_offset: Offset, limit: int) -> _Salvage:
    """Return the byte ranges of valid batches with ascending offsets in [base_offset, limit), adjacent ones joined.

    The checksum does not cover the base offset, so a batch with a valid checksum may still have a wrong offset. The
    longest ascending subsequence of batches is kept.
    """
    ranges: list[tuple[int, int]] = []
    length, next_offset = 0, base_offset
    inside = [batch for batch in _good_batches(data) if base_offset <= batch.base_offset < batch.next_offset <= limit]
    for batch in _longest_ascending(inside):
        if batch.base_offset < next_offset:
            continue
        if ranges and ranges[-1][1] == batch.start:
            ranges[-1] = (ranges[-1][0], batch.end)
        else:
            ranges.append((batch.start, batch.end))
        length += batch.end - batch.start
        next_offset = batch.next_offset
    return _Salvage(ranges, length, next_offset)


def _longest_ascending(batches: list[_GoodBatch]) -> list[_GoodBatch]:
    """Return the longest subsequence of batches with ascending base offsets."""
    # tails[n] is the batch with the lowest base offset that ends an ascending subsequence of n + 1 batches.
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
    """Yield every batch with a valid checksum. After damage, tries every position with a batch's magic byte."""
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
    """Return the first position from `position` on with the magic byte at its place in a batch header."""
    while position + HEADER_BYTES <= len(data):
        chunk = bytes(data[position + _MAGIC_POSITION : position + _MAGIC_POSITION + _COPY_BYTES])
        index = chunk.find(MAGIC_V2)
        if index >= 0:
            return position + index
        position += len(chunk)
    return len(data)


def _copy(files: Files, path: str, data: memoryview, ranges: list[tuple[int, int]]) -> None:
    with closing(create_or_replace(files, path)) as file:
        position = 0
        for start, end in ranges:
            for at in range(start, end, _COPY_BYTES):
                part = data[at : min(at + _COPY_BYTES, end)]
                file.pwrite(part, position)
                position += len(part)
        sync_file(file)
