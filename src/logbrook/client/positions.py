"""Places in a partition that have a name before they have an offset: its start, its end, a time, the last few records.

An offset outside of the log means the nearest end of it, so that one number serves for partitions of different lengths.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from logbrook.client.client import EARLIEST, LATEST
from logbrook.client.cluster import Cluster
from logbrook.model import TopicPartition


@dataclass(frozen=True, slots=True)
class Start:
    """The first offset that is still there."""


@dataclass(frozen=True, slots=True)
class End:
    """The offset that the next record will get."""


@dataclass(frozen=True, slots=True)
class AtOffset:
    offset: int


@dataclass(frozen=True, slots=True)
class Last:
    """So many offsets before the end."""

    count: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record that is not older; the end, if all are."""

    timestamp_ms: int


Position: TypeAlias = Start | End | AtOffset | Last | AtTime


class Positions:
    """Finds the offsets of positions. Where logs start and end is asked once and then stays what it was."""

    def __init__(self, cluster: Cluster, partitions: Iterable[TopicPartition], *, committed_only: bool = False) -> None:
        """May raise ClientError, as `offsets` may. With `committed_only` a log ends before its first open
        transaction."""
        self._cluster = cluster
        self.partitions = tuple(partitions)
        self.starts = cluster.list_offsets(dict.fromkeys(self.partitions, EARLIEST))
        self.ends = cluster.list_offsets(dict.fromkeys(self.partitions, LATEST), committed_only=committed_only)

    def offsets(self, position: Position) -> dict[TopicPartition, int]:
        """Where `position` is in each partition, never outside of the log."""
        match position:
            case Start():
                wanted = self.starts
            case End():
                wanted = self.ends
            case AtOffset(offset):
                wanted = dict.fromkeys(self.partitions, offset)
            case Last(count):
                wanted = {one: self.ends[one] - count for one in self.partitions}
            case AtTime(timestamp_ms):
                # Negative ones have other meanings, and no record is older than 1970 by more than its clock was wrong.
                found = self._cluster.list_offsets(dict.fromkeys(self.partitions, max(0, timestamp_ms)))
                wanted = {one: self.ends[one] if offset < 0 else offset for one, offset in found.items()}
        return {one: self.within(one, wanted[one]) for one in self.partitions}

    def within(self, partition: TopicPartition, offset: int) -> int:
        """The offset, or the end of the log that is nearer to it."""
        return min(max(offset, self.starts[partition]), max(self.ends[partition], self.starts[partition]))
