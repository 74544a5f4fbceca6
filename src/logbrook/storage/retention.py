"""Retention: removes whole closed segments, oldest first.

A segment is removable when it is wholly below the log start offset, or, with `cleanup.policy=delete`, when its newest
record is older than `retention.ms` or the log exceeds `retention.bytes` without it. It is never removed past the high
watermark or the recovery point: recovery reads the log from there.
"""

from collections.abc import Iterator
from typing import NamedTuple

from logbrook.config import UNLIMITED, CleanupPolicy
from logbrook.model.identifiers import Offset
from logbrook.storage.closed_segment import ClosedSegment
from logbrook.storage.durable_files import IO_FAILURES
from logbrook.storage.errors import CorruptLogError, DiskFullError
from logbrook.storage.log import Log


class RetentionResult(NamedTuple):
    """Result of one retention step."""

    removed: list[str]
    bytes_removed: int
    log_start_offset: Offset
    rolled: bool


def apply_retention(log: Log, now_ms: int, segments_max: int = 64) -> RetentionResult:
    """Roll the active segment if it is due, and remove up to `segments_max` closed segments.

    Works on a full disk. Raises StorageOfflineError, ReadFailedError, or CorruptLogError after quarantining the log.
    """
    log.environment.health.check_not_failed()
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
        # The new log start offset is durable before the files are removed. After a crash in between, the next step
        # removes them.
        start = _end_offset(log, len(removable) - 1)
        if start > log.log_start_offset:
            try:
                log.delete_before(Offset(start))
            except DiskFullError:
                # Removing segments is what frees space. Recovery derives the log start offset from the first segment.
                log.start_at(Offset(start))
        removed = log.remove_segments(len(removable), now_ms + log.config.file_delete_delay_ms)
    return RetentionResult(removed, bytes_removed, log.log_start_offset, rolled)


def _roll_if_old(log: Log, now_ms: int) -> bool:
    active, config = log.active, log.config
    if active.size == 0:
        return False
    is_old = active.first_append_ms is not None and now_ms - active.first_append_ms >= config.roll_ms
    if is_old or (CleanupPolicy.DELETE in config.cleanup_policy and _is_expired(log, active.max_timestamp, now_ms)):
        try:
            log.roll()
        except DiskFullError:
            # Retry in a later step, after removing segments has freed space.
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
    # Records without a timestamp do not expire.
    return log.config.retention_ms != UNLIMITED and 0 <= max_timestamp < now_ms - log.config.retention_ms


def _end_offset(log: Log, number: int) -> int:
    """Return the base offset of the segment after closed segment `number`."""
    return log.segments[number + 1].base_offset
