"""Offsets specified relative to a log (its start, its end, a time, the last N), and their resolution to offsets.

A resolved offset is clamped to the log, so that one number can be applied to partitions of different lengths.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from logbrook.client.client import EARLIEST, LATEST
from logbrook.client.partition_requests import PartitionRequests
from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset


@dataclass(frozen=True, slots=True)
class Earliest:
    """The log start offset."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The log end offset: the one that the next record will get."""


@dataclass(frozen=True, slots=True)
class AtOffset:
    offset: Offset


@dataclass(frozen=True, slots=True)
class LastRecords:
    """`count` offsets before the log end offset."""

    count: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after `timestamp_ms`; the log end offset if there is none."""

    timestamp_ms: int


OffsetSpec: TypeAlias = Earliest | Latest | AtOffset | LastRecords | AtTime


class LogBounds:
    """Start and end offsets of partitions, read once when it is made, and offset specs resolved within them."""

    def __init__(
        self, cluster: PartitionRequests, partitions: Iterable[TopicPartition], *, committed_only: bool = False
    ) -> None:
        """With `committed_only` a log ends at its last stable offset. Raises ClientError."""
        self._cluster = cluster
        self.partitions = tuple(partitions)
        self.starts = cluster.list_offsets(dict.fromkeys(self.partitions, EARLIEST))
        self.ends = cluster.list_offsets(dict.fromkeys(self.partitions, LATEST), committed_only=committed_only)

    def resolve(self, spec: OffsetSpec) -> dict[TopicPartition, Offset]:
        """Return the offset of `spec` in each partition, clamped to the log. Raises ClientError."""
        match spec:
            case Earliest():
                offsets = self.starts
            case Latest():
                offsets = self.ends
            case AtOffset(offset):
                offsets = dict.fromkeys(self.partitions, offset)
            case LastRecords(count):
                offsets = {partition: Offset(self.ends[partition] - count) for partition in self.partitions}
            case AtTime(timestamp_ms):
                # ListOffsets gives negative timestamps special meanings.
                listed = self._cluster.list_offsets(dict.fromkeys(self.partitions, max(0, timestamp_ms)))
                offsets = {
                    partition: self.ends[partition] if offset < 0 else offset for partition, offset in listed.items()
                }
        return {partition: self.clamp(partition, offsets[partition]) for partition in self.partitions}

    def clamp(self, partition: TopicPartition, offset: Offset) -> Offset:
        """Return `offset`, or the nearest offset within the log."""
        start, end = self.starts[partition], self.ends[partition]
        return min(max(offset, start), max(end, start))
