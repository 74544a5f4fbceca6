"""Truncation of a log's end, as a follower does to records that its leader does not have.

A truncation must be atomic and must not be undone by a crash: neither the write-ahead log nor a checkpoint may restore
truncated bytes. The order:

1. Sync everything below the cut, and write all files that need disk space under temporary names. A full disk fails the
   truncation here, with the log unchanged.
2. Save the intent (`state.truncate_to`). From here on recovery completes the truncation.
3. Truncate the files, and publish the new log end as the state's floor, which invalidates older WAL entries,
   checkpoints and snapshots.
"""

from contextlib import closing
from dataclasses import replace
from itertools import islice

from logbrook.model.identifiers import Offset
from logbrook.storage.durable_files import IO_FAILURES, create_or_replace, is_disk_full, sync_directory, sync_file
from logbrook.storage.errors import (
    CorruptLogError,
    OffsetOutOfRangeError,
    PartitionNotFoundError,
    StorageOfflineError,
    UnreadableLogError,
)
from logbrook.storage.log import Log
from logbrook.storage.partition_files import (
    PartitionState,
    RecoveryPoint,
    prepare_state,
    publish_states,
    write_snapshot,
)
from logbrook.storage.paths import TEMPORARY_SUFFIX
from logbrook.storage.segment import Segment

_COPY_BYTES = 1 << 20


def truncate(log: Log, offset: Offset) -> int:
    """Remove every batch with a last offset of at least `offset`. Returns the new log end offset.

    Batches are removed whole, so the new log end offset may be below `offset`. Raises PartitionNotFoundError if the log
    is deleted, OffsetOutOfRangeError below the log start offset, DiskFullError with the log unchanged,
    StorageOfflineError, or CorruptLogError, also if the cut is where the disk could not read the log.
    """
    _check(log, offset)
    if offset >= log.log_end_offset:
        return log.log_end_offset
    log.environment.health.check_writable()
    try:
        number, target, position, offset = _find_cut(log, offset)
        log.sync_segments()
        floor = RecoveryPoint(offset, target.base_offset, position)
        new_state = truncated_state(log, floor)
        if target is not log.active:
            _copy_head(log, target, position)
        prepared = prepare_state(log.environment.files, log.partition.directory, new_state)
        log.save_state(replace(log.state, truncate_to=offset))
    except CorruptLogError as error:
        log.quarantine(error)
        raise
    except IO_FAILURES as error:
        raise log.environment.write_error("truncate", log.active.path, 0, error) from error
    try:
        if target is log.active:
            log.active.truncate(position)
        else:
            _reopen(log, number, position)
        publish_states(log.environment.files, [prepared])
        log.log_end_offset = offset
        _apply_state(log, new_state)
        _replace_snapshot(log)
    except CorruptLogError as error:
        log.quarantine(error)
        raise
    except IO_FAILURES as error:
        failure = StorageOfflineError("truncate", log.active.path, error) if isinstance(error, OSError) else error
        log.environment.health.fail(failure)
        raise failure from error
    return offset


def _check(log: Log, offset: Offset) -> None:
    """Raises as `truncate` does."""
    if log.is_deleted:
        raise PartitionNotFoundError(log.partition)
    if offset < log.log_start_offset:
        raise OffsetOutOfRangeError(log.partition, offset, log.log_start_offset, log.log_end_offset)
    if isinstance(log.corruption, UnreadableLogError) and log.corruption.offset < offset < log.log_end_offset:
        # Where the cut would be in a file is unknown.
        raise log.corruption


def finish_truncation(log: Log) -> None:
    """Complete a truncation in recovery, which has already cut the files. Raises StorageError."""
    floor = RecoveryPoint(log.log_end_offset, log.active.base_offset, log.active.size)
    new_state = truncated_state(log, floor)
    log.save_state(new_state)
    _apply_state(log, new_state)


def truncated_state(log: Log, floor: RecoveryPoint) -> PartitionState:
    quarantine = log.state.quarantine
    if quarantine is not None:
        quarantine = replace(quarantine, durable_offset=min(quarantine.durable_offset, floor.offset))
    return replace(
        log.state,
        quarantine=quarantine,
        floor_number=log.environment.durability.skip_number(),
        floor=floor,
        truncate_to=None,
        cleaned_offset=min(log.state.cleaned_offset, floor.offset),
    )


def _apply_state(log: Log, new_state: PartitionState) -> None:
    log.state = new_state
    log.recovery_point = new_state.floor
    # Everything below the cut was synced first, so it is committed even if pending appends fail.
    log.reset_committed_offset(log.log_end_offset)
    log.epochs.truncate_end(log.log_end_offset)
    log.rebuild_producers()
    log.producers.advance_high_watermark(log.high_watermark)
    log.synced_stable_offset = log.producers.first_unstable_offset(log.log_end_offset)


def _replace_snapshot(log: Log) -> None:
    """Replace the snapshot, which covers truncated records.

    Without a snapshot, producer state is rebuilt from the batches in the log only, and retention may remove those.
    """
    try:
        write_snapshot(log.environment.files, log.partition.directory, log.take_snapshot(), "truncation")
    except OSError as error:
        if not is_disk_full(error):
            raise
    else:
        log.snapshot_version = log.state_version


def _find_cut(log: Log, offset: Offset) -> tuple[int, Segment, int, Offset]:
    """Return (index of the segment, the segment, position of the cut in it, new log end offset)."""
    number = log.segment_of(offset)
    target = log.segments[number]
    position = target.position_of(offset)
    first_removed = next((batch.header.base_offset for batch in islice(target.batches(position), 1)), offset)
    return number, target, position, max(log.log_start_offset, min(offset, first_removed))


def _copy_head(log: Log, target: Segment, position: int) -> None:
    """Copy the part of a closed segment below the cut to a temporary file."""
    with closing(create_or_replace(log.environment.files, target.path + TEMPORARY_SUFFIX)) as file:
        for start in range(0, position, _COPY_BYTES):
            file.pwrite(target.read(start, min(_COPY_BYTES, position - start)).data, start)
        sync_file(file)


def _reopen(log: Log, number: int, position: int) -> None:
    """Replace closed segment `number` by its copy, as the active segment, and retire all later segments."""
    files = log.environment.files
    target, later = log.closed[number], log.closed[number + 1 :]
    log.active.close()
    for segment in (*later, log.as_closed(log.active.base_offset, log.active.size)):
        log.retire(segment, 0)
    target.forget()
    sync_directory(files, log.partition.directory)
    files.rename(target.path + TEMPORARY_SUFFIX, target.path)
    sync_directory(files, log.partition.directory)
    active = log.new_active(target.base_offset)
    active.open_at(position)
    active.reset_age_if_empty()
    log.closed, log.active = log.closed[:number], active
