"""The committed offsets of one group, and those pending in open transactions (KIP-98, KIP-447).

A pending offset is in the log but not visible until its transaction ends: a commit makes it the group's offset, an
abort drops it. Several producers may have a pending offset for the same partition, with plain commits in between. Of
these, the last one in the log wins, whatever the order in which the transactions end: compaction keeps only that one,
and a restart must come to the same result. Therefore an offset that becomes the committed one drops all older pending
offsets of its partition.

A partition with a pending offset does not expire; a deletion covers pending offsets too.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from logbrook.core.coordinator import CoordinatorRecord
from logbrook.core.groups.messages import NO_OFFSET, FetchedOffset, OffsetToCommit
from logbrook.core.groups.records import OffsetKey, OffsetValue
from logbrook.model import TopicPartition
from logbrook.model.identifiers import ProducerId

# Memory of an offset besides the name of its topic and its metadata, about.
_OFFSET_BYTES = 400


class GroupOffsets:
    """Committed and pending offsets by partition. Changed by replay only."""

    __slots__ = ("_committed", "_committed_bytes", "_group_id", "_pending")

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._committed: dict[TopicPartition, OffsetValue] = {}
        self._committed_bytes = 0
        self._pending = PendingOffsets()

    def __bool__(self) -> bool:
        return bool(self._committed or self._pending)

    @property
    def size(self) -> int:
        """Memory of all offsets, in bytes, about."""
        return self._committed_bytes + self._pending.size

    def growth(self, offset: OffsetToCommit, *, is_pending: bool) -> int:
        """Return the memory that an offset takes in addition, in bytes."""
        replaced = None if is_pending else self._committed.get(offset.partition)
        return _offset_bytes(offset.partition, offset.metadata) - (
            0 if replaced is None else _offset_bytes(offset.partition, replaced.metadata)
        )

    @property
    def unstable(self) -> frozenset[TopicPartition]:
        """The partitions whose offset an open transaction may change."""
        return frozenset(self._pending)

    def commit_records(self, offsets: Iterable[OffsetToCommit], now_ms: int) -> list[CoordinatorRecord]:
        """Return the records that commit these offsets."""
        return [
            (
                OffsetKey(self._group_id, offset.partition).encode(),
                OffsetValue(offset.offset, offset.leader_epoch, offset.metadata, commit_timestamp_ms=now_ms).encode(),
            )
            for offset in offsets
        ]

    def replay(self, partition: TopicPartition, value: OffsetValue | None) -> None:
        """Apply a plain commit, or a tombstone."""
        self._pending.drop_partition(partition)
        self._set(partition, value)

    def replay_pending(self, producer_id: ProducerId, partition: TopicPartition, value: OffsetValue) -> None:
        """Apply a commit that is part of the producer's open transaction."""
        self._pending.add(producer_id, partition, value)

    def end_transaction(self, producer_id: ProducerId, *, is_commit: bool) -> None:
        if is_commit:
            for partition, value in self._pending.commit(producer_id).items():
                self._set(partition, value)
        else:
            self._pending.abort(producer_id)

    def fetch(self, partitions: Sequence[TopicPartition] | None) -> dict[TopicPartition, FetchedOffset]:
        """Return the offsets of these partitions, `NO_OFFSET` for none; of all partitions if None."""
        wanted = self._committed if partitions is None else partitions
        return {partition: self._fetch_partition(partition) for partition in wanted}

    def tombstones(self, partitions: Iterable[TopicPartition]) -> list[CoordinatorRecord]:
        """Return the tombstones of those partitions that have a committed or pending offset."""
        return [
            (OffsetKey(self._group_id, partition).encode(), None)
            for partition in partitions
            if partition in self._committed or partition in self._pending
        ]

    def tombstones_where(self, condition: Callable[[TopicPartition], bool]) -> list[CoordinatorRecord]:
        return self.tombstones(filter(condition, dict.fromkeys([*self._committed, *self._pending])))

    def expired(
        self, now_ms: int, retention_ms: int, idle_since_ms: int | None, kept_topics: Collection[str]
    ) -> list[TopicPartition]:
        """Return the partitions past their retention, counted from the later of last commit and `idle_since_ms`.

        Kafka counts from `idle_since_ms` alone, and so expires an offset at once that an operator commits in a group
        that has long been empty.
        """
        base_ms = idle_since_ms or 0
        return [
            partition
            for partition, value in self._committed.items()
            if partition not in self._pending
            and partition.topic not in kept_topics
            and (
                now_ms - max(value.commit_timestamp_ms, base_ms) >= retention_ms
                if value.expire_timestamp_ms is None
                else now_ms >= value.expire_timestamp_ms
            )
        ]

    def has_others_than(self, partitions: Collection[TopicPartition]) -> bool:
        """Return True if offsets would remain without these committed ones."""
        return bool(self._pending) or len(self._committed) > len(partitions)

    def validate(self) -> None:
        """Assert the invariants that hold between any two calls."""
        self._pending.validate()
        sizes = [_offset_bytes(partition, value.metadata) for partition, value in self._committed.items()]
        assert self._committed_bytes == sum(sizes)

    def _set(self, partition: TopicPartition, value: OffsetValue | None) -> None:
        replaced = self._committed.pop(partition, None) if value is None else self._committed.get(partition)
        if replaced is not None:
            self._committed_bytes -= _offset_bytes(partition, replaced.metadata)
        if value is not None:
            self._committed[partition] = value
            self._committed_bytes += _offset_bytes(partition, value.metadata)

    def _fetch_partition(self, partition: TopicPartition) -> FetchedOffset:
        value = self._committed.get(partition)
        return NO_OFFSET if value is None else FetchedOffset(value.offset, value.leader_epoch, value.metadata)


class PendingOffsets:
    """Offsets of open transactions, by partition and by producer id."""

    __slots__ = ("_by_partition", "_by_producer", "size")

    def __init__(self) -> None:
        # Memory of all offsets, in bytes, about.
        self.size = 0
        # Per partition, the producers in the order of their newest records in the log.
        self._by_partition: dict[TopicPartition, dict[int, OffsetValue]] = {}
        self._by_producer: dict[int, set[TopicPartition]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_partition)

    def __contains__(self, partition: object) -> bool:
        return partition in self._by_partition

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._by_partition)

    def add(self, producer_id: ProducerId, partition: TopicPartition, value: OffsetValue) -> None:
        self._drop(producer_id, partition)
        self._by_partition.setdefault(partition, {})[producer_id] = value
        self.size += _offset_bytes(partition, value.metadata)
        self._by_producer.setdefault(producer_id, set()).add(partition)

    def drop_partition(self, partition: TopicPartition) -> None:
        """Drop all pending offsets of a partition: a newer record replaces them."""
        for producer_id in tuple(self._by_partition.get(partition, ())):
            self._drop(ProducerId(producer_id), partition)

    def commit(self, producer_id: ProducerId) -> dict[TopicPartition, OffsetValue]:
        """Return the producer's offsets, now committed. They and all older pending offsets are dropped."""
        committed: dict[TopicPartition, OffsetValue] = {}
        for partition in sorted(self._by_producer.get(producer_id, ())):
            for older_producer_id, value in tuple(self._by_partition[partition].items()):
                self._drop(ProducerId(older_producer_id), partition)
                if older_producer_id == producer_id:
                    committed[partition] = value
                    break
        return committed

    def abort(self, producer_id: ProducerId) -> None:
        for partition in tuple(self._by_producer.get(producer_id, ())):
            self._drop(producer_id, partition)

    def validate(self) -> None:
        """Assert the invariants that hold between any two calls."""
        pairs = {(producer, partition) for partition, producers in self._by_partition.items() for producer in producers}
        assert pairs == {
            (producer, partition) for producer, partitions in self._by_producer.items() for partition in partitions
        }
        assert all(self._by_partition.values())
        assert all(self._by_producer.values())
        assert self.size == sum(
            _offset_bytes(partition, value.metadata)
            for partition, producers in self._by_partition.items()
            for value in producers.values()
        )

    def _drop(self, producer_id: ProducerId, partition: TopicPartition) -> None:
        producers = self._by_partition.get(partition, {})
        value = producers.pop(producer_id, None)
        if value is None:
            return
        self.size -= _offset_bytes(partition, value.metadata)
        if not producers:
            del self._by_partition[partition]
        partitions = self._by_producer[producer_id]
        partitions.remove(partition)
        if not partitions:
            del self._by_producer[producer_id]


def _offset_bytes(partition: TopicPartition, metadata: str) -> int:
    return _OFFSET_BYTES + len(partition.topic) + len(metadata)
