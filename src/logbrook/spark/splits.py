"""Ranges of offsets, and how they are divided among tasks."""

from collections.abc import Iterable
from heapq import heapify, heapreplace
from itertools import pairwise
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition

from logbrook.model import TopicPartition


class OffsetRange(NamedTuple):
    """The records of one partition from `start` to before `end`; of the topic with that id, where it is known."""

    partition: TopicPartition
    start: int
    end: int
    topic_id: bytes | None = None

    @property
    def size(self) -> int:
        return self.end - self.start


class Split(InputPartition):
    """What one task reads."""

    def __init__(self, value: OffsetRange) -> None:
        super().__init__(value)
        self.range = value


def split_ranges(ranges: Iterable[OffsetRange], splits_min: int | None, records_max: int | None) -> list[Split]:
    """One split per range; more where a range is larger than `records_max`, or to have `splits_min` of them.

    Those that are added for `splits_min` go one by one to the range whose parts are the largest.
    """
    ranges = [one for one in ranges if one.size > 0]
    if records_max is not None:
        ranges = [part for one in ranges for part in _divide(one, -(-one.size // records_max))]
    if splits_min is not None and len(ranges) < splits_min:
        counts = _share_out([one.size for one in ranges], splits_min)
        ranges = [part for one, parts in zip(ranges, counts, strict=True) for part in _divide(one, parts)]
    return [Split(one) for one in ranges]


def _share_out(sizes: list[int], splits: int) -> list[int]:
    """How many parts each gets, so that there are `splits` of them, or as many as there are offsets."""
    counts = [1] * len(sizes)
    largest = [(-float(size), number) for number, size in enumerate(sizes)]
    heapify(largest)
    for _ in range(min(splits, sum(sizes)) - len(sizes)):
        _, number = largest[0]
        counts[number] += 1
        heapreplace(largest, (-sizes[number] / counts[number], number))
    return counts


def _divide(one: OffsetRange, parts: int) -> list[OffsetRange]:
    edges = [one.start + one.size * number // parts for number in range(parts + 1)]
    return [one._replace(start=start, end=end) for start, end in pairwise(edges)]
