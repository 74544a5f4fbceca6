"""The small durable files of a partition: what its owner decided, and a snapshot of what its log implies.

They have different writers. The owner writes `state` when something is decided that the log does not tell: where it
starts, that it was truncated, how far it is compacted. A checkpoint writes `snapshot`, maybe from another thread. So
neither ever overwrites what the other knows.

A truncation is a floor: entries of the write-ahead log, checkpoints and snapshots with a lower number than the floor's
were made before it, and speak of bytes that may be gone.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from logbrook.ports import Files
from logbrook.storage.disk_errors import sync_directory
from logbrook.storage.errors import CorruptFileError
from logbrook.storage.paths import CHECKPOINT, SNAPSHOT, STATE, TEMPORARY_SUFFIX
from logbrook.storage.sealed_json import prepare_sealed, publish_file, read_sealed, write_sealed


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Where a partition's bytes are bad, and up to where they were promised to be good."""

    file: str
    position: int
    offset: int
    reason: str
    durable_offset: int


class Snapshot(NamedTuple):
    """Leader epochs and producers as of `offset`, taken when the write-ahead log was at `number`.

    `aborted_count` entries of the file of aborted transactions belong to it.
    """

    offset: int
    number: int
    epochs: list[list[int]]
    producers: list[Any]
    aborted_count: int = 0


class RecoveryPoint(NamedTuple):
    """Everything before `offset` is synced; it lies at `position` of the segment `segment_base_offset`."""

    offset: int
    segment_base_offset: int
    position: int


BEGINNING = RecoveryPoint(0, 0, 0)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """`floor` is where the log ended when it was last truncated, or created, at entry `floor_number`.

    `truncate_to` is a truncation that was decided but maybe not carried out, `cleaned_offset` how far the log is
    compacted.
    """

    log_start_offset: int = 0
    floor_number: int = 0
    floor: RecoveryPoint = BEGINNING
    truncate_to: int | None = None
    cleaned_offset: int = 0
    quarantine: Quarantine | None = None


class Checkpoint(NamedTuple):
    """The recovery points of all partitions by directory, as of entry `number` of the write-ahead log.

    `mark` is what this directory's blocks of the write-ahead log begin with. `clean` is set by a close in good order:
    then the write-ahead log holds nothing that is not in the segments, and need not be read.
    """

    number: int
    points: dict[str, RecoveryPoint]
    mark: bytes
    clean: bool = False


def read_state(files: Files, directory: str) -> PartitionState | None:
    content = read_sealed(files, f"{directory}/{STATE}")
    if content is None:
        return None
    quarantine = content.pop("quarantine")
    floor = RecoveryPoint(*content.pop("floor"))
    return PartitionState(**content, floor=floor, quarantine=Quarantine(**quarantine) if quarantine else None)


def write_state(files: Files, directory: str, state: PartitionState) -> None:
    write_sealed(files, f"{directory}/{STATE}", asdict(state))


def prepare_state(files: Files, directory: str, state: PartitionState) -> str:
    """Write a state that is to come true later. Returns its temporary path."""
    temporary = f"{directory}/{STATE}.next{TEMPORARY_SUFFIX}"
    prepare_sealed(files, temporary, asdict(state))
    return temporary


def publish_states(files: Files, temporaries: Sequence[str]) -> None:
    """Let all of them come true, each in its own directory."""
    directories = [temporary.rpartition("/")[0] for temporary in temporaries]
    for directory, temporary in zip(directories, temporaries, strict=True):
        files.rename(temporary, f"{directory}/{STATE}")
    for directory in directories:
        sync_directory(files, directory)


def read_snapshot(files: Files, directory: str) -> Snapshot | None:
    """The snapshot, or None where there is none that can be believed: it can be made again from the log."""
    try:
        content = read_sealed(files, f"{directory}/{SNAPSHOT}")
    except CorruptFileError:
        return None
    return Snapshot(*content) if content is not None else None


def write_snapshot(files: Files, directory: str, snapshot: Snapshot, writer: str = "checkpoint") -> None:
    """Two may write at once, a checkpoint and the log's owner, so each has its own temporary file."""
    temporary = f"{directory}/{SNAPSHOT}.{writer}{TEMPORARY_SUFFIX}"
    prepare_sealed(files, temporary, snapshot)
    publish_file(files, temporary, f"{directory}/{SNAPSHOT}")


def read_checkpoint(files: Files) -> Checkpoint | None:
    """The checkpoint, or None where there is none. Raises CorruptFileError."""
    content = read_sealed(files, CHECKPOINT)
    if content is None:
        return None
    points = {directory: RecoveryPoint(*point) for directory, point in content["points"].items()}
    return Checkpoint(content["number"], points, bytes.fromhex(content["mark"]), content["clean"])


def write_checkpoint(files: Files, checkpoint: Checkpoint) -> None:
    write_sealed(files, CHECKPOINT, checkpoint._asdict() | {"mark": checkpoint.mark.hex()})
