"""The committed offsets of one group.

An offset is visible only after `replay`, that is when it is durable. Between the decision to accept a commit and its
replay the partition is remembered as `decided`: expiry leaves it alone, and a deletion that is decided later covers
it, because its tombstone will stand behind the commit in the log.

A commit in a transaction is `pending` after its replay, until the transaction ends. While it is, the partition does
not expire, and a deletion covers it too.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

from logbrook.core.groups.pending_offsets import PendingOffsets
from logbrook.core.groups.records import OffsetKey, OffsetValue
from logbrook.core.groups.requests import OffsetToCommit
from logbrook.core.groups.results import NO_OFFSET, CommittedOffset, Record
from logbrook.model import TopicPartition


class GroupOffsets:
    """Offsets by partition."""

    __slots__ = ("_committed", "_decided_ms", "_group_id", "_pending")

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._committed: dict[TopicPartition, OffsetValue] = {}
        # When the newest commit on its way to the log was accepted.
        self._decided_ms: dict[TopicPartition, int] = {}
        self._pending = PendingOffsets()

    def __bool__(self) -> bool:
        return bool(self._committed or self._decided_ms or self._pending)

    @property
    def unstable(self) -> frozenset[TopicPartition]:
        """The partitions whose offset an open transaction may change."""
        return frozenset(self._pending)

    def commit(self, offsets: Iterable[OffsetToCommit], now_ms: int) -> list[Record]:
        """The records that commit these offsets."""
        records: list[Record] = []
        for each in offsets:
            value = OffsetValue(each.offset, each.leader_epoch, each.metadata, commit_timestamp_ms=now_ms)
            records.append((OffsetKey(self._group_id, each.partition).encode(), value.encode()))
            self._decided_ms[each.partition] = now_ms
        return records

    def replay(self, partition: TopicPartition, value: OffsetValue | None) -> None:
        self._pending.drop(partition)
        if value is None:
            self._committed.pop(partition, None)
        else:
            self._committed[partition] = value
            self.settle(partition, value)

    def replay_pending(self, producer_id: int, partition: TopicPartition, value: OffsetValue) -> None:
        """A commit in a transaction of this producer has arrived."""
        self._pending.add(producer_id, partition, value)
        self.settle(partition, value)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        if is_commit:
            self._committed |= self._pending.commit(producer_id)
        else:
            self._pending.abort(producer_id)

    def settle(self, partition: TopicPartition, value: OffsetValue) -> None:
        """A commit is no longer on its way: it arrived, or it failed."""
        if self._decided_ms.get(partition, value.commit_timestamp_ms + 1) <= value.commit_timestamp_ms:
            del self._decided_ms[partition]

    def fetch(self, partitions: Sequence[TopicPartition] | None) -> dict[TopicPartition, CommittedOffset]:
        """The offsets of these partitions, `NO_OFFSET` where there is none; of all that have one, for None."""
        wanted = self._committed if partitions is None else partitions
        return {partition: self._fetch_one(partition) for partition in wanted}

    def delete(self, partitions: Iterable[TopicPartition]) -> list[Record]:
        """The tombstones of those of these partitions that have an offset or may soon have one."""
        return [
            (OffsetKey(self._group_id, partition).encode(), None)
            for partition in partitions
            if partition in self._committed or partition in self._decided_ms or partition in self._pending
        ]

    def delete_where(self, condition: Callable[[TopicPartition], bool]) -> list[Record]:
        partitions = dict.fromkeys([*self._committed, *self._decided_ms, *self._pending])
        return self.delete(filter(condition, partitions))

    def expired(
        self, now_ms: int, retention_ms: int, idle_since_ms: int | None, kept_topics: Collection[str]
    ) -> list[TopicPartition]:
        """Those that are past their time: since the last commit, or since the group became empty if that was later.

        Kafka looks at the later fact alone, and so takes offsets back at once that an operator sets in a group
        which has long been empty.
        """
        base_ms = idle_since_ms or 0
        return [
            partition
            for partition, value in self._committed.items()
            if partition not in self._decided_ms
            and partition not in self._pending
            and partition.topic not in kept_topics
            and (
                now_ms - max(value.commit_timestamp_ms, base_ms) >= retention_ms
                if value.expire_timestamp_ms is None
                else now_ms >= value.expire_timestamp_ms
            )
        ]

    def has_others_than(self, partitions: Collection[TopicPartition]) -> bool:
        """Whether anything would be left without these."""
        return bool(self._decided_ms or self._pending) or len(self._committed) > len(partitions)

    def forget_decided_before(self, time_ms: int) -> None:
        """Drop what was decided so long ago that it cannot be on its way any more."""
        self._decided_ms = {partition: ms for partition, ms in self._decided_ms.items() if ms >= time_ms}

    def validate(self) -> None:
        """The rules that hold between any two calls."""
        self._pending.validate()

    def _fetch_one(self, partition: TopicPartition) -> CommittedOffset:
        value = self._committed.get(partition)
        return NO_OFFSET if value is None else CommittedOffset(value.offset, value.leader_epoch, value.metadata)
