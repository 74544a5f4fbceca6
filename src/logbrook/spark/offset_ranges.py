"""Offset ranges: filter pushdown, division into input partitions, admission control, read options for exact ranges.

All functions are pure arithmetic on offsets. Of the filters of a batch read, those on topic, partition and offset are
applied exactly. A lower bound on the timestamp only moves the start of a range: no earlier record can match. An upper
bound is left to Spark, because timestamps within a partition need not be in order; for the same reason Spark evaluates
every timestamp filter again.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from heapq import heapify, heapreplace
from itertools import pairwise
from typing import Any, NamedTuple

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from logbrook.model import TopicPartition

Offsets = dict[TopicPartition, int]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NON_NULL_COLUMNS = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})
_SUBSCRIPTIONS = frozenset({"assign", "subscribe", "subscribepattern"})


class OffsetRange(NamedTuple):
    """Offsets `start` (inclusive) to `end` (exclusive) of one partition. `topic_id` is None if it was not looked up."""

    partition: TopicPartition
    start: int
    end: int
    topic_id: bytes | None = None

    @property
    def size(self) -> int:
        return self.end - self.start


class RangePartition(InputPartition):
    """Spark input partition: the offset range that one task reads."""

    def __init__(self, value: OffsetRange) -> None:
        super().__init__(value)
        self.range = value


def input_partitions(
    ranges: Iterable[OffsetRange], splits_min: int | None, records_max: int | None
) -> list[InputPartition]:
    """Return the input partitions of `split_ranges`, or one empty partition: for an empty list Spark adds its own."""
    partitions: list[InputPartition] = [*split_ranges(ranges, splits_min, records_max)]
    return partitions or [RangePartition(OffsetRange(TopicPartition("", 0), 0, 0))]


def split_ranges(
    ranges: Iterable[OffsetRange], splits_min: int | None, records_max: int | None
) -> list[RangePartition]:
    """Make one split per non-empty range, more for ranges above `records_max`, and at least `splits_min` in all.

    Additional splits for `splits_min` go one by one to the range whose parts are largest.
    """
    ranges = [range_ for range_ in ranges if range_.size > 0]
    if records_max is not None:
        ranges = [part for range_ in ranges for part in _divide(range_, -(-range_.size // records_max))]
    if splits_min is not None and len(ranges) < splits_min:
        counts = _split_counts([range_.size for range_ in ranges], splits_min)
        ranges = [part for range_, count in zip(ranges, counts, strict=True) for part in _divide(range_, count)]
    return [RangePartition(range_) for range_ in ranges]


def limit_offsets(
    start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], offsets_max: int
) -> Offsets:
    """Return end offsets so that about `offsets_max` offsets are read, in proportion to each partition's backlog.

    Every partition with a backlog advances by at least one offset, so none starves. No partition moves backwards.
    """
    return limit_bytes(start, latest, dict.fromkeys(latest, 1), offsets_max)


def limit_bytes(
    start: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    bytes_per_offset: Mapping[TopicPartition, float],
    bytes_max: int,
) -> Offsets:
    """Return end offsets so that about `bytes_max` bytes are read, estimated from each partition's average size."""
    backlogs = {partition: max(0, end - start[partition]) for partition, end in latest.items()}
    total = sum(backlog * bytes_per_offset.get(partition, 0) for partition, backlog in backlogs.items())
    if total <= bytes_max:
        return {partition: start[partition] + backlog for partition, backlog in backlogs.items()}
    return {
        partition: start[partition] + (max(1, int(backlog * bytes_max // total)) if backlog else 0)
        for partition, backlog in backlogs.items()
    }


def count_offsets(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    return sum(max(0, offset - start[partition]) for partition, offset in end.items())


def options_for_ranges(options: Mapping[str, str], ranges: Iterable[OffsetRange]) -> dict[str, str]:
    """Return batch read `options` whose subscription and offsets are replaced by exactly `ranges`."""
    kept = {
        name: text
        for name, text in options.items()
        if name.lower() not in _SUBSCRIPTIONS and not name.lower().startswith(("starting", "ending"))
    }
    assigned: dict[str, list[int]] = {}
    starting: dict[str, dict[str, int]] = {}
    ending: dict[str, dict[str, int]] = {}
    for (topic, partition), start, end, _ in ranges:
        assigned.setdefault(topic, []).append(partition)
        starting.setdefault(topic, {})[str(partition)] = start
        ending.setdefault(topic, {})[str(partition)] = end
    return {
        **kept,
        "assign": json.dumps(assigned),
        "startingOffsets": json.dumps(starting),
        "endingOffsets": json.dumps(ending),
    }


def _split_counts(sizes: list[int], splits: int) -> list[int]:
    """Return the number of parts per range: `splits` in total, but never more than there are offsets."""
    counts = [1] * len(sizes)
    largest = [(-float(size), number) for number, size in enumerate(sizes)]
    heapify(largest)
    for _ in range(min(splits, sum(sizes)) - len(sizes)):
        _, number = largest[0]
        counts[number] += 1
        heapreplace(largest, (-sizes[number] / counts[number], number))
    return counts


def _divide(range_: OffsetRange, parts: int) -> list[OffsetRange]:
    edges = [range_.start + range_.size * number // parts for number in range(parts + 1)]
    return [range_._replace(start=start, end=end) for start, end in pairwise(edges)]


class PushedFilters(NamedTuple):
    """The conjunction of the accepted filters. None means unbounded; minima and maxima are inclusive."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    partition_min: int | None = None
    partition_max: int | None = None
    offset_min: int | None = None
    offset_max: int | None = None
    since_ms: int | None = None

    def includes(self, partition: TopicPartition) -> bool:
        """Return True if rows of `partition` can match."""
        number = partition.partition
        return (
            (self.topics is None or partition.topic in self.topics)
            and (self.partitions is None or number in self.partitions)
            and (self.partition_min is None or number >= self.partition_min)
            and (self.partition_max is None or number <= self.partition_max)
        )


def accept_filters(filters: Iterable[Filter]) -> tuple[PushedFilters, list[Filter]]:
    """Return the accepted filters, and those that Spark has to evaluate."""
    pushed, remaining = PushedFilters(), []
    for filter_ in filters:
        narrowed = _accept(pushed, filter_)
        if narrowed is None or getattr(filter_, "attribute", None) == ("timestamp",):
            remaining.append(filter_)
        pushed = narrowed or pushed
    return pushed, remaining


def narrow_ranges(
    ranges: Iterable[OffsetRange],
    pushed: PushedFilters,
    offsets_at: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int]],
) -> list[OffsetRange]:
    """Return the non-empty remainders of `ranges`.

    `offsets_at` returns the first offset at or after a timestamp in ms for each partition, -1 for none.
    """
    narrowed = []
    for range_ in ranges:
        if not pushed.includes(range_.partition):
            continue
        start = range_.start if pushed.offset_min is None else max(range_.start, pushed.offset_min)
        end = range_.end if pushed.offset_max is None else min(range_.end, pushed.offset_max + 1)
        if start < end:
            narrowed.append(range_._replace(start=start, end=end))
    if pushed.since_ms is None or not narrowed:
        return narrowed
    firsts = offsets_at({range_.partition: pushed.since_ms for range_ in narrowed})
    return [
        range_._replace(start=max(range_.start, firsts[range_.partition]))
        for range_ in narrowed
        if 0 <= firsts[range_.partition] < range_.end
    ]


def _accept(pushed: PushedFilters, filter_: Filter) -> PushedFilters | None:
    """Return `pushed` narrowed by `filter_`, or None if only Spark can evaluate it."""
    attribute: tuple[str, ...] = getattr(filter_, "attribute", ())
    if len(attribute) != 1:
        return None
    column = attribute[0]
    if isinstance(filter_, IsNotNull):
        return pushed if column in _NON_NULL_COLUMNS else None
    values = _equal_values(filter_)
    if column == "topic":
        return None if values is None else pushed._replace(topics=_intersect(pushed.topics, values))
    if column == "partition" and values is not None:
        return pushed._replace(partitions=_intersect(pushed.partitions, values))
    if column in ("partition", "offset"):
        return _accept_bound(pushed, column, filter_, values)
    return _accept_timestamp(pushed, filter_, values) if column == "timestamp" else None


def _equal_values(filter_: Filter) -> tuple[Any, ...] | None:
    """Return the values that `filter_` allows, or None if it is not an equality or IN."""
    if isinstance(filter_, In):
        return filter_.value
    return (filter_.value,) if isinstance(filter_, EqualTo | EqualNullSafe) else None


def _accept_bound(
    pushed: PushedFilters, column: str, filter_: Filter, values: tuple[Any, ...] | None
) -> PushedFilters | None:
    bounds = _integer_bounds(filter_, values)
    if bounds is None:
        return None
    low, high = bounds
    if column == "partition":
        return pushed._replace(
            partition_min=_highest(low, pushed.partition_min), partition_max=_lowest(high, pushed.partition_max)
        )
    return pushed._replace(offset_min=_highest(low, pushed.offset_min), offset_max=_lowest(high, pushed.offset_max))


def _integer_bounds(filter_: Filter, values: tuple[Any, ...] | None) -> tuple[int | None, int | None] | None:
    """Return the inclusive bounds that `filter_` sets, or None if it is not a range of integers."""
    value = values[0] if values is not None and len(values) == 1 else getattr(filter_, "value", None)
    if not isinstance(value, int):
        return None
    if values is not None:
        return value, value
    if isinstance(filter_, GreaterThan | GreaterThanOrEqual):
        return value + isinstance(filter_, GreaterThan), None
    if isinstance(filter_, LessThan | LessThanOrEqual):
        return None, value - isinstance(filter_, LessThan)
    return None


def _highest(*limits: int | None) -> int | None:
    return max((limit for limit in limits if limit is not None), default=None)


def _lowest(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _accept_timestamp(pushed: PushedFilters, filter_: Filter, values: tuple[Any, ...] | None) -> PushedFilters | None:
    value = values[0] if values is not None and len(values) == 1 else getattr(filter_, "value", None)
    is_lower_bound = isinstance(filter_, GreaterThan | GreaterThanOrEqual) or (values is not None and len(values) == 1)
    if not is_lower_bound or not isinstance(value, datetime):
        return None
    if value.tzinfo is None:
        value = value.astimezone(UTC)
    since_ms = (value - _EPOCH) // timedelta(milliseconds=1)
    if since_ms < 0:
        # In ListOffsets negative timestamps are special values such as EARLIEST.
        return pushed
    return pushed._replace(since_ms=since_ms if pushed.since_ms is None else max(since_ms, pushed.since_ms))


def _intersect(allowed: frozenset[Any] | None, values: Iterable[Any]) -> frozenset[Any]:
    return frozenset(values) if allowed is None else allowed & frozenset(values)
