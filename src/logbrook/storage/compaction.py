"""Compaction: of every key the newest record stays, at its offset.

    compaction = plan_compaction(log, now_ms)      what is to be done, if anything
    compaction.build_map()                         reads the part that was never compacted
    for group in compaction.groups():              a group of old segments becomes one new segment
        compaction.apply(compaction.rewrite(group))
    compaction.finish()                            remembers how far it came

`build_map` and `rewrite` only read closed segments and write a new file, so they may run in another thread; the other
steps belong to the log's owner. `compact` does all of it at once. The rules:

- Only closed segments are touched, and only what is committed, stable and synced.
- Offsets never change; a batch that loses records keeps its base offset and its last offset.
- A tombstone stays for `delete.retention.ms` after it is first compacted, so that a reader that is behind sees the
  deletion; the time is kept in its batch, as KIP-534 does. By then no older record of its key is left.
- Records of an aborted transaction go, and supersede nothing; those of a committed one are like any other. The marker
  that decides must be synced.
- A transaction's marker stays as long as a batch of the transaction does, and `delete.retention.ms` longer. That of an
  abort stays until the log is durably rid of the abort: who is told of one skips its producer up to the marker. Other
  control batches stay.
- The last batch of every producer among what is compacted stays, with no records in it if need be, and so does its last
  marker: what comes after it may not be durable yet.
- A batch that cannot be decoded stays as it is: it is its writer's, and nobody here knows what is in it.
- The old segments go when the new one is complete and synced; see `swap`.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from logbrook.config import CleanupPolicy
from logbrook.ports import Advice, File
from logbrook.records.batch import BatchHeader
from logbrook.records.builder import rebuild_batch
from logbrook.records.errors import RecordsError
from logbrook.records.reader import iter_records
from logbrook.records.record import RawRecord
from logbrook.storage.closed_segment import ClosedSegment
from logbrook.storage.compacted_transactions import CompactedTransactions, is_marker
from logbrook.storage.disk_errors import IO_FAILURES, sync_file
from logbrook.storage.errors import CorruptLogError, OvertakenError, StorageError, StorageOfflineError
from logbrook.storage.log import Log
from logbrook.storage.offset_map import OffsetMap
from logbrook.storage.paths import TEMPORARY_SUFFIX
from logbrook.storage.scan import ScannedBatch, scan_batches, scan_headers
from logbrook.storage.sealed_json import create_anew
from logbrook.storage.segment import OFFSET_DELTA_MAX
from logbrook.storage.swap import commit_swap, finish_swap

_BUFFER_BYTES = 1 << 20
_TIME_MAX_MS = 2**63 - 1
_CLEANED_SUFFIX = ".cleaned" + TEMPORARY_SUFFIX


class Span(NamedTuple):
    """A closed segment and the offset at which the one after it begins."""

    segment: ClosedSegment
    end_offset: int


class Group(NamedTuple):
    """Neighbouring segments that fit into one, and the offset at which the segment after them begins."""

    segments: list[ClosedSegment]
    end_offset: int


class Rewritten(NamedTuple):
    """A group's new segment, synced, under a temporary name. Without a path nothing would have changed."""

    group: Group
    path: str | None
    bytes_read: int
    bytes_written: int


class Compacted(NamedTuple):
    """What a compaction did."""

    segments_before: int
    segments_after: int
    bytes_read: int
    bytes_written: int
    cleaned_offset: int


def compact(log: Log, now_ms: int, *, force: bool = False) -> Compacted | None:
    """Compact what can be, in one go. None when there is nothing to do.

    With `force` the dirty ratio is not asked for. Raises DiskFullError, StorageOfflineError or CorruptLogError.
    """
    compaction = plan_compaction(log, now_ms, force=force)
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


def plan_compaction(log: Log, now_ms: int, *, force: bool = False) -> "Compaction | None":
    """What to compact now, or None when the policy, the dirty ratio or the lag says that there is nothing.

    Raises StorageOfflineError, ReadFailedError, or CorruptLogError, with which the log is quarantined.
    """
    log.environment.health.refuse_if_offline()
    if CleanupPolicy.COMPACT not in log.config.cleanup_policy or log.corruption is not None:
        return None
    try:
        return _plan(log, now_ms, force)
    except CorruptLogError as error:
        log.quarantine(error)
        raise
    except IO_FAILURES as error:
        raise log.environment.read_error(log.partition.directory, error) from error


def _plan(log: Log, now_ms: int, force: bool) -> "Compaction | None":
    limit = min(log.last_stable_offset, log.recovery_point.offset, log.decided_offset)
    first_dirty = max(log.state.cleaned_offset, log.log_start_offset)
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
    if dirty_bytes == 0 or (not force and dirty_bytes < log.config.min_cleanable_dirty_ratio * total_bytes):
        return None
    return Compaction(log, spans, first_dirty, now_ms)


class Compaction:
    """One pass over a log."""

    def __init__(self, log: Log, spans: list[Span], first_dirty_offset: int, now_ms: int) -> None:
        self._log = log
        self._spans = spans
        self._first_dirty_offset = first_dirty_offset
        self._end_offset = spans[-1].end_offset
        self._now_ms = now_ms
        self._floor_number = log.state.floor_number
        self._map = OffsetMap(log.environment.config.compaction_map_bytes_max)
        self._producer_ids = log.producers.ids()
        self._last_batches: dict[tuple[int, bool], int] = {}
        aborted = log.producers.aborted.overlapping(spans[0].segment.base_offset, self._end_offset)
        self._transactions = CompactedTransactions(aborted, log.aborted_removed_version <= log.snapshot_version)
        self._done = Compacted(0, 0, 0, 0, first_dirty_offset)

    def build_map(self) -> None:
        """Learn the newest offset of every key, from the dirty part, as far as there is memory.

        Where the memory ends the pass ends too, between two batches: the next one goes on from there. Raises
        CorruptLogError, OvertakenError or ReadFailedError.
        """
        for segment, end_offset in self._spans:
            self._note_last_batches(segment)
            if end_offset > self._first_dirty_offset and not self._add_to_map(segment):
                return

    def _note_last_batches(self, segment: ClosedSegment) -> None:
        file = self._open(segment)
        try:
            for header in scan_headers(file, 0, segment.size):
                if header.producer_id in self._producer_ids:
                    self._last_batches[header.producer_id, header.is_control] = header.base_offset
        except OSError as error:
            raise self._log.environment.read_error(segment.path, error) from error
        finally:
            file.close()

    def _add_to_map(self, segment: ClosedSegment) -> bool:
        """False when there was no room for all of it."""
        for batch in self._scan(segment):
            header = batch.header
            if header.last_offset < self._first_dirty_offset or header.is_control:
                continue
            if header.is_transactional and self._transactions.is_aborted(header):
                continue
            if header.count > self._map.room and len(self._map):
                self._end_offset = header.base_offset
                return False
            for record in self._records(batch) or ():
                if record.key is not None:
                    self._map.put(record.key, record.offset)
        return True

    def groups(self) -> Iterator[Group]:
        """Runs of segments that, as they are, fit into one of `segment.bytes`."""
        run: list[Span] = []
        size = 0
        for span in self._spans:
            if span.segment.base_offset >= self._end_offset:
                break
            fits = size + span.segment.size <= self._log.config.segment_bytes
            if run and (not fits or span.end_offset - run[0].segment.base_offset > OFFSET_DELTA_MAX):
                yield Group([one.segment for one in run], run[-1].end_offset)
                run, size = [], 0
            run.append(span)
            size += span.segment.size
        if run:
            yield Group([one.segment for one in run], run[-1].end_offset)

    def rewrite(self, group: Group) -> Rewritten:
        """Write the group's records that stay into a new file.

        Raises CorruptLogError, OvertakenError, DiskFullError or StorageOfflineError.
        """
        environment = self._log.environment
        path = f"{group.segments[0].path}{_CLEANED_SUFFIX}"
        try:
            file = create_anew(environment.files, path)
            try:
                position, is_same = 0, True
                pending = bytearray()
                for segment in group.segments:
                    for batch in self._scan(segment):
                        kept = self._keep(batch)
                        is_same = is_same and kept is batch.data
                        pending += kept
                        if len(pending) >= _BUFFER_BYTES:
                            file.pwrite(pending, position)
                            position += len(pending)
                            pending = bytearray()
                file.pwrite(pending, position)
                position += len(pending)
                sync_file(file)
            finally:
                file.close()
        except IO_FAILURES as error:
            raise self._io_error(path, error) from error
        bytes_read = sum(segment.size for segment in group.segments)
        if is_same and len(group.segments) == 1:
            self._discard(path)
            return Rewritten(group, None, bytes_read, 0)
        return Rewritten(group, path, bytes_read, position)

    def apply(self, rewritten: Rewritten) -> None:
        """Put the new segment in the place of the old ones. Raises DiskFullError or StorageOfflineError."""
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
        if self._is_overtaken or start is None or log.closed[start : start + before] != group.segments:
            # What is left will be compacted by the next pass.
            self._discard(rewritten.path)
            self._transactions.keep_markers()
            return
        base_offset = group.segments[0].base_offset
        due_ms = self._now_ms + log.config.file_delete_delay_ms
        directory = log.partition.directory
        try:
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
        except IO_FAILURES as error:
            raise environment.write_error("compact", rewritten.path, 0, error) from error
        log.closed[start : start + before] = [log.as_closed(base_offset, rewritten.bytes_written)]

    def finish(self) -> Compacted:
        """Remember how far the log is compacted, durably."""
        log = self._log
        if self._end_offset > log.state.cleaned_offset and not self._is_overtaken:
            log.save_state(replace(log.state, cleaned_offset=self._end_offset))
        if self._transactions.gone and not self._is_overtaken:
            log.remove_aborted(self._transactions.gone)
        probe = log.environment.probe
        probe.compactions += 1
        probe.compacted_bytes_read += self._done.bytes_read
        probe.compacted_bytes_written += self._done.bytes_written
        return self._done._replace(cleaned_offset=self._end_offset)

    @property
    def _is_overtaken(self) -> bool:
        """Whether the log was truncated or deleted since, or is about to be.

        A record that superseded others may be gone then, and they must stay.
        """
        state = self._log.state
        return self._log.is_deleted or state.truncate_to is not None or state.floor_number != self._floor_number

    def _keep(self, batch: ScannedBatch) -> memoryview | bytearray:
        """What stays of a batch: the bytes themselves when all of it does, nothing when none of it must."""
        header = batch.header
        if header.base_offset >= self._end_offset:
            return batch.data
        if header.is_control:
            return self._keep_control(batch)
        if not header.is_transactional:
            return self._keep_data(batch)
        is_aborted = self._transactions.is_aborted(header)
        kept = self._keep_nothing(batch) if is_aborted else self._keep_data(batch)
        if kept:
            self._transactions.note_kept(header)
        return kept

    def _keep_data(self, batch: ScannedBatch) -> memoryview | bytearray:
        header = batch.header
        records = self._records(batch)
        if records is None:
            return batch.data
        kept = [record for record in records if self._stays(header, record)]
        horizon_ms = None
        if header.delete_horizon_ms is None and any(record.is_tombstone and record.key is not None for record in kept):
            horizon_ms = self._horizon_ms
        if len(kept) == len(records) and horizon_ms is None and kept:
            return batch.data
        return rebuild_batch(header, kept, delete_horizon_ms=horizon_ms) if kept else self._keep_nothing(batch)

    def _keep_nothing(self, batch: ScannedBatch) -> memoryview | bytearray:
        """No record of a batch stays: then it goes, unless its producer is known by it."""
        header = batch.header
        if not self._is_last(header):
            return bytearray()
        return rebuild_batch(header, []) if header.count else batch.data

    def _keep_control(self, batch: ScannedBatch) -> memoryview | bytearray:
        header = batch.header
        records = self._records(batch)
        if not records or not is_marker(batch):
            return batch.data
        if self._transactions.end(header) or self._is_last(header):
            return batch.data
        if header.delete_horizon_ms is None:
            return rebuild_batch(header, records, delete_horizon_ms=self._horizon_ms)
        is_due = header.delete_horizon_ms <= self._now_ms
        return bytearray() if is_due and self._transactions.may_go(header) else batch.data

    @property
    def _horizon_ms(self) -> int:
        """From when on what is compacted now for the first time may go."""
        return min(self._now_ms + self._log.config.delete_retention_ms, _TIME_MAX_MS)

    def _is_last(self, header: BatchHeader) -> bool:
        """Whether its producer, if the log knows it, has no later batch, or no later marker, that is compacted."""
        return self._last_batches.get((header.producer_id, header.is_control)) == header.base_offset

    def _stays(self, header: BatchHeader, record: RawRecord) -> bool:
        if record.key is None:
            return True
        if not self._map.is_newest(record.key, record.offset):
            return False
        horizon_ms = header.delete_horizon_ms
        return not (record.is_tombstone and horizon_ms is not None and horizon_ms <= self._now_ms)

    def _records(self, batch: ScannedBatch) -> list[RawRecord] | None:
        """None when they cannot be decoded. The checksum holds, so the batch is as its writer sent it."""
        try:
            bytes_max = self._log.environment.config.decompressed_bytes_max
            return list(iter_records(batch.data, bytes_max=bytes_max, with_headers=False))
        except RecordsError:
            return None

    def _scan(self, segment: ClosedSegment) -> Iterator[ScannedBatch]:
        """The batches of a segment, checked. Raises CorruptLogError."""
        position, expected = 0, segment.base_offset
        file = self._open(segment)
        try:
            file.advise(Advice.SEQUENTIAL)
            for batch in scan_batches(file, 0, segment.size):
                yield batch
                position, expected = batch.position + batch.header.size, batch.header.next_offset
        except RecordsError as error:
            if self._is_overtaken:
                raise OvertakenError(self._log.partition) from error
            raise segment.corrupt(position, str(error), expected) from error
        except OSError as error:
            raise self._log.environment.read_error(segment.path, error) from error
        finally:
            file.close()

    def _open(self, segment: ClosedSegment) -> File:
        try:
            return self._log.environment.files.open(segment.path)
        except FileNotFoundError as error:
            if self._is_overtaken or not self._log.holds(segment.path):
                # Retention has taken it, or a truncation.
                raise OvertakenError(self._log.partition) from error
            raise self._log.environment.read_error(segment.path, error) from error
        except OSError as error:
            raise self._log.environment.read_error(segment.path, error) from error

    def _io_error(self, path: str, error: OSError | StorageOfflineError) -> StorageError:
        if self._is_overtaken and isinstance(error, FileNotFoundError):
            return OvertakenError(self._log.partition)
        return self._log.environment.write_error("compact", path, 0, error)

    def _discard(self, path: str) -> None:
        try:
            with suppress(FileNotFoundError):
                self._log.environment.files.unlink(path)
        except OSError as error:
            raise self._io_error(path, error) from error
