"""Retention: old segments go, whole, oldest first.

A segment may go when all of it is below the log's start, and, where the topic's policy is `delete`, when its newest
record is too old or the log is too large without it. It never goes while the high watermark or the recovery point has
not passed it: what nobody has been able to read, and what a crash would bring back, stays.
"""

from collections.abc import Iterator
from typing import NamedTuple

from logbrook.config import UNLIMITED, CleanupPolicy
from logbrook.storage.closed_segment import ClosedSegment
from logbrook.storage.disk_errors import IO_FAILURES
from logbrook.storage.errors import CorruptLogError, DiskFullError
from logbrook.storage.log import Log


class Retained(NamedTuple):
    """What one step removed, and where the log starts now."""

    removed: list[str]
    bytes_removed: int
    log_start_offset: int
    rolled: bool


def apply_retention(log: Log, now_ms: int, segments_max: int = 64) -> Retained:
    """One step: close the active segment if its time has come, and remove up to `segments_max` closed ones.

    It needs no room on the disk. Raises StorageOfflineError, ReadFailedError, or CorruptLogError, with which the log
    is quarantined.
    """
    log.environment.health.refuse_if_failed()
    if log.corruption is not None:
        raise log.corruption.with_traceback(None)
    try:
        rolled = _roll_if_old(log, now_ms)
        removable = list(_removable(log, now_ms, segments_max))
        bytes_removed = sum(segment.size for segment in removable)
    except CorruptLogError as error:
        log.quarantine(error)
        raise
    except IO_FAILURES as error:
        raise log.environment.read_error(log.partition.directory, error) from error
    removed: list[str] = []
    if removable:
        # First the decision, durably, then the files: a crash in between leaves files that the next step removes.
        start = _end_offset(log, len(removable) - 1)
        if start > log.log_start_offset:
            try:
                log.delete_before(start)
            except DiskFullError:
                # There is no room to write it down, and no other way to make room. The names will tell: a log starts
                # no earlier than its first segment does.
                log.start_at(start)
        removed = log.remove_segments(len(removable), now_ms + log.config.file_delete_delay_ms)
    return Retained(removed, bytes_removed, log.log_start_offset, rolled)


def _roll_if_old(log: Log, now_ms: int) -> bool:
    active, config = log.active, log.config
    if active.size == 0:
        return False
    is_old = active.first_append_ms is not None and now_ms - active.first_append_ms >= config.segment_ms
    if is_old or (CleanupPolicy.DELETE in config.cleanup_policy and _is_expired(log, active.max_timestamp, now_ms)):
        try:
            log.roll()
        except DiskFullError:
            # Another time. There may be something to remove without it, which makes room.
            return False
        return True
    return False


def _removable(log: Log, now_ms: int, segments_max: int) -> Iterator[ClosedSegment]:
    config = log.config
    deletes = CleanupPolicy.DELETE in config.cleanup_policy
    excess = log.size - config.retention_bytes if config.retention_bytes != UNLIMITED else -1
    limit = min(log.high_watermark, log.recovery_point.offset)
    for number, segment in enumerate(log.closed[:segments_max]):
        end = _end_offset(log, number)
        if end > limit:
            return
        is_excess = excess >= segment.size
        if not (
            end <= log.log_start_offset or (deletes and (is_excess or _is_expired(log, segment.max_timestamp, now_ms)))
        ):
            return
        excess -= segment.size
        yield segment


def _is_expired(log: Log, max_timestamp: int, now_ms: int) -> bool:
    # Records without a timestamp have no age, and are kept.
    return log.config.retention_ms != UNLIMITED and 0 <= max_timestamp < now_ms - log.config.retention_ms


def _end_offset(log: Log, number: int) -> int:
    """Where the segment after closed segment `number` begins."""
    return log.segments[number + 1].base_offset
