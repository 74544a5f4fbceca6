"""What a workload promised, told by the marks it left, and what may be found after a crash because of it.

A workload marks what it is about to do and what was done. From "begun" on the outcome may be seen, from the other mark
on it must be. The marks before a crash, folded into `Promises`, say of each partition

- whether it must, may or must not be there,
- which bytes may stand at which offset: all that was ever written there and not truncated since,
- up to which offset everything must be there, because it was acknowledged or shown to a reader,
- between which offsets the log must start.

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


class CreateBegun(NamedTuple):
    partition: TopicPartition


class Created(NamedTuple):
    partition: TopicPartition


class DeleteBegun(NamedTuple):
    partition: TopicPartition


class Deleted(NamedTuple):
    partition: TopicPartition


class Written(NamedTuple):
    """A batch that is about to be appended, as it will stand in the log."""

    partition: TopicPartition
    base_offset: int
    data: bytes

    def __repr__(self) -> str:
        return f"Written({self.partition}, {self.base_offset}, {len(self.data)} bytes)"


class Refused(NamedTuple):
    """An append that was refused while the disk could be believed: nothing of it may ever be found."""

    partition: TopicPartition
    base_offset: int
    data: bytes

    def __repr__(self) -> str:
        return f"Refused({self.partition}, {self.base_offset}, {len(self.data)} bytes)"


class Acked(NamedTuple):
    """An append whose ticket was completed without an error."""

    partition: TopicPartition
    base_offset: int
    next_offset: int


class StartMoving(NamedTuple):
    """Records before `offset_max` may go from here on."""

    partition: TopicPartition
    offset_max: int


class StartMoved(NamedTuple):
    """The log starts at `offset`, and never before it again."""

    partition: TopicPartition
    offset: int


class TruncateBegun(NamedTuple):
    """The batch that holds `offset` and all later ones may go from here on."""

    partition: TopicPartition
    offset: int


class Truncated(NamedTuple):
    """What was at `end_offset` and past it is gone, and never comes back."""

    partition: TopicPartition
    end_offset: int


class CompactionBegun(NamedTuple):
    """Records before `end_offset` of which there is a newer one by the same key may go from here on."""

    partition: TopicPartition
    end_offset: int
    now_ms: int


class ExpiryBegun(NamedTuple):
    """Producers that were last seen before `before_ms` may be unknown from here on."""

    before_ms: int


class ShownLog(NamedTuple):
    log_start_offset: int
    log_end_offset: int
    batches: tuple[tuple[int, bytes], ...]


class Shown(NamedTuple):
    """The directory was opened: what its readers can see now must stay, and what they cannot must stay away."""

    logs: dict[TopicPartition, ShownLog]

    def __repr__(self) -> str:
        ends = ", ".join(f"{partition} to {log.log_end_offset}" for partition, log in self.logs.items())
        return f"Shown({ends})"


PromiseMark = (
    CreateBegun
    | Created
    | DeleteBegun
    | Deleted
    | Written
    | Refused
    | Acked
    | StartMoving
    | StartMoved
    | TruncateBegun
    | Truncated
    | CompactionBegun
    | ExpiryBegun
    | Shown
)


class Presence(Enum):
    MAYBE = "may be there"
    REQUIRED = "must be there"


@dataclass(slots=True)
class PartitionPromise:
    """One partition, from its creation on; a partition of the same name that is made later has a promise of its own."""

    presence: Presence = Presence.MAYBE
    batches: dict[int, list[bytes]] = field(default_factory=dict)
    durable_end: int = 0
    start_min: int = 0
    start_max: int = 0
    compactions: list[CompactionBegun] = field(default_factory=list)
    # Keys of which a record was cut off after a compaction may have removed the older ones because of it, and where
    # the cut was: what is left of such a key before it, nobody can say.
    cut_keys: dict[bytes | None, int] = field(default_factory=dict)
    expired_before_ms: int = 0

    def base_of(self, offset: int) -> int:
        """The lowest base offset of a batch that holds `offset`; the offset itself where there is none."""
        return max((base for base in self.batches if base <= offset), default=offset)

    def release_from(self, offset: int) -> None:
        """What is at `offset` or past it may be lost from here on."""
        self.durable_end = min(self.durable_end, offset)
        if self.compactions:
            written = [data for found in self.batches.values() for data in found]
            # With its marker a transaction loses what was decided, and its records may have gone because of that, or
            # others because of them.
            undone = {read_header(data).producer_id for data in written if _is_marker(data) and _reaches(data, offset)}
            for data in written:
                header = read_header(data)
                if _reaches(data, offset) or (header.is_transactional and header.producer_id in undone):
                    for record in iter_records(data, bytes_max=_DECOMPRESSED_BYTES_MAX):
                        self.cut_keys[record.key] = max(offset, self.cut_keys.get(record.key, 0))

    def forget_from(self, offset: int) -> None:
        """Nothing at `offset` or past it may be found any more."""
        self.release_from(offset)
        kept = {base: [data for data in found if not _reaches(data, offset)] for base, found in self.batches.items()}
        self.batches = {base: found for base, found in kept.items() if found}
        self.cut_keys = {key: min(cut, offset) for key, cut in self.cut_keys.items()}


class Promises:
    """The promises after some marks. `take` adds one more."""

    def __init__(self, marks: Iterable[object] = ()) -> None:
        self.partitions: dict[TopicPartition, PartitionPromise] = {}
        self.take_all(marks)

    def copy(self) -> "Promises":
        return deepcopy(self)

    def take_all(self, marks: Iterable[object]) -> None:
        for mark in marks:
            self.take(mark)

    def take(self, mark: object) -> None:  # noqa: PLR0912 - one case per mark
        partitions = self.partitions
        match mark:
            case Written(partition, base_offset, data):
                found = partitions[partition].batches.setdefault(base_offset, [])
                if data not in found:
                    found.append(data)
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
                raise AssertionError(f"not a promise: {mark!r}")

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
    """Whether a cut at `offset` takes this batch. A batch is cut whole: where the cut falls between its offsets it had
    gone before, to a compaction."""
    return read_header(data).last_offset >= offset
