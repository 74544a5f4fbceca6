"""Cutting the end off a log: what a follower does with records that its leader never had.

A truncation must not be undone by a crash: neither the write-ahead log nor a checkpoint may bring back what was cut.
So it is written down three times over: everything below the cut is synced, the intent is saved, the bytes are cut and
synced, and the new end is saved as the floor that everything older is measured against. After a crash in between,
recovery finds the intent and carries it out.
"""

from contextlib import suppress
from dataclasses import replace
from itertools import islice

from logbrook.records.batch import NO_PRODUCER_ID
from logbrook.storage.checkpoints import begin_sync
from logbrook.storage.disk_errors import IO_FAILURES, sync_directory, sync_file
from logbrook.storage.errors import OffsetOutOfRangeError
from logbrook.storage.log import Log
from logbrook.storage.partition_files import RecoveryPoint
from logbrook.storage.paths import TEMPORARY_SUFFIX
from logbrook.storage.producers import Producers
from logbrook.storage.sealed_json import create_anew

_COPY_BYTES = 1 << 20


def truncate(log: Log, offset: int) -> int:
    """Remove every batch that holds `offset` or a later one. Returns the new log end offset.

    A batch is removed whole, so the new end may be below `offset`. Raises OffsetOutOfRangeError below the log's start,
    DiskFullError or StorageOfflineError.
    """
    if offset < log.log_start_offset:
        raise OffsetOutOfRangeError(log.partition, offset, log.log_start_offset, log.log_end_offset)
    if offset >= log.log_end_offset:
        return log.log_end_offset
    log.environment.health.refuse_if_offline()
    number = log.segment_of(offset)
    target = log.segments[number]
    position = target.position_of(offset)
    offset = min((hop.header.base_offset for hop in islice(target.hops(position), 1)), default=offset)
    try:
        sync = begin_sync(log)
        if sync is not None:
            sync.run(log.environment.files)
        log.save_state(replace(log.state, truncate_to=offset))
        if target is log.active:
            log.active.truncate(position)
        else:
            _reopen(log, number, position)
        log.log_end_offset = offset
    except IO_FAILURES as error:
        raise log.environment.write_error("truncate", log.active.path, 0, error) from error
    settle(log)
    return log.log_end_offset


def settle(log: Log) -> None:
    """Make the log's present end the floor, once the bytes past it are gone for good."""
    floor = RecoveryPoint(log.log_end_offset, log.active.base_offset, log.active.size)
    number = log.environment.durability.skip_number()
    cleaned_offset = min(log.state.cleaned_offset, log.log_end_offset)
    log.save_state(
        replace(log.state, floor_number=number, floor=floor, truncate_to=None, cleaned_offset=cleaned_offset)
    )
    log.recovery_point = floor
    log.draw_commit_line(min(log.high_watermark, log.log_end_offset))
    log.epochs.cut_end(log.log_end_offset)
    replay_producers(log)


def replay_producers(log: Log) -> None:
    """Make the producers' state anew from the batches that are in the log."""
    log.producers = Producers(log.partition)
    for segment in log.segments:
        for hop in segment.hops():
            if hop.header.producer_id != NO_PRODUCER_ID:
                log.producers.replay(hop.header, hop.header.base_offset)
    log.state_version += 1


def _reopen(log: Log, number: int, position: int) -> None:
    """Make the first `position` bytes of a closed segment the active one, and retire all that comes after.

    The closed segment may be mapped, so it is not cut but replaced by a copy: a reader of the mapping keeps the whole.
    """
    environment = log.environment
    files = environment.files
    target, later = log.closed[number], log.closed[number + 1 :]
    data = target.read(0, position).data
    temporary = target.path + TEMPORARY_SUFFIX
    file = create_anew(files, temporary)
    try:
        for start in range(0, position, _COPY_BYTES):
            file.pwrite(data[start : start + _COPY_BYTES], start)
        sync_file(file)
    finally:
        file.close()
    log.active.close()
    for segment in (*later, log.as_closed(log.active.base_offset, log.active.size)):
        log.retire(segment, 0)
    target.forget()
    with suppress(FileNotFoundError):
        files.unlink(target.index_path)
    sync_directory(files, log.partition.directory)
    files.rename(temporary, target.path)
    sync_directory(files, log.partition.directory)
    active = log.new_active(target.base_offset)
    active.open_at(position)
    log.closed, log.active = log.closed[:number], active
