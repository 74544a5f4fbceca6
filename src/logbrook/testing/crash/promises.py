"""The promises of a workload: the guarantees that recovery must keep after a crash, derived from the workload's marks.

A mark is an entry of the journal (`RecordingFiles.mark`) that a workload writes before an operation (`CreateBegun`,
`BatchWritten`, ...) and after it (`Created`, `Acked`, ...). After the first mark the result may be visible, after the
second it must be. The marks before a crash, folded into `Promises`, define for each partition

- whether it must, may or must not exist,
- which batches may be at which offset: all that were written there and not truncated since,
- the durable end: everything below it was acknowledged or returned to a reader and must be recovered,
- the range in which the log start offset must be.

`checker` compares a recovered directory with them.

An acknowledgement covers all records before it: appends of a partition become durable in their order.
"""

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from logbrook.model import TopicPartition
from logbrook.records.batch import read_header
from logbrook.records.reader import iter_records

_DECOMPRESSED_BYTES_MAX = 1 << 24


class BrokenPromiseError(AssertionError):
    """A promise does not hold in the recovered state."""


class CreateBegun(NamedTuple):
    partition: TopicPartition


class Created(NamedTuple):
    partition: TopicPartition


class DeleteBegun(NamedTuple):
    partition: TopicPartition


class Deleted(NamedTuple):
    partition: TopicPartition


class BatchWritten(NamedTuple):
    """A batch about to be appended, as it will be stored."""

    partition: TopicPartition
    base_offset: int
    data: bytes

    def __repr__(self) -> str:
        return f"BatchWritten({self.partition}, {self.base_offset}, {len(self.data)} bytes)"


class Refused(NamedTuple):
    """An append that was refused without an I/O failure: nothing of it may ever be visible."""

    partition: TopicPartition
    base_offset: int
    data: bytes

    def __repr__(self) -> str:
        return f"Refused({self.partition}, {self.base_offset}, {len(self.data)} bytes)"


class Acked(NamedTuple):
    """An append that completed without an error."""

    partition: TopicPartition
    base_offset: int
    next_offset: int


class StartMoving(NamedTuple):
    """Records below `offset_max` may be deleted from here on."""

    partition: TopicPartition
    offset_max: int


class StartMoved(NamedTuple):
    """The log start offset is durably `offset` and must not decrease."""

    partition: TopicPartition
    offset: int


class TruncateBegun(NamedTuple):
    """The batch that contains `offset` and all later ones may be removed from here on."""

    partition: TopicPartition
    offset: int


class Truncated(NamedTuple):
    """Everything from `end_offset` on is removed and must not reappear."""

    partition: TopicPartition
    end_offset: int


class CompactionBegun(NamedTuple):
    """Records below `end_offset` that a newer record of the same key supersedes may be removed from here on."""

    partition: TopicPartition
    end_offset: int
    now_ms: int


class ExpiryBegun(NamedTuple):
    """Producers last seen before `before_ms` may be expired from here on."""

    before_ms: int


class ShownLog(NamedTuple):
    log_start_offset: int
    log_end_offset: int
    batches: tuple[tuple[int, bytes], ...]


class Shown(NamedTuple):
    """The directory was opened: records that are readable now must stay readable, and no others may appear."""

    logs: dict[TopicPartition, ShownLog]

    def __repr__(self) -> str:
        ends = ", ".join(f"{partition} to {log.log_end_offset}" for partition, log in self.logs.items())
        return f"Shown({ends})"


_PartitionMark = CreateBegun | Created | DeleteBegun | Deleted | StartMoving | StartMoved | CompactionBegun
_AppendMark = BatchWritten | Refused | Acked | TruncateBegun | Truncated
PromiseMark = _PartitionMark | _AppendMark | ExpiryBegun | Shown


class Presence(Enum):
    MAYBE = "may exist"
    REQUIRED = "must exist"


@dataclass(slots=True)
class PartitionPromise:
    """The promises of one partition since its creation; a recreated partition gets a new object.

    `batches` has every batch that may be at a base offset. The log start offset must be in [start_min, start_max].
    """

    presence: Presence = Presence.MAYBE
    batches: dict[int, list[bytes]] = field(default_factory=dict)
    durable_end: int = 0
    start_min: int = 0
    start_max: int = 0
    compactions: list[CompactionBegun] = field(default_factory=list)
    # Keys of truncated records, with the offset of the truncation: a compaction may have removed older records of the
    # key because of the truncated one, so any record of the key below that offset may be missing.
    cut_keys: dict[bytes | None, int] = field(default_factory=dict)
    expired_before_ms: int = 0

    def base_of(self, offset: int) -> int:
        """The base offset of the batch that contains `offset`, or `offset` if there is none."""
        return max((base for base in self.batches if base <= offset), default=offset)

    def release_from(self, offset: int) -> None:
        """Permit the loss of everything from `offset` on: a truncation has begun."""
        self.durable_end = min(self.durable_end, offset)
        if self.compactions:
            written = [data for candidates in self.batches.values() for data in candidates]
            # Truncating a marker reopens its transaction, whose decision a compaction may have applied already.
            undone = {read_header(data).producer_id for data in written if _is_marker(data) and _reaches(data, offset)}
            for data in written:
                header = read_header(data)
                if _reaches(data, offset) or (header.is_transactional and header.producer_id in undone):
                    for record in iter_records(data, bytes_max=_DECOMPRESSED_BYTES_MAX):
                        self.cut_keys[record.key] = max(offset, self.cut_keys.get(record.key, 0))

    def forget_from(self, offset: int) -> None:
        """Forbid everything from `offset` on: a truncation is complete."""
        self.release_from(offset)
        kept = {
            base: [data for data in candidates if not _reaches(data, offset)]
            for base, candidates in self.batches.items()
        }
        self.batches = {base: candidates for base, candidates in kept.items() if candidates}
        self.cut_keys = {key: min(cut, offset) for key, cut in self.cut_keys.items()}


class Promises:
    """The promises after a sequence of marks. `take` adds a mark."""

    def __init__(self, marks: Iterable[object] = ()) -> None:
        self.partitions: dict[TopicPartition, PartitionPromise] = {}
        self.take_all(marks)

    def copy(self) -> "Promises":
        return deepcopy(self)

    def take_all(self, marks: Iterable[object]) -> None:
        for mark in marks:
            self.take(mark)

    def take(self, mark: object) -> None:  # noqa: C901, PLR0912 - one case per mark
        partitions = self.partitions
        match mark:
            case BatchWritten(partition, base_offset, data):
                candidates = partitions[partition].batches.setdefault(base_offset, [])
                if data not in candidates:
                    candidates.append(data)
            case Refused(partition, base_offset, data):
                partitions[partition].batches[base_offset].remove(data)
            case Acked(partition, _, next_offset):
                promise = partitions[partition]
                promise.durable_end = max(promise.durable_end, next_offset)
            case CreateBegun(partition):
                partitions[partition] = PartitionPromise()
            case Created(partition):
                partitions[partition].presence = Presence.REQUIRED
            case DeleteBegun(partition):
                partitions[partition].presence = Presence.MAYBE
            case Deleted(partition):
                del partitions[partition]
            case StartMoving(partition, offset_max):
                promise = partitions[partition]
                promise.start_max = max(promise.start_max, offset_max)
            case StartMoved(partition, offset):
                promise = partitions[partition]
                promise.start_min = promise.start_max = offset
            case TruncateBegun(partition, offset):
                promise = partitions[partition]
                promise.release_from(promise.base_of(offset))
            case Truncated(partition, end_offset):
                partitions[partition].forget_from(end_offset)
            case CompactionBegun(partition, _, _):
                partitions[partition].compactions.append(mark)
            case ExpiryBegun(before_ms):
                for promise in partitions.values():
                    promise.expired_before_ms = before_ms
            case Shown(logs):
                self._show(logs)
            case _:
                raise AssertionError(f"unknown mark: {mark!r}")

    def _show(self, logs: dict[TopicPartition, ShownLog]) -> None:
        for partition in [partition for partition in self.partitions if partition not in logs]:
            del self.partitions[partition]
        for partition, shown in logs.items():
            promise = self.partitions.setdefault(partition, PartitionPromise())
            promise.presence = Presence.REQUIRED
            promise.forget_from(shown.log_end_offset)
            promise.durable_end = shown.log_end_offset
            promise.start_min = promise.start_max = shown.log_start_offset
            if not promise.compactions:
                promise.batches |= {base: [data] for base, data in shown.batches}


def _is_marker(data: bytes) -> bool:
    return read_header(data).is_control


def _reaches(data: bytes, offset: int) -> bool:
    """True if a truncation at `offset` removes this batch. Truncation removes whole batches."""
    return read_header(data).last_offset >= offset
