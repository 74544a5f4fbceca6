"""Filters that spare reading: on topic, partition and offset, which are met exactly, and on the timestamp.

A time says where to begin: nothing before the first record that is as late can be meant. It does not say where to end,
because records need not be in the order of their times, and Spark looks at the timestamps itself.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from logbrook.model import TopicPartition
from logbrook.spark.splits import OffsetRange

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Columns that are never null.
_NEVER_NULL = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})


class Pushed(NamedTuple):
    """What rows are wanted, as far as filters say. None stands for no limit."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    partition_min: int | None = None
    partition_max: int | None = None
    offset_min: int | None = None
    offset_max: int | None = None
    since_ms: int | None = None


def push(filters: Iterable[Filter]) -> tuple[Pushed, list[Filter]]:
    """What the filters ask for, and those that Spark has to apply as well."""
    pushed, left = Pushed(), []
    for one in filters:
        taken = _take(pushed, one)
        if taken is None or getattr(one, "attribute", None) == ("timestamp",):
            left.append(one)
        pushed = taken or pushed
    return pushed, left


def narrow(
    ranges: Iterable[OffsetRange],
    pushed: Pushed,
    offsets_at: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int]],
) -> list[OffsetRange]:
    """What is left of the ranges. `offsets_at` finds the first offset at a time, -1 for none."""
    narrowed = []
    for one in ranges:
        partition = one.partition
        if pushed.topics is not None and partition.topic not in pushed.topics:
            continue
        if pushed.partitions is not None and partition.partition not in pushed.partitions:
            continue
        if not _above(pushed.partition_min, partition.partition) or not _below(pushed.partition_max, partition):
            continue
        start = one.start if pushed.offset_min is None else max(one.start, pushed.offset_min)
        end = one.end if pushed.offset_max is None else min(one.end, pushed.offset_max + 1)
        if start < end:
            narrowed.append(one._replace(start=start, end=end))
    if pushed.since_ms is None or not narrowed:
        return narrowed
    firsts = offsets_at({one.partition: pushed.since_ms for one in narrowed})
    return [
        one._replace(start=max(one.start, firsts[one.partition]))
        for one in narrowed
        if 0 <= firsts[one.partition] < one.end
    ]


def _above(least: int | None, value: int) -> bool:
    return least is None or value >= least


def _below(most: int | None, partition: TopicPartition) -> bool:
    return most is None or partition.partition <= most


def _take(pushed: Pushed, one: Filter) -> Pushed | None:
    """None for a filter that has to be left to Spark alone."""
    attribute: tuple[str, ...] = getattr(one, "attribute", ())
    if len(attribute) != 1:
        return None
    column = attribute[0]
    if isinstance(one, IsNotNull):
        return pushed if column in _NEVER_NULL else None
    value = getattr(one, "value", None)
    if isinstance(one, In):
        values = one.value
    elif isinstance(one, EqualTo | EqualNullSafe):
        values = (value,)
    else:
        values = None
    if column == "topic":
        return None if values is None else pushed._replace(topics=_both(pushed.topics, values))
    if column == "partition" and values is not None:
        return pushed._replace(partitions=_both(pushed.partitions, values))
    if column in ("partition", "offset"):
        return _take_number(pushed, column, one, values)
    return _take_time(pushed, one, values) if column == "timestamp" else None


def _take_number(pushed: Pushed, column: str, one: Filter, values: tuple[Any, ...] | None) -> Pushed | None:
    least = most = None
    if values is not None:
        if len(values) != 1 or not isinstance(values[0], int):
            return None
        least = most = values[0]
    elif not isinstance(getattr(one, "value", None), int):
        return None
    elif isinstance(one, GreaterThan):
        least = one.value + 1
    elif isinstance(one, GreaterThanOrEqual):
        least = one.value
    elif isinstance(one, LessThan):
        most = one.value - 1
    elif isinstance(one, LessThanOrEqual):
        most = one.value
    else:
        return None
    if column == "partition":
        return pushed._replace(
            partition_min=_highest(least, pushed.partition_min), partition_max=_lowest(most, pushed.partition_max)
        )
    return pushed._replace(offset_min=_highest(least, pushed.offset_min), offset_max=_lowest(most, pushed.offset_max))


def _highest(*limits: int | None) -> int | None:
    return max((limit for limit in limits if limit is not None), default=None)


def _lowest(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _take_time(pushed: Pushed, one: Filter, values: tuple[Any, ...] | None) -> Pushed | None:
    value = values[0] if values is not None and len(values) == 1 else getattr(one, "value", None)
    is_lower_bound = isinstance(one, GreaterThan | GreaterThanOrEqual) or (values is not None and len(values) == 1)
    if not is_lower_bound or not isinstance(value, datetime):
        return None
    if value.tzinfo is None:
        value = value.astimezone(UTC)
    since_ms = (value - _EPOCH) // timedelta(milliseconds=1)
    if since_ms < 0:
        # Below zero are not times for a broker, but questions of other kinds.
        return pushed
    return pushed._replace(since_ms=since_ms if pushed.since_ms is None else max(since_ms, pushed.since_ms))


def _both(known: frozenset[Any] | None, values: Iterable[Any]) -> frozenset[Any]:
    found = frozenset(values)
    return found if known is None else known & found
