"""The metadata files: `state` and `snapshot` of each partition, the directory's `checkpoint` and `high-watermarks`.

Each file has one writer (ADR 3). The log's owner writes `state`, with facts that cannot be derived from the batches:
log start offset, last truncation, compaction progress, quarantine. A checkpoint writes `snapshot`, possibly from
another thread, with what can be rebuilt from the batches: leader epochs and producer state.

The state's floor is the log end after the last truncation (or creation). WAL entries, checkpoints and snapshots with a
number below `floor_number` predate it and may refer to truncated bytes, so recovery ignores them.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from logbrook.model.identifiers import Offset
from logbrook.ports import Files
from logbrook.storage.durable_files import (
    encode_json,
    is_unreadable,
    prepare_sealed,
    publish_file,
    read_sealed,
    replace_file,
    seal,
    sync_directory,
    write_sealed,
)
from logbrook.storage.errors import CorruptFileError
from logbrook.storage.paths import CHECKPOINT, HIGH_WATERMARKS, SNAPSHOT, STATE, TEMPORARY_SUFFIX

_POINTS_PER_STEP = 500


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Position of a partition's damage, and the offset up to which the log was durable.

    `is_unreadable` is set for an UnreadableLogError, which ends when a start can read the log.
    """

    file: str
    position: int
    offset: Offset
    reason: str
    durable_offset: Offset
    is_unreadable: bool = False


class Snapshot(NamedTuple):
    """Leader epochs and producer state as of `offset`, taken when the WAL's next entry number was `number`.

    `aborted_count` is the number of entries of the transaction index that belong to it.
    """

    offset: Offset
    number: int
    epochs: list[list[int]]
    producers: list[Any]
    aborted_count: int = 0


class RecoveryPoint(NamedTuple):
    """Everything before `offset` is synced. `offset` is at `position` in the segment with `segment_base_offset`."""

    offset: Offset
    segment_base_offset: Offset
    position: int


BEGINNING = RecoveryPoint(Offset(0), Offset(0), 0)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """`floor` is the log end after the last truncation, or at creation, when the WAL was at `floor_number`.

    `truncate_to` is the target of a truncation in progress, which recovery completes. `cleaned_offset` is the offset up
    to which the log is compacted. `has_gaps` is set before a batch is appended after a gap: the log of the leader, from
    which it was fetched, is compacted. `topic_id` is that of the topic in a cluster, where a name may be used again.
    """

    log_start_offset: Offset = Offset(0)
    floor_number: int = 0
    floor: RecoveryPoint = BEGINNING
    truncate_to: int | None = None
    cleaned_offset: Offset = Offset(0)
    quarantine: Quarantine | None = None
    has_gaps: bool = False
    topic_id: str = ""


class Checkpoint(NamedTuple):
    """Recovery points of all partitions by directory name, as of WAL entry `number`.

    `mark` is the random value that this directory's WAL blocks begin with. `clean` is set by a clean shutdown: every
    WAL entry is in a synced segment, so recovery does not read the WAL.
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
    """Write a state to a temporary file, to be published later. Returns the temporary path."""
    temporary = f"{directory}/{STATE}.next{TEMPORARY_SUFFIX}"
    prepare_sealed(files, temporary, asdict(state))
    return temporary


def publish_states(files: Files, temporaries: Sequence[str]) -> None:
    """Rename prepared states into place, then sync their directories."""
    directories = [temporary.rpartition("/")[0] for temporary in temporaries]
    for directory, temporary in zip(directories, temporaries, strict=True):
        files.rename(temporary, f"{directory}/{STATE}")
    for directory in directories:
        sync_directory(files, directory)


def read_snapshot(files: Files, directory: str) -> Snapshot | None:
    """Return the snapshot, or None if it is missing, corrupt or unreadable: it can be rebuilt from the log."""
    try:
        content = read_sealed(files, f"{directory}/{SNAPSHOT}")
    except CorruptFileError:
        return None
    except OSError as error:
        if is_unreadable(error):
            return None
        raise
    return Snapshot(*content) if content is not None else None


def write_snapshot(files: Files, directory: str, snapshot: Snapshot, writer: str = "checkpoint") -> None:
    """`writer` names the temporary file: a checkpoint and the log's owner may write at the same time."""
    temporary = f"{directory}/{SNAPSHOT}.{writer}{TEMPORARY_SUFFIX}"
    prepare_sealed(files, temporary, snapshot)
    publish_file(files, temporary, f"{directory}/{SNAPSHOT}")


def read_checkpoint(files: Files) -> Checkpoint | None:
    """Return the checkpoint, or None if the file does not exist. Raises CorruptFileError."""
    content = read_sealed(files, CHECKPOINT)
    if content is None:
        return None
    points = {directory: RecoveryPoint(*point) for directory, point in content["points"].items()}
    return Checkpoint(content["number"], points, bytes.fromhex(content["mark"]), content["clean"])


def write_checkpoint(files: Files, checkpoint: Checkpoint) -> None:
    content = checkpoint._asdict() | {"mark": checkpoint.mark.hex()}
    points = sorted(content.pop("points").items())
    # The encoder holds the interpreter lock: in one call, the points of 10,000 partitions would stop the event loop.
    steps = (points[first : first + _POINTS_PER_STEP] for first in range(0, len(points), _POINTS_PER_STEP))
    encoded = ",".join(encode_json(dict(step))[1:-1] for step in steps)
    replace_file(files, CHECKPOINT, seal(f'{encode_json(content)[:-1]},"points":{{{encoded}}}}}'))


class SavedHighWatermark(NamedTuple):
    """The high watermark of a log with this topic id and `floor_number`, which is another one after a truncation.

    Then the records that it counted may be gone, and others may have their offsets.
    """

    offset: Offset
    topic_id: str
    floor_number: int

    @classmethod
    def of(cls, offset: Offset, state: PartitionState) -> "SavedHighWatermark":
        return cls(offset, state.topic_id, state.floor_number)

    def is_of(self, state: PartitionState) -> bool:
        return (self.topic_id, self.floor_number) == (state.topic_id, state.floor_number)


def read_high_watermarks(files: Files) -> dict[str, SavedHighWatermark]:
    """Return the saved high watermarks by directory name; none if the file is missing, corrupt or unreadable.

    Those of an earlier version, which are plain offsets, are left out. A replica without one learns it from its leader,
    and a leader from its followers.
    """
    try:
        content = read_sealed(files, HIGH_WATERMARKS)
    except CorruptFileError:
        return {}
    except OSError as error:
        if is_unreadable(error):
            return {}
        raise
    return {
        directory: SavedHighWatermark(*saved) for directory, saved in (content or {}).items() if isinstance(saved, list)
    }


def write_high_watermarks(files: Files, saved: dict[str, SavedHighWatermark]) -> None:
    write_sealed(files, HIGH_WATERMARKS, saved)
