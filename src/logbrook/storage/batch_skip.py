"""Skipping a poison batch: one that the broker stores and no consumer can process, on an operator's request.

The batch is replaced by an empty one with the same offsets, producer and sequence, as compaction writes them, so
consumers continue after it and the producer state can still be recovered. A copy of the original batch is kept. The log
must not be served meanwhile.
"""

from contextlib import closing
from typing import NamedTuple

from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.ports import File
from logbrook.records.batch import BatchHeader, check_batch
from logbrook.records.builder import rebuild_batch
from logbrook.records.errors import RecordsError
from logbrook.records.reader import iter_records
from logbrook.storage.durable_files import create_or_replace, sync_file
from logbrook.storage.errors import OffsetOutOfRangeError, UnskippableBatchError
from logbrook.storage.log import Log
from logbrook.storage.log_directory import LogDirectory
from logbrook.storage.paths import TEMPORARY_SUFFIX, skipped_path
from logbrook.storage.segment_files import commit_swap, finish_swap

_COPY_BYTES = 1 << 20


class StoredBatch(NamedTuple):
    """A batch in a segment. `fault` is the reason why its records cannot be decoded, None if they can."""

    segment_number: int
    position: int
    header: BatchHeader
    data: bytes
    fault: str | None


def find_skippable(log: Log, offset: Offset) -> StoredBatch:
    """Return the batch that has `offset`.

    Raises OffsetOutOfRangeError, UnskippableBatchError, ReadFailedError or CorruptLogError.
    """
    if log.corruption is not None:
        raise log.corruption.with_traceback(None)
    if not log.log_start_offset <= offset < log.log_end_offset:
        raise OffsetOutOfRangeError(log.partition, offset, log.log_start_offset, log.log_end_offset)
    number = max(number for number, segment in enumerate(log.segments) if segment.base_offset <= offset)
    segment = log.segments[number]
    batch = next(segment.batches(segment.position_of(offset)), None)
    if batch is None or batch.header.base_offset > offset:
        raise UnskippableBatchError(log.partition, offset, "no batch has this offset: it was compacted away")
    header = batch.header
    if header.is_control:
        raise UnskippableBatchError(log.partition, offset, "it is a transaction marker, which consumers never see")
    if header.count == 0:
        raise UnskippableBatchError(log.partition, offset, "the batch is empty already")
    data = bytes(segment.read(batch.position, header.size).data)
    fault = None
    try:
        check_batch(memoryview(data), 0, len(data))
    except RecordsError as error:
        raise UnskippableBatchError(log.partition, offset, f"{error}; `logbrook log repair` drops it") from error
    try:
        for _ in iter_records(data, bytes_max=log.environment.config.decompressed_bytes_max):
            pass
    except RecordsError as error:
        fault = str(error)
    return StoredBatch(number, batch.position, header, data, fault)


def skip_batch(directory: LogDirectory, partition: TopicPartition, offset: Offset) -> str:
    """Replace the batch that has `offset` by an empty one. Returns the path of the copy of the original.

    Raises what `find_skippable` raises, DiskFullError or StorageOfflineError.
    """
    log = directory.get(partition)
    batch = find_skippable(log, offset)
    if batch.segment_number == len(log.closed):
        log.roll()
    # A closed segment below the recovery point can be replaced: recovery does not depend on its size.
    directory.checkpoint()
    segment = log.closed[batch.segment_number]
    environment = log.environment
    kept_aside = skipped_path(partition.directory, batch.header.base_offset)
    temporary = segment.path + TEMPORARY_SUFFIX
    empty = rebuild_batch(batch.header, [])
    with environment.writing("skip", segment.path):
        with closing(create_or_replace(environment.files, kept_aside)) as aside:
            aside.pwrite(batch.data, 0)
            sync_file(aside)
        with (
            closing(environment.files.open(segment.path)) as file,
            closing(create_or_replace(environment.files, temporary)) as new,
        ):
            after = batch.position + batch.header.size
            _copy(file, 0, new, 0, batch.position)
            new.pwrite(empty, batch.position)
            _copy(file, after, new, batch.position + len(empty), segment.size - after)
            size = new.size()
            sync_file(new)
        end_offset = log.segments[batch.segment_number + 1].base_offset
        commit_swap(environment.files, partition.directory, temporary, segment.base_offset, end_offset)
        segment.forget()
        finish_swap(
            environment.files, partition.directory, segment.base_offset, end_offset, [], environment.files.unlink
        )
    log.closed[batch.segment_number] = log.as_closed(segment.base_offset, size)
    return kept_aside


def _copy(source: File, start: int, target: File, position: int, length: int) -> None:
    for offset in range(0, length, _COPY_BYTES):
        target.pwrite(source.pread(min(_COPY_BYTES, length - offset), start + offset), position + offset)
