"""Offsets of one group that were committed in transactions which are still open (KIP-98, KIP-447).

Such an offset is durable, but nobody sees it until its transaction ends: a commit makes it the group's offset, an
abort drops it. Several producers may have one for the same partition, and a plain commit may come in between. Kafka
lets the one win that is last in the log, whatever the order in which the transactions end: compaction keeps that one
and no other, and a restart must not come to another result. Here the same follows from the order in which records are
taken in: whatever becomes the offset of a partition drops what is older than itself, because that can no longer count.
"""

from collections.abc import Iterator

from logbrook.core.groups.records import OffsetValue
from logbrook.model import TopicPartition


class PendingOffsets:
    """Undecided offsets, by partition and by producer."""

    __slots__ = ("_by_partition", "_by_producer")

    def __init__(self) -> None:
        # Of each partition the producers in the order of their newest records in the log.
        self._by_partition: dict[TopicPartition, dict[int, OffsetValue]] = {}
        self._by_producer: dict[int, set[TopicPartition]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_partition)

    def __contains__(self, partition: object) -> bool:
        return partition in self._by_partition

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._by_partition)

    def add(self, producer_id: int, partition: TopicPartition, value: OffsetValue) -> None:
        self._drop(producer_id, partition)
        self._by_partition.setdefault(partition, {})[producer_id] = value
        self._by_producer.setdefault(producer_id, set()).add(partition)

    def drop(self, partition: TopicPartition) -> None:
        """Something newer has become of the partition's offset than all that is pending."""
        for producer_id in tuple(self._by_partition.get(partition, ())):
            self._drop(producer_id, partition)

    def commit(self, producer_id: int) -> dict[TopicPartition, OffsetValue]:
        """The transaction committed: what its producer's offsets are. They, and what is older, are pending no more."""
        committed: dict[TopicPartition, OffsetValue] = {}
        for partition in sorted(self._by_producer.get(producer_id, ())):
            for each_id, value in tuple(self._by_partition[partition].items()):
                self._drop(each_id, partition)
                if each_id == producer_id:
                    committed[partition] = value
                    break
        return committed

    def abort(self, producer_id: int) -> None:
        for partition in tuple(self._by_producer.get(producer_id, ())):
            self._drop(producer_id, partition)

    def validate(self) -> None:
        """The rules that hold between any two calls."""
        pairs = {(producer_id, each) for each, producers in self._by_partition.items() for producer_id in producers}
        assert pairs == {(producer_id, each) for producer_id, some in self._by_producer.items() for each in some}
        assert all(self._by_partition.values())
        assert all(self._by_producer.values())

    def _drop(self, producer_id: int, partition: TopicPartition) -> None:
        producers = self._by_partition.get(partition, {})
        if producers.pop(producer_id, None) is None:
            return
        if not producers:
            del self._by_partition[partition]
        partitions = self._by_producer[producer_id]
        partitions.remove(partition)
        if not partitions:
            del self._by_producer[producer_id]
