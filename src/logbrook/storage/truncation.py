"""Cutting the end off a log: what a follower does with records that its leader never had.

A truncation must not be undone by a crash: neither the write-ahead log nor a checkpoint may bring back what was cut.
Nor may it be done half: once it is decided, a crash leads to the cut log. So everything below the cut is synced, all
that needs room on the disk is written beside what is there, the intent is saved, and then the bytes are cut and the new
end is saved as the floor that everything older is measured against. A full disk refuses it before the intent; after the
intent there is no way back, and recovery carries it out.
"""

from dataclasses import replace
from itertools import islice

from logbrook.storage.disk_errors import IO_FAILURES, is_disk_full, sync_directory, sync_file
from logbrook.storage.errors import CorruptLogError, OffsetOutOfRangeError, StorageOfflineError
from logbrook.storage.log import Log
from logbrook.storage.partition_files import (
    PartitionState,
    RecoveryPoint,
    prepare_state,
    publish_states,
    write_snapshot,
)
from logbrook.storage.paths import TEMPORARY_SUFFIX
from logbrook.storage.replay import replay_producers
from logbrook.storage.sealed_json import create_anew
from logbrook.storage.segment import Segment

_COPY_BYTES = 1 << 20


def truncate(log: Log, offset: int) -> int:
    """Remove every batch that holds `offset` or a later one. Returns the new log end offset.

    A batch is removed whole, so the new end may be below `offset`. Raises OffsetOutOfRangeError below the log's start,
    DiskFullError, after which the log is as it was, StorageOfflineError, or CorruptLogError.
    """
    if offset < log.log_start_offset:
        raise OffsetOutOfRangeError(log.partition, offset, log.log_start_offset, log.log_end_offset)
    if offset >= log.log_end_offset:
        return log.log_end_offset
    log.environment.health.refuse_if_offline()
    try:
        number, target, position, offset = _find_cut(log, offset)
        log.sync_segments()
        floor = RecoveryPoint(offset, target.base_offset, position)
        settled = settled_state(log, floor)
        if target is not log.active:
            _copy_head(log, target, position)
        prepared = prepare_state(log.environment.files, log.partition.directory, settled)
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
        _settle(log, settled)
        _renew_snapshot(log)
    except CorruptLogError as error:
        log.quarantine(error)
        raise
    except IO_FAILURES as error:
        failure = StorageOfflineError("truncate", log.active.path, error) if isinstance(error, OSError) else error
        log.environment.health.fail(failure)
        raise failure from error
    return offset


def finish_truncation(log: Log) -> None:
    """For recovery: the bytes past the log's end are gone; make that end the floor. Raises StorageError."""
    floor = RecoveryPoint(log.log_end_offset, log.active.base_offset, log.active.size)
    settled = settled_state(log, floor)
    log.save_state(settled)
    _settle(log, settled)


def settled_state(log: Log, floor: RecoveryPoint) -> PartitionState:
    return replace(
        log.state,
        floor_number=log.environment.durability.skip_number(),
        floor=floor,
        truncate_to=None,
        cleaned_offset=min(log.state.cleaned_offset, floor.offset),
    )


def _settle(log: Log, settled: PartitionState) -> None:
    log.state = settled
    log.recovery_point = settled.floor
    # Everything below the cut was synced first, so it is committed, whatever became of the tickets.
    log.draw_commit_line(log.log_end_offset)
    log.epochs.cut_end(log.log_end_offset)
    replay_producers(log)
    log.decided_offset = log.producers.decided_before(log.log_end_offset)


def _renew_snapshot(log: Log) -> None:
    """The one on disk speaks of records that were cut. Without a new one producers would be known only by the batches
    that are still in the log, and retention may take those."""
    try:
        write_snapshot(log.environment.files, log.partition.directory, log.take_snapshot(), "truncation")
    except OSError as error:
        if not is_disk_full(error):
            raise
    else:
        log.snapshot_version = log.state_version


def _find_cut(log: Log, offset: int) -> tuple[int, Segment, int, int]:
    """(the segment's number, the segment, the position in it, the log's new end)."""
    number = log.segment_of(offset)
    target = log.segments[number]
    position = target.position_of(offset)
    first_cut = next((hop.header.base_offset for hop in islice(target.hops(position), 1)), offset)
    return number, target, position, max(log.log_start_offset, min(offset, first_cut))


def _copy_head(log: Log, target: Segment, position: int) -> None:
    """Write what stays of a closed segment beside it.

    The closed segment may be mapped, so it is not cut but replaced by a copy: a reader of the mapping keeps the whole.
    """
    data = target.read(0, position).data
    file = create_anew(log.environment.files, target.path + TEMPORARY_SUFFIX)
    try:
        for start in range(0, position, _COPY_BYTES):
            file.pwrite(data[start : start + _COPY_BYTES], start)
        sync_file(file)
    finally:
        file.close()


def _reopen(log: Log, number: int, position: int) -> None:
    """Put the copy in the place of closed segment `number`, as the active one, and retire all that comes after."""
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
    active.forget_age_if_empty()
    log.closed, log.active = log.closed[:number], active
