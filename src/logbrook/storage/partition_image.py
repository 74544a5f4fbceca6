"""The first steps of recovery: a partition's metadata and segments as found on disk, and the write-ahead log's entries.

A WAL entry holds bytes and their position in a segment, so redo writes them there again. Redo is idempotent: a crash
during recovery is recovered like any other. An entry without bytes tells that the segment itself was synced (ADR 27).
Checkpoint, WAL entries and snapshot older than the partition's last truncation (`floor_number`, see `partition_files`)
are ignored, because they may refer to truncated bytes.
"""

from contextlib import closing
from dataclasses import dataclass, replace

from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.ports import File, Files
from logbrook.storage.durable_files import PAGE_BYTES, is_unreadable
from logbrook.storage.errors import CorruptFileError
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
from logbrook.storage.segment_files import finish_swap
from logbrook.storage.wal_format import WalContents, WalEntry


@dataclass
class PartitionImage:
    """A partition's metadata and segment list as found on disk, before its batches are read.

    `retired` are files to unlink; `damage` is the reason why the state file cannot be used, if so. `unreadable` is set
    if WAL entries could not be redone.
    """

    partition: TopicPartition
    state: PartitionState
    point: RecoveryPoint
    durable_offset: Offset
    base_offsets: list[int]
    retired: list[str]
    snapshot: Snapshot | None
    damage: CorruptFileError | None = None
    unreadable: OSError | None = None

    @property
    def directory(self) -> str:
        return self.partition.directory

    @property
    def number(self) -> int:
        """The highest WAL entry number that the partition's metadata refers to."""
        return max(self.state.floor_number, self.snapshot.number if self.snapshot else 0)


def load_image(files: Files, partition: TopicPartition, checkpoint: Checkpoint) -> PartitionImage | None:
    """Read a partition's metadata and list its segments. Completes or discards replacements that a crash interrupted.

    Returns None if the partition's creation did not complete: nothing was ever written to it.
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
        if damage is None and not any(
            files.size(log_path(directory, Offset(base_offset))) for base_offset in base_offsets
        ):
            return None
        start = min(base_offsets, default=0)
        state = PartitionState(log_start_offset=Offset(start), floor=RecoveryPoint(Offset(start), Offset(start), 0))
        damage = damage or CorruptFileError(f"{directory}/{STATE}", "it is missing, but the partition has records")
    if point is None or checkpoint.number < state.floor_number:
        point = state.floor
    if base_offsets and base_offsets[0] > state.log_start_offset:
        state = replace(state, log_start_offset=Offset(base_offsets[0]))
    if state.truncate_to is not None:
        # Everything below the cut was synced before the intent was saved. Scan forward from the segment of the cut.
        base_offset = max((base for base in base_offsets if base <= state.truncate_to), default=point.offset)
        point = RecoveryPoint(Offset(base_offset), Offset(base_offset), 0)
    elif point.offset in base_offsets:
        # The end of a segment is the start of the next. The former may have been removed or compacted since.
        point = RecoveryPoint(point.offset, point.offset, 0)
    durable_offset = point.offset if state.truncate_to is None else state.truncate_to
    if state.quarantine is not None:
        durable_offset = max(durable_offset, state.quarantine.durable_offset)
    snapshot = read_snapshot(files, directory)
    return PartitionImage(partition, state, point, Offset(durable_offset), base_offsets, retired, snapshot, damage)


def redo(files: Files, wal: WalContents, images: dict[bytes, PartitionImage]) -> int:
    """Write the WAL entries to their segments again, and advance the durable offsets. Returns the number written.

    If that fails because the disk cannot read the segment, the image is marked, and the WAL files are kept as damaged.
    Raises OSError.
    """
    redone = 0
    for entry in wal.entries():
        image = images.get(entry.directory)
        if image is None or entry.number < image.state.floor_number or image.state.truncate_to is not None:
            continue
        image.durable_offset = entry.next_offset
        if not entry.data:
            continue
        path = log_path(image.directory, entry.segment_base_offset)
        if entry.segment_base_offset in image.base_offsets:
            file = files.open(path)
        else:
            file = files.create(path)
            image.base_offsets.append(entry.segment_base_offset)
            image.base_offsets.sort()
        try:
            with closing(file):
                _write_entry(file, entry, wal)
        except OSError as error:
            if not is_unreadable(error):
                raise
            image.unreadable = error
            wal.damage.append(f"entry {entry.number} cannot be written to {path} ({error.strerror})")
            wal.damaged_paths.update(wal.paths)
        redone += 1
    return redone


def _write_entry(file: File, entry: WalEntry, wal: WalContents) -> None:
    try:
        file.pwrite(entry.data, entry.position)
    except OSError as error:
        if not is_unreadable(error) or wal.is_synced_after(entry):
            raise
        # The kernel reads a page that is written in part, such as one with a sector that a power loss left unreadable.
        # So the last page is written whole. What it had after this entry is in the next entries, if it was durable.
        end = entry.position + len(entry.data)
        size = max(file.size(), end)
        file.pwrite(bytes(entry.data) + bytes(-end % PAGE_BYTES), entry.position)
        file.truncate(size)


def _list_segments(files: Files, directory: str) -> tuple[list[int], list[str]]:
    """Return (segment base offsets, files to unlink) after completing or discarding interrupted replacements."""
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
        # The replacement was committed before the crash; complete it.
        replaced = [base for base in base_offsets if base_offset < base < end_offset]
        finish_swap(files, directory, Offset(base_offset), Offset(end_offset), replaced, files.unlink)
        base_offsets = sorted({base_offset, *base_offsets} - set(replaced))
    return base_offsets, retired
