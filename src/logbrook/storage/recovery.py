"""Recovery of one log when its directory is opened, after a clean or unclean stop.

    image = load_image(files, partition, checkpoint)      metadata and segment names, for every partition
    redo(files, wal, images)                              the WAL's entries, for all partitions together
    log = LogRecovery(image, config, ...).run()           the batches of one partition

`directory_recovery` calls these on the thread that opens the directory; the first two are in `partition_image`.

The recovery point (offset, segment and position) is the end of what the last checkpoint synced; batches before it are
not read. The durable offset is the end of what the checkpoint and the write-ahead log prove to be durable. Below it
every byte must be valid: damage there is corruption, and the partition is quarantined with nothing deleted. Above it
the log ends at the first invalid batch, a torn write that was never acknowledged, and the rest is truncated.

Bytes that the disk cannot read are neither: the partition is offline, nothing is truncated, and the next start reads
them again. Without `UnreadableLogError` one bad sector would keep the broker from starting.
"""

from bisect import bisect_left
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace

from logbrook.config import LogConfig
from logbrook.model.identifiers import LeaderEpoch, Offset
from logbrook.records.batch import NO_PRODUCER_ID
from logbrook.records.errors import RecordsError
from logbrook.storage.active_segment import ActiveSegment
from logbrook.storage.closed_segment import ClosedSegment
from logbrook.storage.durable_files import is_unreadable, sync_directory, sync_file
from logbrook.storage.environment import Environment
from logbrook.storage.errors import CorruptLogError, DiskFullError, UnreadableLogError
from logbrook.storage.leader_epochs import EpochStart, LeaderEpochs
from logbrook.storage.log import Log
from logbrook.storage.partition_files import Quarantine, Snapshot
from logbrook.storage.partition_image import PartitionImage
from logbrook.storage.paths import log_path
from logbrook.storage.producer_state import ProducerStateTable
from logbrook.storage.segment import VerifiedBatch, scan_batches
from logbrook.storage.transaction_index import TransactionIndex
from logbrook.storage.truncation import finish_truncation


@dataclass
class RecoveryReport:
    """Findings and actions of opening a directory."""

    partitions: int = 0
    entries_redone: int = 0
    bytes_scanned: int = 0
    bytes_cut: int = 0
    quarantined: list[CorruptLogError] = field(default_factory=list)
    wal_damage: list[str] = field(default_factory=list)

    @property
    def changed_anything(self) -> bool:
        return bool(self.entries_redone or self.bytes_scanned or self.bytes_cut)


class LogRecovery:
    """Finds the end of one log, truncates or quarantines it, and restores its producer state and leader epochs."""

    def __init__(
        self, image: PartitionImage, config: LogConfig, environment: Environment, report: RecoveryReport
    ) -> None:
        self._image = image
        self._environment = environment
        self._report = report
        self._snapshot = self._usable_snapshot()
        point = image.point
        self._log = Log(
            image.partition,
            config,
            environment,
            image.state,
            closed=[],
            active=ActiveSegment(
                image.partition,
                point.segment_base_offset,
                environment.open_files,
                config.index_interval_bytes,
                environment.probe,
            ),
            log_end_offset=point.offset,
            epochs=LeaderEpochs(
                [EpochStart(LeaderEpoch(epoch), Offset(start)) for epoch, start in self._snapshot.epochs]
                if self._snapshot
                else None
            ),
            producers=ProducerStateTable(image.partition, environment.config.producer_ids_max),
            recovery_point=point,
        )
        self._needs_transaction_index = False
        if self._snapshot:
            self._load_producers(self._snapshot)

    def run(self) -> Log:
        """Recover the log. Raises OSError, but not for a log that the disk cannot read."""
        log = self._log
        try:
            self._recover()
        except CorruptLogError as error:
            self._end_at_damage(error)
        except OSError as error:
            if not is_unreadable(error):
                raise
            # A segment that could not be opened has no size yet, and none of its records can be read.
            readable_end = log.log_end_offset if log.active.size else log.active.base_offset
            self._end_at_damage(self._unreadable(error, readable_end))
        if log.log_end_offset == log.recovery_point.offset:
            log.synced_stable_offset = log.producers.first_unstable_offset(log.log_end_offset)
        log.producers.advance_high_watermark(log.high_watermark)
        log.epochs.truncate_start(log.log_start_offset)
        self._restore_quarantine()
        return log

    def _recover(self) -> None:
        """Raises CorruptLogError or OSError."""
        log, truncate_to = self._log, self._image.state.truncate_to
        if self._image.unreadable is not None:
            raise self._image.unreadable
        self._open_segments()
        log.reset_committed_offset(log.log_end_offset)
        if self._snapshot is None:
            self._replay_all()
        elif self._needs_transaction_index:
            log.rebuild_transaction_index()
        if truncate_to is not None:
            log.log_end_offset = Offset(truncate_to)
            finish_truncation(log)

    def _end_at_damage(self, error: CorruptLogError) -> None:
        """Quarantine the log, whose records before the damage can be read. Raises OSError."""
        log, image = self._log, self._image
        # Without a snapshot the epochs are read last.
        log.epochs.unknown_from = log.log_start_offset if self._snapshot is None else log.log_end_offset
        # The durable records are unreadable, but their offsets are assigned: the log end offset must not move back.
        log.log_end_offset = max(log.log_end_offset, image.durable_offset)
        log.reset_committed_offset(log.log_end_offset)
        self._quarantine(self._replay_readable(error))
        # The checkpoint releases the WAL entries that were redone, and does not know these segments.
        for base_offset in image.base_offsets:
            if base_offset > log.active.base_offset:
                with closing(self._environment.files.open(log_path(image.directory, Offset(base_offset)))) as file:
                    sync_file(file)

    def _unreadable(self, error: OSError, offset: Offset) -> UnreadableLogError:
        """Return the error of a log that the disk can read up to `offset`."""
        active, reason = self._log.active, error.strerror or str(error)
        return UnreadableLogError(self._image.partition, active.path, active.size, offset, reason)

    def _restore_quarantine(self) -> None:
        """Quarantine a partition that was quarantined before the stop or whose state file is damaged.

        One that the disk could not read, and now could, is online again.
        """
        image, log = self._image, self._log
        if log.corruption is not None:
            return
        if image.damage is not None:
            damage = image.damage
            self._quarantine(CorruptLogError(image.partition, damage.file, 0, log.log_end_offset, damage.reason))
        elif (saved := image.state.quarantine) is not None and saved.is_unreadable:
            self._bring_online(saved)
        elif saved is not None:
            error = CorruptLogError(image.partition, saved.file, saved.position, saved.offset, saved.reason)
            if log.log_end_offset < saved.durable_offset:
                self._end_at_damage(error)
                return
            log.corruption = log.refusal = error
            self._report.quarantined.append(error)

    def _bring_online(self, saved: Quarantine) -> None:
        """End the quarantine of a log that the disk could not read and now could, unless it lacks durable records."""
        log = self._log
        if log.log_end_offset < saved.durable_offset:
            reason = f"the log ends at offset {log.log_end_offset}, but was durable up to {saved.durable_offset}"
            self._end_at_damage(
                CorruptLogError(log.partition, log.active.path, log.active.size, log.log_end_offset, reason)
            )
            return
        log.state = replace(log.state, quarantine=None)
        with suppress(DiskFullError):
            # If it stays in the file, the next start ends it again.
            log.save_state(log.state)

    def _open_segments(self) -> None:
        """Add closed segments unread, and scan segments from the recovery point on. Raises CorruptLogError."""
        log, image = self._log, self._image
        first = bisect_left(image.base_offsets, image.point.segment_base_offset)
        cache, interval = self._environment.cache, log.config.index_interval_bytes
        log.closed = [
            ClosedSegment(log.partition, Offset(base), cache, interval) for base in image.base_offsets[:first]
        ]
        tail = image.base_offsets[first:]
        if not tail or tail[0] != image.point.segment_base_offset:
            raise log.active.corrupt(0, "the segment with the recovery point is missing")
        for number, base_offset in enumerate(tail):
            if number:
                limit = image.state.truncate_to
                if not self._is_next(base_offset):
                    log.log_end_offset = Offset(log.log_end_offset if limit is None else limit)
                    self._end_log(log.active, log.active.size, tail[number:], "the next segment is missing")
                    return
                log.active.close()
                log.closed.append(log.as_closed(log.active.base_offset, log.active.size))
                log.active = log.new_active(Offset(base_offset))
            if not self._scan(log.active, image.point.position if number == 0 else 0, tail[number + 1 :]):
                return
        is_whole = log.log_end_offset >= image.durable_offset
        if not is_whole and image.state.truncate_to is None and image.state.quarantine is None:
            reason = f"the log ends at offset {log.log_end_offset}, but was durable up to {image.durable_offset}"
            raise CorruptLogError(log.partition, log.active.path, log.active.size, log.log_end_offset, reason)

    def _is_next(self, base_offset: int) -> bool:
        """True if a segment with this base offset may follow the batches that were read."""
        end_offset, limit = self._log.log_end_offset, self._image.state.truncate_to
        if limit is not None:
            return base_offset < limit
        return base_offset == end_offset or (self._image.state.has_gaps and base_offset > end_offset)

    def _scan(self, active: ActiveSegment, position: int, later: list[int]) -> bool:
        """Read the valid batches from `position` on. Returns False if the log ends inside this segment.

        `later` are the base offsets of the segments after it, which are deleted if it does.

        Offsets are contiguous past the recovery point, except in a replica of a compacted log (`has_gaps`). A pending
        truncation is scanned from further back, where compaction may have left gaps.
        """
        log = self._log
        limit = self._image.state.truncate_to
        file = self._environment.files.open(active.path)
        try:
            size = file.size()
            if size < position:
                raise active.corrupt(size, f"the file has {size} bytes, but {position} were synced")
            active.open_at(position)
            for batch in scan_batches(file, position, size):
                header = batch.header
                if limit is not None and header.last_offset >= limit:
                    log.log_end_offset = Offset(limit)
                    return self._end_log(active, batch.position, later, "the log is to be truncated here")
                may_have_gap = limit is not None or self._image.state.has_gaps
                is_after_gap = may_have_gap and header.base_offset > log.log_end_offset
                if header.base_offset != log.log_end_offset and not is_after_gap:
                    reason = f"the batch has offset {header.base_offset}, expected {log.log_end_offset}"
                    return self._end_log(active, batch.position, later, reason)
                active.adopt(header.base_offset, header.max_timestamp, header.size)
                self._replay(batch)
                log.log_end_offset = header.next_offset
                self._report.bytes_scanned += header.size
        except RecordsError as error:
            return self._end_log(active, active.size, later, str(error))
        finally:
            file.close()
        return True

    def _end_log(self, active: ActiveSegment, position: int, later: list[int], reason: str) -> bool:
        """End the log at `position`: truncate the rest, or raise CorruptLogError if the log was durable beyond."""
        log, files = self._log, self._environment.files
        if log.log_end_offset < self._image.durable_offset:
            raise CorruptLogError(self._image.partition, active.path, position, log.log_end_offset, reason)
        file = self._environment.open_files.get(active.path)
        self._report.bytes_cut += file.size() - position
        file.truncate(position)
        sync_file(file)
        for base_offset in later:
            path = log_path(self._image.directory, Offset(base_offset))
            self._report.bytes_cut += files.size(path)
            files.unlink(path)
        if later:
            sync_directory(files, self._image.directory)
        return False

    def _replay(self, batch: VerifiedBatch) -> None:
        header = batch.header
        if self._snapshot is None or header.base_offset < self._snapshot.offset:
            return
        log = self._log
        log.state_version += log.epochs.assign(header.leader_epoch, header.base_offset)
        if header.producer_id != NO_PRODUCER_ID:
            log.producers.replay(header, header.base_offset, batch.data)
            log.state_version += 1

    def _load_producers(self, snapshot: Snapshot) -> None:
        """Raises OSError."""
        producers = self._log.producers
        producers.load_json(snapshot.producers)
        if snapshot.aborted_count:
            index = self._load_transaction_index(snapshot)
            if index is None:
                self._needs_transaction_index = True
            else:
                producers.aborted = index

    def _load_transaction_index(self, snapshot: Snapshot) -> TransactionIndex | None:
        """Return None if it has to be rebuilt from the log. Raises OSError."""
        image, files = self._image, self._environment.files
        try:
            return TransactionIndex.load(
                files, image.directory, snapshot.aborted_count, snapshot.offset, image.state.log_start_offset
            )
        except OSError as error:
            if is_unreadable(error):
                return None
            raise

    def _replay_all(self) -> None:
        log = self._log
        for segment in log.segments:
            for batch in segment.batches():
                log.epochs.assign(batch.header.leader_epoch, batch.header.base_offset)
        log.rebuild_producers()

    def _replay_readable(self, damage: CorruptLogError) -> CorruptLogError:
        """Rebuild producer state and transaction index of a damaged log up to the damage, for READ_COMMITTED reads.

        Returns the damage from which on the log cannot be read. Raises OSError.
        """
        if self._snapshot is None or self._needs_transaction_index:
            try:
                self._log.rebuild_producers()
            except CorruptLogError:
                return damage
            except OSError as error:
                if not is_unreadable(error):
                    raise
                # Which transactions were aborted is unknown, so no record may be read.
                return self._unreadable(error, self._log.log_start_offset)
        return damage

    def _usable_snapshot(self) -> Snapshot | None:
        """Return the snapshot unless the log was truncated since; an empty one if the log is read from offset 0."""
        image = self._image
        snapshot = image.snapshot
        if snapshot is None or snapshot.number < image.state.floor_number or image.state.truncate_to is not None:
            return Snapshot(Offset(0), 0, [], []) if image.point.offset == 0 else None
        return snapshot

    def _quarantine(self, error: CorruptLogError) -> None:
        self._log.quarantine(error, self._image.durable_offset)
        self._report.quarantined.append(error)
