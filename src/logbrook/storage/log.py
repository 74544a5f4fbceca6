"""The log of one partition: what is appended gets the next offset and stays where it is.

A log is a run of closed segments and one active segment. It belongs to one thread; only the commit line is moved from
elsewhere. Offsets that matter, from low to high:

    log_start_offset    the first that may be read; below it records are gone or going
    last_stable_offset  the first that an open transaction may still undo
    high_watermark      the first that is not committed; readers are not shown more
    log_end_offset      the next to be written
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace

from typing_extensions import Buffer

from logbrook.config import LogConfig, TimestampSource
from logbrook.model import TopicPartition
from logbrook.records.batch import NO_PRODUCER_ID, NO_TIMESTAMP
from logbrook.storage.active_segment import ActiveSegment
from logbrook.storage.batch_set import Checked, Origin, Placed, check_batches, stamp_batches
from logbrook.storage.closed_segment import ClosedSegment
from logbrook.storage.disk_errors import IO_FAILURES, sync_directory
from logbrook.storage.environment import Environment
from logbrook.storage.errors import (
    CorruptLogError,
    OffsetOutOfRangeError,
    PartitionNotFoundError,
    StorageError,
    StorageOfflineError,
)
from logbrook.storage.leader_epochs import LeaderEpochs
from logbrook.storage.log_reading import ReadableLog
from logbrook.storage.log_sync import LogSync
from logbrook.storage.partition_files import PartitionState, Quarantine, RecoveryPoint, Snapshot, write_state
from logbrook.storage.paths import ABORTED
from logbrook.storage.producers import ProducedBatch, Producers
from logbrook.storage.segment import OFFSET_DELTA_MAX
from logbrook.storage.ticket import CommitLine, Ticket


class Log(ReadableLog):
    """Made by recovery or by `LogDirectory.create`, which hand it its parts."""

    def __init__(
        self,
        partition: TopicPartition,
        config: LogConfig,
        environment: Environment,
        state: PartitionState,
        closed: list[ClosedSegment],
        active: ActiveSegment,
        log_end_offset: int,
        epochs: LeaderEpochs,
        producers: Producers,
        recovery_point: RecoveryPoint,
    ) -> None:
        super().__init__(partition, environment, state, closed, active, log_end_offset, producers)
        self.config = config
        self.epochs = epochs
        self.recovery_point = recovery_point
        # Every transaction with records before this is decided by a marker before the recovery point.
        self.decided_offset = 0
        # Why nothing can be appended, if so.
        self.refusal: StorageError | None = None
        # Counts changes to epochs and producers; the snapshot on disk has those up to `snapshot_version`.
        self.state_version = 0
        self.snapshot_version = 0
        # When an aborted transaction was last removed, in that count.
        self.aborted_removed_version = 0
        self._directory = partition.directory.encode()

    @property
    def size(self) -> int:
        """The bytes of all segments."""
        return sum(segment.size for segment in self.closed) + self.active.size

    def append(self, data: Buffer, *, now_ms: int, leader_epoch: int = 0, origin: Origin = Origin.CLIENT) -> Ticket:
        """Write one or more whole batches at the end of the log.

        Offsets and leader epoch are stamped into `data` where it is writable, and its bytes must not change until the
        ticket is done. All batches are checked before any is written. Raises RecordsError, BatchTooLargeError,
        ProducerFencedError, OutOfOrderSequenceError, DiskFullError, StorageOfflineError or CorruptLogError; then
        nothing was written.
        """
        environment = self.environment
        if environment.health.refusal is not None:
            environment.health.refuse_if_offline()
        if self.refusal is not None:
            # The same error answers every call, and must not gather the frames, and so the bytes, of them all.
            raise self.refusal.with_traceback(None)
        view = memoryview(data)
        if view.readonly:
            view = memoryview(bytearray(view))
        batches, records, from_producers = check_batches(view, self.partition, self.config, origin)
        if from_producers:
            written = self.producers.check([header for _, header in batches])
            if written is not None:
                return self._duplicate(written)
        length = len(view)
        if self._is_active_full(length, records, now_ms):
            self.roll()
        durability = environment.durability
        durability.reserve(self._directory, length)
        base_offset = self.log_end_offset
        append_time_ms = now_ms if self._is_append_time else None
        placed = stamp_batches(view, batches, base_offset, leader_epoch, append_time_ms)
        active = self.active
        try:
            position = active.append(view, placed, now_ms)
        except IO_FAILURES as error:
            raise self._undo_append(length, error) from error
        if leader_epoch > self.epochs.latest:
            self.state_version += self.epochs.assign(leader_epoch, base_offset)
        if from_producers:
            self._replay(view, batches, placed)
        self.log_end_offset = next_offset = base_offset + records
        environment.probe.batches_appended += len(batches)
        environment.probe.bytes_appended += length
        time_ms = NO_TIMESTAMP if append_time_ms is None else append_time_ms
        ticket = Ticket(self._commit_line, base_offset, next_offset, time_ms, False)
        durability.submit(ticket, self._directory, active.base_offset, position, view)
        return ticket

    def roll(self) -> None:
        """Close the active segment, unless it is empty, and begin the next. Raises DiskFullError or
        StorageOfflineError."""
        if self.active.size == 0:
            return
        self.environment.health.refuse_if_offline()
        fresh = self.new_active(self.log_end_offset)
        try:
            self.active.close()
            fresh.create()
        except IO_FAILURES as error:
            raise self._undo_roll(fresh, error) from error
        self.closed.append(self.as_closed(self.active.base_offset, self.active.size, self.active.max_timestamp))
        self.active = fresh
        self.environment.probe.segments_rolled += 1

    def delete_before(self, offset: int) -> None:
        """Make `offset` the first that can be read, durably. The next retention step removes the files.

        Raises OffsetOutOfRangeError past the high watermark. Below the log's start there is nothing to do.
        """
        if offset > self.high_watermark:
            raise OffsetOutOfRangeError(self.partition, offset, self.log_start_offset, self.high_watermark)
        if offset > self.log_start_offset:
            if offset > self.recovery_point.offset:
                # The log must not come back shorter than where it starts.
                self.sync_segments()
            self.save_state(replace(self.state, log_start_offset=offset))
            self.start_at(offset)

    def start_at(self, offset: int) -> None:
        """Move the log's start, which is durable already or will be told by the name of its first segment."""
        self.state = replace(self.state, log_start_offset=offset)
        self.epochs.cut_start(offset)
        self.producers.aborted.drop_before(offset)
        self.state_version += 1

    def begin_sync(self) -> LogSync | None:
        """What there is to sync, if anything. Raises OSError.

        A quarantined log is synced too, since the write-ahead log will not keep its bytes, but its recovery point and
        its snapshot stay as they were.
        """
        end = RecoveryPoint(self.log_end_offset, self.active.base_offset, self.active.size)
        is_good = self.corruption is None
        point = end if is_good else self.recovery_point
        snapshot_is_stale = is_good and self.state_version != self.snapshot_version
        if end == self.recovery_point and not snapshot_is_stale:
            return None
        self.active.write_index()
        snapshot = self.take_snapshot() if snapshot_is_stale else None
        decided_offset = self.producers.decided_before(self.log_end_offset)
        self.producers.settle(self.high_watermark)
        first = self.recovery_point.segment_base_offset
        dirty = [segment for segment in self.segments if segment.base_offset >= first]
        log_paths = [segment.path for segment in dirty]
        cache_paths = [segment.index_path for segment in dirty]
        if snapshot is not None and snapshot.aborted_count:
            cache_paths.append(f"{self.partition.directory}/{ABORTED}")
        return LogSync(
            self, point, decided_offset, log_paths, cache_paths, snapshot, self.state_version, self.state.floor_number
        )

    def take_snapshot(self) -> Snapshot:
        """Epochs and producers as they are now; the aborted transactions are written to their file. Raises OSError."""
        self.producers.aborted.write(self.environment.files, self.partition.directory)
        epochs = [list(start) for start in self.epochs.starts]
        number = self.environment.durability.next_number
        return Snapshot(self.log_end_offset, number, epochs, self.producers.to_json(), self.producers.aborted.count)

    def sync_segments(self) -> None:
        """Make every byte of the log durable in its own file, now. Raises DiskFullError or StorageOfflineError."""
        try:
            sync = self.begin_sync()
            if sync is not None:
                sync.sync_segments(self.environment.files)
        except IO_FAILURES as error:
            raise self.environment.write_error("sync", self.active.path, 0, error) from error

    def expire_producers(self, before_ms: int) -> int:
        """Forget producers that were last seen before `before_ms`. Returns how many."""
        expired = self.producers.expire(before_ms)
        self.state_version += bool(expired)
        return len(expired)

    def remove_aborted(self, last_offsets: Collection[int]) -> None:
        """Forget the aborted transactions with these markers, of which a compaction has left nothing."""
        self.producers.aborted.remove(last_offsets)
        self.state_version += 1
        self.aborted_removed_version = self.state_version

    def remove_segments(self, count: int, due_ms: int) -> list[str]:
        """Take the `count` oldest segments out of the log, which must start after them. Returns their paths.

        Raises DiskFullError or StorageOfflineError.
        """
        assert self.segments[count].base_offset <= self.log_start_offset, "records would go that can be read"
        removed, self.closed = self.closed[:count], self.closed[count:]
        if removed:
            try:
                # What comes after them must be there before they go: recovery may begin where the next one does.
                sync_directory(self.environment.files, self.partition.directory)
                for segment in removed:
                    self.retire(segment, due_ms)
                sync_directory(self.environment.files, self.partition.directory)
            except IO_FAILURES as error:
                raise self.environment.write_error("remove", self.partition.directory, 0, error) from error
            self.environment.probe.segments_removed += len(removed)
        return [segment.path for segment in removed]

    def retire(self, segment: ClosedSegment, due_ms: int) -> None:
        segment.forget()
        self.environment.remover.retire(segment.path, due_ms)
        try:
            self.environment.remover.retire(segment.index_path, due_ms)
        except FileNotFoundError:
            # An index is a cache: a segment that was never read since a crash may have none.
            return

    def save_state(self, state: PartitionState) -> None:
        """Make what the owner decided durable, and then true. Raises DiskFullError or StorageOfflineError."""
        self.environment.health.refuse_if_offline()
        try:
            write_state(self.environment.files, self.partition.directory, state)
        except IO_FAILURES as error:
            raise self.environment.write_error("write", f"{self.partition}/state", 0, error) from error
        self.state = state

    def quarantine(self, error: CorruptLogError, durable_offset: int | None = None) -> None:
        """Stop appending and say so, now and after a restart. Nothing is deleted.

        `durable_offset` is how far the log was durable, where that is more than can be read.
        """
        if self.corruption is None:
            self.corruption = self.refusal = error
            self.environment.probe.corruptions_found += 1
            durable_offset = max(self.log_end_offset, durable_offset or 0)
            found = Quarantine(error.file, error.position, error.offset, error.reason, durable_offset)
            with suppress(StorageError):
                # A disk that takes no more must not hide what was found. It will be found again.
                self.save_state(replace(self.state, quarantine=found))

    def holds(self, path: str) -> bool:
        """Whether a segment with this path is part of the log."""
        return not self.is_deleted and any(segment.path == path for segment in self.segments)

    def new_active(self, base_offset: int) -> ActiveSegment:
        environment = self.environment
        return ActiveSegment(
            self.partition, base_offset, environment.open_files, self.config.index_interval_bytes, environment.probe
        )

    def as_closed(self, base_offset: int, size: int | None = None, max_timestamp: int | None = None) -> ClosedSegment:
        cache, interval_bytes = self.environment.cache, self.config.index_interval_bytes
        return ClosedSegment(self.partition, base_offset, cache, interval_bytes, size, max_timestamp)

    def draw_commit_line(self, offset: int) -> None:
        """Say that exactly what is before `offset` is committed; tickets handed out so far move this no more."""
        self._commit_line = CommitLine(offset)

    def mark_deleted(self) -> None:
        """From here on this log is another's past: whoever still holds it can do nothing with it."""
        self.is_deleted = True
        self.refusal = PartitionNotFoundError(self.partition)
        for segment in self.segments:
            segment.drop()

    def close(self) -> None:
        """Write the index and let go of the files. Whoever wants the next open to be quick takes a checkpoint first."""
        self.active.write_index()
        self.active.forget()
        for segment in self.closed:
            segment.forget()

    def validate(self) -> None:
        """Assert what must always hold. For tests: it walks every header."""
        assert self.log_start_offset <= self.log_end_offset
        assert self.high_watermark <= self.log_end_offset
        assert self.recovery_point.offset <= self.log_end_offset
        expected = self.segments[0].base_offset
        for segment in self.segments:
            assert segment.base_offset >= expected, f"{segment.path} overlaps the segment before it"
            expected = segment.base_offset
            for hop in segment.hops():
                assert hop.header.base_offset >= expected, f"{segment.path} goes back at {hop.position}"
                expected = hop.header.next_offset
        assert expected <= self.log_end_offset

    @property
    def _is_append_time(self) -> bool:
        return self.config.message_timestamp_type is TimestampSource.LOG_APPEND_TIME

    def _duplicate(self, written: ProducedBatch) -> Ticket:
        """The ticket of a batch that was written before: done when that one is durable."""
        append_time_ms = written.timestamp if self._is_append_time else NO_TIMESTAMP
        ticket = Ticket(self._commit_line, written.base_offset, written.next_offset, append_time_ms, True)
        self.environment.durability.wait(ticket)
        return ticket

    def _undo_append(self, length: int, error: OSError | StorageOfflineError) -> StorageError:
        """Cut off what a failed append may have left behind: whole batches of it would be found after a restart."""
        active = self.active
        failure = self.environment.write_error("append", active.path, length, error)
        try:
            active.cut_excess()
        except IO_FAILURES as worse:
            return self.environment.write_error("truncate", active.path, 0, worse)
        return failure

    def _undo_roll(self, fresh: ActiveSegment, error: OSError | StorageOfflineError) -> StorageError:
        """Remove what there is of a segment that could not be made: the next one may begin elsewhere."""
        failure = self.environment.write_error("roll", fresh.path, 0, error)
        try:
            fresh.remove(self.environment.files)
        except IO_FAILURES as worse:
            return self.environment.write_error("roll", fresh.path, 0, worse)
        return failure

    def _replay(self, view: memoryview, batches: Sequence[Checked], placed: Sequence[Placed]) -> None:
        for (position, header), (_, base_offset, max_timestamp) in zip(batches, placed, strict=True):
            if header.producer_id != NO_PRODUCER_ID:
                if max_timestamp != header.max_timestamp:
                    header = header._replace(max_timestamp=max_timestamp)  # noqa: PLW2901 - as it was written
                self.producers.replay(header, base_offset, view, position)
                self.state_version += 1

    def _is_active_full(self, length: int, records: int, now_ms: int) -> bool:
        active = self.active
        if active.size == 0:
            return False
        return (
            active.size + length > self.config.segment_bytes
            or self.log_end_offset + records - active.base_offset > OFFSET_DELTA_MAX
            or (active.first_append_ms is not None and now_ms - active.first_append_ms >= self.config.segment_ms)
        )
