"""Bringing the logs of a directory back after a stop, clean or not.

One rule decides what happens to the bytes past a log's recovery point. The durable point is the end of what the
checkpoint and the write-ahead log vouch for. Up to it every byte must be good: what is not is corruption, and the
partition is quarantined with nothing deleted. Past it the log ends at the first batch that is not whole, because what
comes after was never acknowledged.

The write-ahead log says which bytes go where, so bringing them back is writing them there again. That can be done any
number of times, so a crash during recovery is recovered from like any other.
"""

from bisect import bisect_left
from contextlib import suppress
from dataclasses import dataclass, field, replace

from logbrook.config import LogConfig
from logbrook.model import TopicPartition
from logbrook.ports import Files
from logbrook.records.batch import NO_PRODUCER_ID
from logbrook.records.errors import RecordsError
from logbrook.storage.aborted import AbortedTransactions
from logbrook.storage.active_segment import ActiveSegment
from logbrook.storage.closed_segment import ClosedSegment
from logbrook.storage.disk_errors import sync_directory, sync_file
from logbrook.storage.environment import Environment
from logbrook.storage.errors import CorruptFileError, CorruptLogError
from logbrook.storage.leader_epochs import EpochStart, LeaderEpochs
from logbrook.storage.log import Log
from logbrook.storage.partition_files import (
    Checkpoint,
    PartitionState,
    RecoveryPoint,
    Snapshot,
    read_snapshot,
    read_state,
)
from logbrook.storage.paths import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    STATE,
    TEMPORARY_SUFFIX,
    log_path,
    parse_log,
    parse_swap,
)
from logbrook.storage.producers import Producers
from logbrook.storage.replay import derive_aborted, replay_producers
from logbrook.storage.scan import ScannedBatch, scan_batches
from logbrook.storage.swap import finish_swap
from logbrook.storage.truncation import finish_truncation
from logbrook.storage.wal_reader import WalContents


@dataclass
class RecoveryReport:
    """What opening a directory found and did."""

    partitions: int = 0
    entries_redone: int = 0
    bytes_scanned: int = 0
    bytes_cut: int = 0
    quarantined: list[CorruptLogError] = field(default_factory=list)
    wal_damage: list[str] = field(default_factory=list)

    @property
    def changed_anything(self) -> bool:
        return bool(self.entries_redone or self.bytes_scanned or self.bytes_cut)


@dataclass
class PartitionImage:
    """A partition as it is on disk, before anything is believed of it."""

    partition: TopicPartition
    state: PartitionState
    point: RecoveryPoint
    durable_offset: int
    base_offsets: list[int]
    retired: list[str]
    snapshot: Snapshot | None
    damage: CorruptFileError | None = None

    @property
    def directory(self) -> str:
        return self.partition.directory

    @property
    def number(self) -> int:
        """The highest number of the write-ahead log that is known here."""
        return max(self.state.floor_number, self.snapshot.number if self.snapshot else 0)


def load_image(files: Files, partition: TopicPartition, checkpoint: Checkpoint) -> PartitionImage | None:
    """Read a partition's small files and list its segments, finishing or discarding what a crash left half-done.

    None for a directory whose creation never finished: nothing was ever written to it.
    """
    directory = partition.directory
    base_offsets, retired = _list_segments(files, directory)
    point = checkpoint.points.get(directory)
    damage = None
    try:
        state = read_state(files, directory)
    except CorruptFileError as error:
        damage, state = error, None
    if state is None:
        if damage is None and not any(files.size(log_path(directory, base_offset)) for base_offset in base_offsets):
            return None
        start = min(base_offsets, default=0)
        state = PartitionState(log_start_offset=start, floor=RecoveryPoint(start, start, 0))
        damage = damage or CorruptFileError(f"{directory}/{STATE}", "it is missing, but there are records")
    if point is None or checkpoint.number < state.floor_number:
        point = state.floor
    if base_offsets and base_offsets[0] > state.log_start_offset:
        state = replace(state, log_start_offset=base_offsets[0])
    if state.truncate_to is not None:
        # All that is to be kept was synced before the intent was saved; find the place of the cut from the front.
        base_offset = max((base for base in base_offsets if base <= state.truncate_to), default=point.offset)
        point = RecoveryPoint(base_offset, base_offset, 0)
    elif point.offset in base_offsets:
        # The end of a segment is the start of the next. The one before may have been removed or compacted since.
        point = RecoveryPoint(point.offset, point.offset, 0)
    durable_offset = point.offset if state.truncate_to is None else state.truncate_to
    if state.quarantine is not None:
        durable_offset = max(durable_offset, state.quarantine.durable_offset)
    snapshot = read_snapshot(files, directory)
    return PartitionImage(partition, state, point, durable_offset, base_offsets, retired, snapshot, damage)


def redo(files: Files, wal: WalContents, images: dict[bytes, PartitionImage]) -> int:
    """Write the entries of the write-ahead log to their segments again. Returns how many there were."""
    redone = 0
    for entry in wal.entries():
        image = images.get(entry.directory)
        if image is None or entry.number < image.state.floor_number or image.state.truncate_to is not None:
            continue
        path = log_path(image.directory, entry.segment_base_offset)
        if entry.segment_base_offset in image.base_offsets:
            file = files.open(path)
        else:
            file = files.create(path)
            image.base_offsets.append(entry.segment_base_offset)
            image.base_offsets.sort()
        try:
            file.pwrite(entry.data, entry.position)
        finally:
            file.close()
        image.durable_offset = entry.next_offset
        redone += 1
    return redone


class LogRecovery:
    """Finds where one log ends, and makes it."""

    def __init__(
        self, image: PartitionImage, config: LogConfig, environment: Environment, report: RecoveryReport
    ) -> None:
        self._image = image
        self._environment = environment
        self._report = report
        self._snapshot = self._believable_snapshot()
        point = image.point
        self._log = Log(
            image.partition,
            config,
            environment,
            image.state,
            closed=[],
            active=self._segment(point.segment_base_offset, config),
            log_end_offset=point.offset,
            epochs=LeaderEpochs([EpochStart(*start) for start in self._snapshot.epochs] if self._snapshot else None),
            producers=Producers(image.partition),
            recovery_point=point,
        )
        self._aborted_are_lost = False
        if self._snapshot:
            self._load_producers(self._snapshot)

    def run(self) -> Log:
        """Raises OSError."""
        log, image = self._log, self._image
        try:
            self._open_segments()
            log.draw_commit_line(log.log_end_offset)
            if self._snapshot is None:
                self._replay_from_the_start()
            elif self._aborted_are_lost:
                derive_aborted(log)
            if image.state.truncate_to is not None:
                log.log_end_offset = image.state.truncate_to
                finish_truncation(log)
        except CorruptLogError as error:
            self._quarantine(error)
            # What was promised is not there to be read, but its offsets are taken: no end that was shown goes back.
            log.log_end_offset = max(log.log_end_offset, image.durable_offset)
            log.draw_commit_line(log.log_end_offset)
            self._replay_what_is_good()
        if log.log_end_offset == log.recovery_point.offset:
            log.decided_offset = log.producers.decided_before(log.log_end_offset)
        log.epochs.cut_start(log.log_start_offset)
        self._restore_quarantine()
        return log

    def _restore_quarantine(self) -> None:
        """A partition that was quarantined before, or whose state cannot be believed, is quarantined now."""
        image, log = self._image, self._log
        if log.corruption is not None:
            return
        if image.damage is not None:
            damage = image.damage
            self._quarantine(CorruptLogError(image.partition, damage.file, 0, log.log_end_offset, damage.reason))
        elif image.state.quarantine is not None:
            found = image.state.quarantine
            error = CorruptLogError(image.partition, found.file, found.position, found.offset, found.reason)
            log.corruption = log.refusal = error
            self._report.quarantined.append(error)

    def _open_segments(self) -> None:
        """Closed segments as they are; from the recovery point on, batch by batch. Raises CorruptLogError."""
        log, image = self._log, self._image
        first = bisect_left(image.base_offsets, image.point.segment_base_offset)
        cache, interval = self._environment.cache, log.config.index_interval_bytes
        log.closed = [ClosedSegment(log.partition, base, cache, interval) for base in image.base_offsets[:first]]
        tail = image.base_offsets[first:]
        if not tail or tail[0] != image.point.segment_base_offset:
            raise log.active.corrupt(0, "the segment with the end of the log is missing")
        for number, base_offset in enumerate(tail):
            if number:
                limit = image.state.truncate_to
                is_due = base_offset == log.log_end_offset if limit is None else base_offset < limit
                if not is_due:
                    log.log_end_offset = log.log_end_offset if limit is None else limit
                    self._end_here(log.active, log.active.size, tail[number:], "the next segment is missing")
                    return
                log.active.close()
                log.closed.append(log.as_closed(log.active.base_offset, log.active.size))
                log.active = log.new_active(base_offset)
            if not self._scan(log.active, image.point.position if number == 0 else 0, tail[number + 1 :]):
                return

    def _scan(self, active: ActiveSegment, position: int, later: list[int]) -> bool:
        """Take what is good from `position` on. False when the log ended inside this segment.

        Offsets are dense past the recovery point. A truncation is found from further back, where compaction may have
        been and left gaps.
        """
        log = self._log
        limit = self._image.state.truncate_to
        file = self._environment.files.open(active.path)
        try:
            size = file.size()
            if size < position:
                raise active.corrupt(size, f"the file has {size} bytes where {position} were synced")
            active.open_at(position)
            for batch in scan_batches(file, position, size):
                header = batch.header
                if limit is not None and header.last_offset >= limit:
                    log.log_end_offset = limit
                    return self._end_here(active, batch.position, later, "the log is to be truncated here")
                has_gap = header.base_offset > log.log_end_offset and limit is not None
                if header.base_offset != log.log_end_offset and not has_gap:
                    reason = f"offset {header.base_offset} stands where {log.log_end_offset} is due"
                    return self._end_here(active, batch.position, later, reason)
                active.adopt(header.base_offset, header.max_timestamp, header.size)
                self._take_note(batch)
                log.log_end_offset = header.next_offset
                self._report.bytes_scanned += header.size
        except RecordsError as error:
            return self._end_here(active, active.size, later, str(error))
        finally:
            file.close()
        return True

    def _end_here(self, active: ActiveSegment, position: int, later: list[int], reason: str) -> bool:
        """The log is good up to `position` and no further: cut the rest off if nobody was promised it."""
        log, files = self._log, self._environment.files
        if log.log_end_offset < self._image.durable_offset:
            raise CorruptLogError(self._image.partition, active.path, position, log.log_end_offset, reason)
        file = self._environment.open_files.get(active.path)
        self._report.bytes_cut += file.size() - position
        file.truncate(position)
        sync_file(file)
        for base_offset in later:
            path = log_path(self._image.directory, base_offset)
            self._report.bytes_cut += files.size(path)
            files.unlink(path)
        if later:
            sync_directory(files, self._image.directory)
        return False

    def _take_note(self, batch: ScannedBatch) -> None:
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
        producers, image = self._log.producers, self._image
        producers.load_json(snapshot.producers)
        if snapshot.aborted_count:
            found = AbortedTransactions.load(
                self._environment.files,
                image.directory,
                snapshot.aborted_count,
                snapshot.offset,
                image.state.log_start_offset,
            )
            if found is None:
                self._aborted_are_lost = True
            else:
                producers.aborted = found

    def _replay_from_the_start(self) -> None:
        log = self._log
        for segment in log.segments:
            for hop in segment.hops():
                log.epochs.assign(hop.header.leader_epoch, hop.header.base_offset)
        replay_producers(log)

    def _replay_what_is_good(self) -> None:
        """Of a log that is bad somewhere, what can be read must still not show an aborted record as committed."""
        if self._snapshot is None or self._aborted_are_lost:
            with suppress(CorruptLogError):
                replay_producers(self._log)

    def _believable_snapshot(self) -> Snapshot | None:
        """The snapshot, unless the log was truncated since. A log that is read from its start needs none."""
        image = self._image
        snapshot = image.snapshot
        if snapshot is None or snapshot.number < image.state.floor_number or image.state.truncate_to is not None:
            return Snapshot(0, 0, [], []) if image.point.offset == 0 else None
        return snapshot

    def _quarantine(self, error: CorruptLogError) -> None:
        self._log.quarantine(error, self._image.durable_offset)
        self._report.quarantined.append(error)

    def _segment(self, base_offset: int, config: LogConfig) -> ActiveSegment:
        environment = self._environment
        return ActiveSegment(
            self._image.partition,
            base_offset,
            environment.open_files,
            config.index_interval_bytes,
            environment.probe,
        )


def _list_segments(files: Files, directory: str) -> tuple[list[int], list[str]]:
    """(base offsets of the segments, files to be unlinked), once what a crash left half-done is done or gone."""
    base_offsets: list[int] = []
    retired: list[str] = []
    swaps: list[tuple[int, int]] = []
    for name in files.list(directory):
        if name.endswith(INDEX_SUFFIX):
            continue
        if (base_offset := parse_log(name)) is not None:
            base_offsets.append(base_offset)
        elif name.endswith(TEMPORARY_SUFFIX):
            files.unlink(f"{directory}/{name}")
        elif name.endswith(DELETED_SUFFIX):
            retired.append(f"{directory}/{name}")
        elif (swap := parse_swap(name)) is not None:
            swaps.append(swap)
    for base_offset, end_offset in swaps:
        # A compacted segment that was ready to replace others replaces them now.
        replaced = [base for base in base_offsets if base_offset < base < end_offset]
        finish_swap(files, directory, base_offset, end_offset, replaced, files.unlink)
        base_offsets = sorted({base_offset, *base_offsets} - set(replaced))
    return base_offsets, retired
