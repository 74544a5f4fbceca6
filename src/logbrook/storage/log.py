"""The log of one partition: closed segments and one active segment that is appended to.

A log is owned by one thread; only its committed offset is advanced by the committing thread. Its offsets, in ascending
order:

    log_start_offset    first readable offset; records below it are removed
    last_stable_offset  first offset that is not decided for READ_COMMITTED readers
    high_watermark      first offset that is not committed; readers see records below it
    synced_end_offset   first offset that is not durable here; the high watermark of a log with one replica
    log_end_offset      offset of the next record

The high watermark of a replica may be above its synced end, if the other replicas are ahead of it.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace

from typing_extensions import Buffer

from logbrook.config import LogConfig
from logbrook.model import TopicPartition
from logbrook.model.identifiers import LeaderEpoch, Offset
from logbrook.records.batch import NO_PRODUCER_ID, NO_TIMESTAMP, BatchHeader
from logbrook.storage.active_segment import ActiveSegment
from logbrook.storage.batch_set import (
    AppendOrigin,
    CheckedBatch,
    PlacedBatch,
    check_batches,
    place_fetched,
    stamp_batches,
)
from logbrook.storage.checkpoint import LogSync
from logbrook.storage.closed_segment import ClosedSegment
from logbrook.storage.durable_files import IO_FAILURES, sync_directory
from logbrook.storage.environment import Environment
from logbrook.storage.errors import (
    CorruptLogError,
    DiskFullError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    PartitionNotFoundError,
    StorageError,
    StorageOfflineError,
    UnreadableLogError,
)
from logbrook.storage.leader_epochs import LeaderEpochs
from logbrook.storage.log_reading import ReadableLog
from logbrook.storage.partition_files import PartitionState, Quarantine, RecoveryPoint, Snapshot, write_state
from logbrook.storage.paths import ABORTED
from logbrook.storage.pending_append import CommittedOffset, PendingAppend
from logbrook.storage.producer_state import ProducedBatch, ProducerStateTable
from logbrook.storage.segment import OFFSET_DELTA_MAX
from logbrook.storage.transaction_index import TransactionIndex


class Log(ReadableLog):
    """The writing half of a log, created by `LogDirectory.create` or by recovery."""

    def __init__(
        self,
        partition: TopicPartition,
        config: LogConfig,
        environment: Environment,
        state: PartitionState,
        closed: list[ClosedSegment],
        active: ActiveSegment,
        log_end_offset: Offset,
        epochs: LeaderEpochs,
        producers: ProducerStateTable,
        recovery_point: RecoveryPoint,
    ) -> None:
        super().__init__(partition, environment, state, closed, active, log_end_offset, producers)
        self.config = config
        self.epochs = epochs
        self.recovery_point = recovery_point
        # Every transaction with records below this offset has its marker below the recovery point.
        self.synced_stable_offset = Offset(0)
        # The error that appends raise, if the partition is quarantined or deleted.
        self.refusal: StorageError | None = None
        # Counts changes of leader epochs and producer state; the snapshot on disk covers `snapshot_version`.
        self.state_version = 0
        self.snapshot_version = 0
        # The `state_version` of the last removal from the transaction index.
        self.aborted_removed_version = 0
        self._directory = partition.directory.encode()

    @property
    def size(self) -> int:
        """Total size of all segments in bytes."""
        return sum(segment.size for segment in self.closed) + self.active.size

    def append(
        self,
        data: Buffer,
        *,
        now_ms: int,
        leader_epoch: LeaderEpoch = LeaderEpoch(0),
        origin: AppendOrigin = AppendOrigin.CLIENT,
        header: BatchHeader | None = None,
    ) -> PendingAppend:
        """Write one or more whole batches at the end of the log.

        `header` is the header of the first batch, if the caller has parsed it. Offsets and leader epoch are stamped
        into `data` where it is writable, and its bytes must not change until the append is done. All batches are
        checked before any is written. Raises RecordsError, BatchTooLargeError, InvalidProducerEpochError,
        OutOfOrderSequenceError, DiskFullError, StorageOfflineError or CorruptLogError; then nothing was written.
        """
        environment = self.environment
        if environment.health.refusal is not None:
            environment.health.check_writable()
        if self.refusal is not None:
            # The error is shared by all calls: without this it would collect their frames, and with them their data.
            raise self.refusal.with_traceback(None)
        view = memoryview(data)
        if view.readonly:
            view = memoryview(bytearray(view))
        batches, records, from_producers = check_batches(view, self.partition, self.config, origin, header)
        if from_producers:
            written = self._check_producers([header for _, header in batches], len(view))
            if written is not None:
                return self._duplicate(written)
        length = len(view)
        if self._is_active_full(length, records, now_ms):
            self.roll()
        durability = environment.durability
        durability.reserve(self._directory, length)
        base_offset = self.log_end_offset
        append_time_ms = now_ms if self.config.uses_log_append_time else None
        placed = stamp_batches(view, batches, base_offset, leader_epoch, append_time_ms)
        active = self.active
        try:
            position = active.append(view, placed, now_ms)
        except IO_FAILURES as error:
            raise self._undo_append(length, error) from error
        if leader_epoch > self.epochs.latest:
            self.state_version += self.epochs.assign(leader_epoch, base_offset)
        if from_producers:
            self._replay(view, batches, placed, now_ms)
        self.log_end_offset = next_offset = Offset(base_offset + records)
        environment.probe.batches_appended += len(batches)
        environment.probe.bytes_appended += length
        time_ms = NO_TIMESTAMP if append_time_ms is None else append_time_ms
        append = PendingAppend(self._committed, base_offset, next_offset, time_ms, False)
        durability.submit(append, self._directory, active.base_offset, position, view)
        return append

    def _check_producers(self, headers: Sequence[BatchHeader], length: int) -> ProducedBatch | None:
        """Return the batch that was written already, if these are sent again. Raises as `append` does.

        On a full disk a batch out of order is refused like the one before it: its producer has sent both at once.
        """
        try:
            return self.producers.check(headers)
        except OutOfOrderSequenceError:
            if self.environment.files.space().usable_bytes < length:
                raise DiskFullError(self.active.path, length) from None
            raise

    def append_fetched(self, data: Buffer, *, now_ms: int) -> PendingAppend:
        """Write whole batches fetched from the leader, at their own offsets and with their own leader epochs.

        The bytes must not change until the append is done. Raises UnexpectedOffsetError if they do not follow the log
        end offset, and what `append` raises except for the checks of producers; then nothing was written.
        """
        environment = self.environment
        environment.health.check_writable()
        if self.refusal is not None:
            raise self.refusal.with_traceback(None)
        view = memoryview(data)
        batches, _, from_producers = check_batches(view, self.partition, self.config, AppendOrigin.LEADER)
        placed, next_offset, has_gap = place_fetched(self.partition, batches, self.log_end_offset)
        if has_gap and not self.state.has_gaps:
            self.save_state(replace(self.state, has_gaps=True))
        if self._is_active_full(len(view), next_offset - self.log_end_offset, now_ms):
            self.roll()
        environment.durability.reserve(self._directory, len(view))
        active = self.active
        try:
            position = active.append(view, placed, now_ms)
        except IO_FAILURES as error:
            raise self._undo_append(len(view), error) from error
        for _, header in batches:
            self.state_version += self.epochs.assign(header.leader_epoch, header.base_offset)
        if from_producers:
            self._replay(view, batches, placed, now_ms)
        self.log_end_offset = next_offset
        environment.probe.batches_appended += len(batches)
        environment.probe.bytes_appended += len(view)
        append = PendingAppend(self._committed, Offset(placed[0][1]), next_offset, NO_TIMESTAMP, False)
        environment.durability.submit(append, self._directory, active.base_offset, position, view)
        return append

    def replicate_from(self, high_watermark: Offset) -> None:
        """Make the log a replica: from now on only `advance_high_watermark` moves its high watermark."""
        self._replicated_high_watermark = min(high_watermark, self.log_end_offset)

    def advance_high_watermark(self, offset: Offset) -> None:
        """Raise the high watermark of a replica. It never falls."""
        current = self._replicated_high_watermark
        assert current is not None, "the log is not a replica"
        self._replicated_high_watermark = max(current, min(offset, self.log_end_offset))
        self.producers.advance_high_watermark(self._replicated_high_watermark)

    def roll(self) -> None:
        """Roll the active segment unless it is empty. Raises DiskFullError or StorageOfflineError."""
        if self.active.size == 0:
            return
        self.environment.health.check_writable()
        fresh = self.new_active(self.log_end_offset)
        try:
            self.active.close()
            fresh.create()
        except IO_FAILURES as error:
            raise self._undo_roll(fresh, error) from error
        self.closed.append(self.as_closed(self.active.base_offset, self.active.size, self.active.max_timestamp))
        self.active = fresh
        self.environment.probe.segments_rolled += 1

    def delete_before(self, offset: Offset) -> None:
        """Raise the log start offset to `offset`, durably. The next retention step removes the segments below it.

        Raises OffsetOutOfRangeError above the high watermark. Does nothing at or below the log start offset.
        """
        if offset > self.high_watermark:
            raise OffsetOutOfRangeError(self.partition, offset, self.log_start_offset, self.high_watermark)
        self.raise_start(offset)

    def raise_start(self, offset: Offset) -> None:
        """As `delete_before`, for a follower, whose high watermark moves to `offset` or above afterwards."""
        if offset > self.log_start_offset:
            if offset > self.recovery_point.offset:
                # After a crash the log end offset must not be below the log start offset.
                self.sync_segments()
            self.save_state(replace(self.state, log_start_offset=offset))
            self.start_at(offset)

    def start_at(self, offset: Offset) -> None:
        """Set the log start offset in memory. It is durable in the state file or in the first segment's name."""
        self.state = replace(self.state, log_start_offset=offset)
        self.epochs.truncate_start(offset)
        self.producers.aborted.drop_before(offset)
        self.state_version += 1
        self.environment.on_log_changed(self.partition)

    def begin_sync(self) -> LogSync | None:
        """Collect what is not synced, None if there is nothing; the first step of a checkpoint. Raises OSError.

        A quarantined log is synced too, since the checkpoint releases its WAL entries, but its recovery point and
        snapshot do not change.
        """
        snapshot_is_stale = self.state_version != self.snapshot_version and self.corruption is None
        active = self.active
        end = (self.log_end_offset, active.base_offset, active.size)
        if end == self.recovery_point and not snapshot_is_stale:
            return None
        point = RecoveryPoint(*end) if self.corruption is None else self.recovery_point
        self.active.write_index()
        snapshot = self.take_snapshot() if snapshot_is_stale else None
        synced_stable_offset = self.producers.first_unstable_offset(self.log_end_offset)
        self.producers.advance_high_watermark(self.high_watermark)
        first = self.recovery_point.segment_base_offset
        dirty = [segment for segment in self.segments if segment.base_offset >= first]
        log_paths = [segment.path for segment in dirty]
        cache_paths = [segment.index_path for segment in dirty]
        if snapshot is not None and snapshot.aborted_count:
            cache_paths.append(f"{self.partition.directory}/{ABORTED}")
        return LogSync(
            self,
            point,
            synced_stable_offset,
            log_paths,
            cache_paths,
            snapshot,
            self.state_version,
            self.state.floor_number,
        )

    def take_snapshot(self) -> Snapshot:
        """Return a snapshot of leader epochs and producer state, and write the transaction index. Raises OSError."""
        self.producers.aborted.write(self.environment.files, self.partition.directory)
        epochs = [list(start) for start in self.epochs.starts]
        number = self.environment.durability.next_number
        return Snapshot(self.log_end_offset, number, epochs, self.producers.to_json(), self.producers.aborted.count)

    def rebuild_producers(self) -> None:
        """Rebuild the producer state and the transaction index from the batches in the log.

        Raises CorruptLogError; the state then covers the batches before the damage.
        """
        loaded_ms = self.producers.active_ms
        self.producers = ProducerStateTable(self.partition, self.environment.config.producer_ids_max)
        self.producers.loaded_ms = loaded_ms
        self.producers.aborted.invalidate_file()
        self.state_version += 1
        self.producers.replay_segments(self.segments)
        self.producers.aborted.drop_before(self.log_start_offset)
        self.environment.producer_bound.admit(len(self.producers))

    def rebuild_transaction_index(self) -> None:
        """Rebuild the transaction index from the batches in the log and keep the rest of the producer state.

        A transaction whose first batches were removed starts at its first remaining batch. Raises CorruptLogError.
        """
        replayed = ProducerStateTable(self.partition, self.environment.config.producer_ids_max)
        replayed.replay_segments(self.segments)
        replayed.aborted.drop_before(self.log_start_offset)
        self.replace_transaction_index(replayed.aborted)

    def replace_transaction_index(self, index: TransactionIndex) -> None:
        """Use `index`; the next snapshot rewrites its file."""
        index.invalidate_file()
        self.producers.aborted = index
        self.state_version += 1

    def sync_segments(self) -> None:
        """Sync all segments now. Raises DiskFullError or StorageOfflineError."""
        with self.environment.writing("sync", self.active.path):
            sync = self.begin_sync()
            if sync is not None:
                sync.sync_segments(self.environment.files)

    def expire_producers(self, before_ms: int) -> int:
        """Expire producers that were last seen before `before_ms`. Returns their number."""
        expired = self.producers.expire(before_ms)
        self.state_version += bool(expired)
        return len(expired)

    def expire_oldest_producers(self, count: int) -> None:
        """Expire the `count` producers without an open transaction that wrote longest ago."""
        self.producers.expire_oldest(count)
        self.state_version += 1

    def remove_aborted(self, last_offsets: Collection[int]) -> None:
        """Remove the aborted transactions with these markers, whose batches have all been compacted away."""
        self.producers.aborted.remove(last_offsets)
        self.state_version += 1
        self.aborted_removed_version = self.state_version

    def remove_segments(self, count: int, due_ms: int) -> list[str]:
        """Remove the `count` oldest segments, which must be below the log start offset. Returns their paths.

        Raises DiskFullError or StorageOfflineError.
        """
        assert self.segments[count].base_offset <= self.log_start_offset, (
            "a segment with readable records would be removed"
        )
        removed, self.closed = self.closed[:count], self.closed[count:]
        if removed:
            with self.environment.writing("remove", self.partition.directory):
                # Recovery may start at the next segment, so its name must be durable before these are renamed.
                sync_directory(self.environment.files, self.partition.directory)
                for segment in removed:
                    self.retire(segment, due_ms)
                sync_directory(self.environment.files, self.partition.directory)
            self.environment.probe.segments_removed += len(removed)
        return [segment.path for segment in removed]

    def retire(self, segment: ClosedSegment, due_ms: int) -> None:
        """Rename the segment's files to `*.deleted`, to be unlinked at `due_ms`. Raises OSError."""
        segment.forget()
        self.environment.remover.retire(segment.path, due_ms)
        with suppress(FileNotFoundError):
            # The index is a cache and may not exist if the segment was not read since a crash.
            self.environment.remover.retire(segment.index_path, due_ms)

    def save_state(self, state: PartitionState) -> None:
        """Write the state file, then apply the state. Raises DiskFullError or StorageOfflineError."""
        self.environment.health.check_writable()
        with self.environment.writing("write", f"{self.partition}/state"):
            write_state(self.environment.files, self.partition.directory, state)
        self.state = state

    def quarantine(self, error: CorruptLogError, durable_offset: Offset | None = None) -> None:
        """Reject appends from now on, also after a restart, until a repair. Nothing is deleted.

        For an UnreadableLogError, until a restart can read the log.

        `durable_offset` is the end of the durable records if it is above the log end offset.
        """
        if self.corruption is None:
            self.corruption = self.refusal = error
            self.environment.probe.corruptions_found += 1
            durable_offset = max(self.log_end_offset, durable_offset or Offset(0))
            is_unreadable = isinstance(error, UnreadableLogError)
            quarantine = Quarantine(
                error.file, error.position, error.offset, error.reason, durable_offset, is_unreadable
            )
            with suppress(StorageError):
                # A failed write must not hide the corruption. It will be detected again after a restart.
                self.save_state(replace(self.state, quarantine=quarantine))
            self.environment.on_log_changed(self.partition)

    def has_segment(self, path: str) -> bool:
        """Return True if a segment of the log has this path."""
        return not self.is_deleted and any(segment.path == path for segment in self.segments)

    def new_active(self, base_offset: Offset) -> ActiveSegment:
        environment = self.environment
        return ActiveSegment(
            self.partition, base_offset, environment.open_files, self.config.index_interval_bytes, environment.probe
        )

    def as_closed(
        self, base_offset: Offset, size: int | None = None, max_timestamp: int | None = None
    ) -> ClosedSegment:
        cache, interval_bytes = self.environment.cache, self.config.index_interval_bytes
        return ClosedSegment(self.partition, base_offset, cache, interval_bytes, size, max_timestamp)

    def reset_committed_offset(self, offset: Offset) -> None:
        """Set the synced end to `offset`, after a truncation. Appends that are pending do not move it any more."""
        self._committed = CommittedOffset(offset)
        if self._replicated_high_watermark is not None:
            self._replicated_high_watermark = min(self._replicated_high_watermark, offset)
        self.environment.on_log_changed(self.partition)

    def mark_deleted(self) -> None:
        """Close the log of a deleted partition; later reads and appends raise PartitionNotFoundError."""
        self.is_deleted = True
        self.refusal = PartitionNotFoundError(self.partition)
        for segment in self.segments:
            segment.drop()
        self.environment.on_log_changed(self.partition)

    def close(self) -> None:
        """Write the index and close the files. Take a checkpoint first for a fast reopen."""
        self.active.write_index()
        self.active.forget()
        for segment in self.closed:
            segment.forget()

    def validate(self) -> None:
        """Assert the invariants. For tests: it reads every batch header."""
        assert self.log_start_offset <= self.log_end_offset
        assert self.high_watermark <= self.log_end_offset
        assert self.synced_end_offset <= self.log_end_offset
        assert self.recovery_point.offset <= self.log_end_offset
        expected = self.segments[0].base_offset
        for segment in self.segments:
            assert segment.base_offset >= expected, f"{segment.path} overlaps the segment before it"
            expected = segment.base_offset
            for batch in segment.batches():
                assert batch.header.base_offset >= expected, f"{segment.path}: offsets descend"
                expected = batch.header.next_offset
        assert expected <= self.log_end_offset

    def _duplicate(self, written: ProducedBatch) -> PendingAppend:
        """Return the append of a duplicate batch. It is done when the original batch is durable."""
        append_time_ms = written.timestamp if self.config.uses_log_append_time else NO_TIMESTAMP
        append = PendingAppend(self._committed, written.base_offset, written.next_offset, append_time_ms, True)
        self.environment.durability.submit_duplicate(append)
        return append

    def _undo_append(self, length: int, error: OSError | StorageOfflineError) -> StorageError:
        """Truncate after a failed append: whole batches left in the file would be recovered after a restart."""
        active = self.active
        failure = self.environment.write_error("append", active.path, length, error)
        try:
            active.truncate_excess()
        except IO_FAILURES as worse:
            return self.environment.write_error("truncate", active.path, 0, worse)
        return failure

    def _undo_roll(self, fresh: ActiveSegment, error: OSError | StorageOfflineError) -> StorageError:
        """Remove the files of a segment that could not be created: the next one may have another base offset."""
        failure = self.environment.write_error("roll", fresh.path, 0, error)
        try:
            fresh.remove(self.environment.files)
        except IO_FAILURES as worse:
            return self.environment.write_error("roll", fresh.path, 0, worse)
        return failure

    def _replay(
        self, view: memoryview, batches: Sequence[CheckedBatch], placed: Sequence[PlacedBatch], now_ms: int
    ) -> None:
        known = len(self.producers)
        for (position, header), (_, base_offset, max_timestamp) in zip(batches, placed, strict=True):
            if header.producer_id != NO_PRODUCER_ID:
                if max_timestamp != header.max_timestamp:
                    header = header._replace(max_timestamp=max_timestamp)  # noqa: PLW2901 - as it was written
                self.producers.replay(header, Offset(base_offset), view, position, now_ms)
                self.state_version += 1
        if len(self.producers) > known:
            self.environment.producer_bound.admit(len(self.producers) - known)
        self.producers.advance_high_watermark(self.high_watermark)

    def _is_active_full(self, length: int, records: int, now_ms: int) -> bool:
        active = self.active
        size = active.size
        if size == 0:
            return False
        return (
            size + length > self.config.segment_bytes
            or self.log_end_offset + records - active.base_offset > OFFSET_DELTA_MAX
            or (active.first_append_ms is not None and now_ms - active.first_append_ms >= self.config.roll_ms)
        )
