"""Log compaction: keeps the newest record of every key, at its offset.

    compaction = plan_compaction(log, now_ms)      selects the segments, or None
    compaction.build_map()                         reads the dirty part: key -> newest offset
    for group in compaction.groups():              each group of old segments becomes one new segment
        compaction.apply(compaction.rewrite(group))
    compaction.finish()                            saves the cleaned offset

`build_map` and `rewrite` only read closed segments and write a new file, so they may run in another thread; the other
steps run on the log owner's thread. `compact` does all steps. A `Cleaner` decides which bytes stay (`cleaner`, in pure
Python, or the worker process of `logbrook.compactor`); this module writes, syncs and swaps the files. The rules:

- Only closed segments are compacted, and only below the last stable offset and the recovery point.
- Offsets do not change. A batch that loses records keeps its base offset and last offset.
- A tombstone is kept for `delete.retention.ms` after its first compaction, so that a lagging reader sees the deletion;
  the deadline is the batch's delete horizon (KIP-534). The first compaction has removed the older records of its key.
- Records of aborted transactions are removed and supersede nothing; records of committed ones are treated like others.
  Transactions whose marker is not synced are not compacted, because a power loss would undo the decision.
- A transaction marker is kept as long as a batch of its transaction, and `delete.retention.ms` longer. An abort marker
  is also kept until the transaction's removal from the transaction index is durable: a reader that receives the aborted
  transaction skips its producer's records up to the marker. Other control batches are kept.
- The last batch and the last marker of every producer in the compacted range are kept, without records if necessary:
  they carry the producer state that recovery rebuilds if later batches are lost.
- A batch that cannot be decoded is kept as it is.
- The old segments are removed after the new one is complete and synced; see `segment_files`.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from logbrook.config import CleanupPolicy
from logbrook.model.identifiers import Offset
from logbrook.ports import Advice, Bytes, File, Files
from logbrook.records.batch import BatchHeader, TimestampType
from logbrook.records.errors import RecordsError
from logbrook.storage.cleaner import Cleaner, CleaningJob, PureCleaner, SegmentSpan
from logbrook.storage.closed_segment import ClosedSegment
from logbrook.storage.durable_files import IO_FAILURES, create_or_replace, sync_file
from logbrook.storage.errors import (
    CleanerFailedError,
    CorruptLogError,
    LogModifiedError,
    StorageError,
    StorageOfflineError,
)
from logbrook.storage.log import Log
from logbrook.storage.paths import TEMPORARY_SUFFIX
from logbrook.storage.segment import OFFSET_DELTA_MAX, VerifiedBatch, scan_batches, scan_headers
from logbrook.storage.segment_files import commit_swap, finish_swap

_CLEANED_SUFFIX = ".cleaned" + TEMPORARY_SUFFIX


class Span(NamedTuple):
    """A closed segment and the base offset of the next one."""

    segment: ClosedSegment
    end_offset: Offset


class SegmentGroup(NamedTuple):
    """Adjacent segments that fit into one, and the base offset of the segment after them."""

    segments: list[ClosedSegment]
    end_offset: Offset


class RewrittenGroup(NamedTuple):
    """A group's new segment, synced, under a temporary name; `path` is None if compaction would change nothing."""

    group: SegmentGroup
    path: str | None
    bytes_read: int
    bytes_written: int


class CompactionResult(NamedTuple):
    """Totals of a compaction."""

    segments_before: int
    segments_after: int
    bytes_read: int
    bytes_written: int
    cleaned_offset: Offset


# Returns the cleaner for a job on these files; None for the cleaner in pure Python.
Cleaners: TypeAlias = Callable[[Files, CleaningJob], Cleaner | None]


def compact(log: Log, now_ms: int, *, force: bool = False, cleaners: Cleaners | None = None) -> CompactionResult | None:
    """Run all steps of a compaction. Returns None if there is nothing to compact.

    `force` ignores `min.cleanable.dirty.ratio`. If a cleaner of `cleaners` fails, the pass is repeated without it.
    Raises DiskFullError, StorageOfflineError or CorruptLogError.
    """
    if cleaners is not None:
        with suppress(CleanerFailedError):
            return compact_with(log, now_ms, force=force, cleaners=cleaners)
    return compact_with(log, now_ms, force=force)


def compact_with(
    log: Log, now_ms: int, *, force: bool = False, cleaners: Cleaners | None = None
) -> CompactionResult | None:
    """Like `compact`, but raises CleanerFailedError if the cleaner fails."""
    compaction = plan_compaction(log, now_ms, force=force, cleaners=cleaners)
    if compaction is None:
        return None
    try:
        compaction.build_map()
        for group in compaction.groups():
            compaction.apply(compaction.rewrite(group))
    except CorruptLogError as error:
        log.quarantine(error)
        raise
    return compaction.finish()


def plan_compaction(
    log: Log, now_ms: int, *, force: bool = False, cleaners: Cleaners | None = None
) -> "Compaction | None":
    """Select what to compact. Returns None if the cleanup policy, dirty ratio or compaction lag leaves nothing.

    Raises StorageOfflineError, ReadFailedError, or CorruptLogError after quarantining the log.
    """
    log.environment.health.check_writable()
    if CleanupPolicy.COMPACT not in log.config.cleanup_policy or log.corruption is not None:
        return None
    try:
        spans = _select(log, now_ms, force, _synced_limit(log))
        return Compaction(log, spans, _first_dirty_offset(log), now_ms, cleaners) if spans else None
    except CorruptLogError as error:
        log.quarantine(error)
        raise
    except IO_FAILURES as error:
        raise log.environment.read_error(log.partition.directory, error) from error


def waits_for_checkpoint(log: Log, now_ms: int, *, force: bool = False) -> bool:
    """Return True if there is nothing to compact now, and a checkpoint would change that.

    A log that cannot be read waits for nothing: `plan_compaction` reports the error.
    """
    if CleanupPolicy.COMPACT not in log.config.cleanup_policy or log.corruption is not None:
        return False
    try:
        return not _select(log, now_ms, force, _synced_limit(log)) and bool(
            _select(log, now_ms, force, log.last_stable_offset)
        )
    except (StorageError, *IO_FAILURES):
        return False


def _synced_limit(log: Log) -> Offset:
    """Return the offset below which records, and the outcome of their transactions, survive a power loss."""
    return min(log.last_stable_offset, log.recovery_point.offset, log.synced_stable_offset)


def _first_dirty_offset(log: Log) -> Offset:
    return max(log.state.cleaned_offset, log.log_start_offset)


def _select(log: Log, now_ms: int, force: bool, limit: Offset) -> list[Span]:
    """Return the closed segments to compact, all of which end at or below `limit`; none if too few are dirty."""
    first_dirty = _first_dirty_offset(log)
    spans: list[Span] = []
    dirty_bytes = 0
    for segment, following in zip(log.closed, log.segments[1:], strict=True):
        is_dirty = following.base_offset > first_dirty
        if following.base_offset > limit:
            break
        if is_dirty and segment.max_timestamp > now_ms - log.config.min_compaction_lag_ms:
            break
        spans.append(Span(segment, following.base_offset))
        dirty_bytes += segment.size if is_dirty else 0
    total_bytes = sum(span.segment.size for span in spans)
    if dirty_bytes == 0:
        return []
    is_due = force or dirty_bytes >= log.config.min_cleanable_dirty_ratio * total_bytes
    return spans if is_due or _is_overdue(log, spans, first_dirty, now_ms) else []


def _is_overdue(log: Log, spans: list[Span], first_dirty: Offset, now_ms: int) -> bool:
    """Return True if the oldest dirty record is older than `max.compaction.lag.ms`."""
    before_ms = now_ms - log.config.max_compaction_lag_ms
    if before_ms <= 0:
        return False
    segment = next(span.segment for span in spans if span.end_offset > first_dirty)
    first = next(segment.batches(segment.position_of(first_dirty)), None)
    if first is None:
        return False
    is_append_time = first.header.timestamp_type is TimestampType.LOG_APPEND_TIME
    timestamp = first.header.max_timestamp if is_append_time else first.header.base_timestamp
    # Records without a timestamp have no age.
    return 0 <= timestamp < before_ms


class Compaction:
    """One compaction pass over a log: closed segments from the log's start to the end of the dirty part.

    The dirty part starts at the cleaned offset of the last pass. It fills the map; all selected segments are rewritten.
    """

    def __init__(
        self, log: Log, spans: list[Span], first_dirty_offset: Offset, now_ms: int, cleaners: Cleaners | None = None
    ) -> None:
        self._log = log
        self._spans = spans
        self._end_offset = spans[-1].end_offset
        self._now_ms = now_ms
        self._floor_number = log.state.floor_number
        self._done = CompactionResult(0, 0, 0, 0, first_dirty_offset)
        environment = log.environment
        aborted = log.producers.aborted.overlapping(spans[0].segment.base_offset, self._end_offset)
        job = CleaningJob(
            [SegmentSpan(segment.path, segment.size, end_offset) for segment, end_offset in spans],
            first_dirty_offset,
            now_ms,
            log.config.delete_retention_ms,
            environment.config.compaction_map_bytes_max,
            environment.config.decompressed_bytes_max,
            log.producers.ids(),
            list(aborted),
            log.aborted_removed_version <= log.snapshot_version,
        )
        cleaner = None if cleaners is None else cleaners(environment.files, job)
        self._cleaner: Cleaner = cleaner or PureCleaner(job, self)
        self._segments = {segment.path: segment for segment, _ in spans}

    def build_map(self) -> None:
        """Read the newest offset of every key from the dirty part of the log.

        When the map is full, the pass ends at that batch and the next pass continues there. Raises CorruptLogError,
        LogModifiedError, ReadFailedError or CleanerFailedError.
        """
        self._end_offset = self._cleaner.build_map()

    def groups(self) -> Iterator[SegmentGroup]:
        """Group adjacent segments whose current sizes fit into one segment of `segment.bytes`."""
        run: list[Span] = []
        size = 0
        for span in self._spans:
            if span.segment.base_offset >= self._end_offset:
                break
            fits = size + span.segment.size <= self._log.config.segment_bytes
            if run and (not fits or span.end_offset - run[0].segment.base_offset > OFFSET_DELTA_MAX):
                yield SegmentGroup([span.segment for span in run], run[-1].end_offset)
                run, size = [], 0
            run.append(span)
            size += span.segment.size
        if run:
            yield SegmentGroup([span.segment for span in run], run[-1].end_offset)

    def rewrite(self, group: SegmentGroup) -> RewrittenGroup:
        """Write a group's remaining batches into a new, synced file with a temporary name.

        Raises CorruptLogError, LogModifiedError, DiskFullError, StorageOfflineError or CleanerFailedError.
        """
        environment = self._log.environment
        path = f"{group.segments[0].path}{_CLEANED_SUFFIX}"
        position = 0

        def write(kept: Bytes) -> None:
            nonlocal position
            file.pwrite(kept, position)
            position += len(kept)

        try:
            with closing(create_or_replace(environment.files, path)) as file:
                is_same = self._cleaner.clean([segment.path for segment in group.segments], write)
                sync_file(file)
        except IO_FAILURES as error:
            raise self._io_error(path, error) from error
        bytes_read = sum(segment.size for segment in group.segments)
        if is_same and len(group.segments) == 1:
            self._discard(path)
            return RewrittenGroup(group, None, bytes_read, 0)
        return RewrittenGroup(group, path, bytes_read, position)

    def apply(self, rewritten: RewrittenGroup) -> None:
        """Replace the group's segments by the new one, unless the log was truncated or deleted meanwhile.

        Raises DiskFullError or StorageOfflineError.
        """
        log, environment = self._log, self._log.environment
        group = rewritten.group
        before = len(group.segments)
        done = self._done
        self._done = done._replace(
            segments_before=done.segments_before + before,
            segments_after=done.segments_after + 1,
            bytes_read=done.bytes_read + rewritten.bytes_read,
            bytes_written=done.bytes_written + rewritten.bytes_written,
        )
        if rewritten.path is None:
            return
        start = next((n for n, segment in enumerate(log.closed) if segment is group.segments[0]), None)
        if self._is_outdated or start is None or log.closed[start : start + before] != group.segments:
            # The log has changed since; the next pass compacts these segments.
            self._discard(rewritten.path)
            self._cleaner.keep_markers()
            return
        base_offset = group.segments[0].base_offset
        due_ms = self._now_ms + log.config.file_delete_delay_ms
        directory = log.partition.directory
        with environment.writing("compact", rewritten.path):
            commit_swap(environment.files, directory, rewritten.path, base_offset, group.end_offset)
            for segment in group.segments:
                segment.forget()
            finish_swap(
                environment.files,
                directory,
                base_offset,
                group.end_offset,
                [segment.base_offset for segment in group.segments[1:]],
                lambda path: environment.remover.retire(path, due_ms),
            )
        log.closed[start : start + before] = [log.as_closed(base_offset, rewritten.bytes_written)]

    def finish(self) -> CompactionResult:
        """Save the cleaned offset durably and remove emptied transactions from the transaction index."""
        log = self._log
        if self._end_offset > log.state.cleaned_offset and not self._is_outdated:
            log.save_state(replace(log.state, cleaned_offset=self._end_offset))
        if self._cleaner.emptied and not self._is_outdated:
            log.remove_aborted(self._cleaner.emptied)
        probe = log.environment.probe
        probe.compactions += 1
        probe.compacted_bytes_read += self._done.bytes_read
        probe.compacted_bytes_written += self._done.bytes_written
        return self._done._replace(cleaned_offset=self._end_offset)

    @property
    def _is_outdated(self) -> bool:
        """True if the log was deleted or truncated, or a truncation has begun, since the pass was planned.

        The offset map may contain truncated records; the records that these superseded must be kept.
        """
        state = self._log.state
        return self._log.is_deleted or state.truncate_to is not None or state.floor_number != self._floor_number

    def scan_headers(self, path: str) -> Iterator[BatchHeader]:
        """Read the batch headers of a segment, unverified. Raises LogModifiedError or ReadFailedError."""
        segment = self._segments[path]
        with closing(self._open(segment)) as file:
            try:
                yield from scan_headers(file, 0, segment.size)
            except OSError as error:
                raise self._log.environment.read_error(segment.path, error) from error

    def scan_batches(self, path: str) -> Iterator[VerifiedBatch]:
        """Read the batches of a segment and verify their checksums. Raises CorruptLogError or LogModifiedError."""
        segment = self._segments[path]
        position, expected = 0, segment.base_offset
        file = self._open(segment)
        try:
            file.advise(Advice.SEQUENTIAL)
            for batch in scan_batches(file, 0, segment.size):
                yield batch
                position, expected = batch.position + batch.header.size, batch.header.next_offset
        except RecordsError as error:
            if self._is_outdated:
                raise LogModifiedError(self._log.partition) from error
            raise segment.corrupt(position, str(error), expected) from error
        except OSError as error:
            raise self._log.environment.read_error(segment.path, error) from error
        finally:
            file.close()

    def _open(self, segment: ClosedSegment) -> File:
        try:
            return self._log.environment.files.open(segment.path)
        except OSError as error:
            is_removed = self._is_outdated or not self._log.has_segment(segment.path)
            if isinstance(error, FileNotFoundError) and is_removed:
                # By retention or a truncation.
                raise LogModifiedError(self._log.partition) from error
            raise self._log.environment.read_error(segment.path, error) from error

    def _io_error(self, path: str, error: OSError | StorageOfflineError) -> StorageError:
        if self._is_outdated and isinstance(error, FileNotFoundError):
            return LogModifiedError(self._log.partition)
        return self._log.environment.write_error("compact", path, 0, error)

    def _discard(self, path: str) -> None:
        try:
            with suppress(FileNotFoundError):
                self._log.environment.files.unlink(path)
        except OSError as error:
            raise self._io_error(path, error) from error
