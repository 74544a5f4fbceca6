"""Pushed-down filters return exactly the rows that the same filters return without pushdown."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from logbrook.model import TopicPartition
from logbrook.spark.offset_ranges import OffsetRange, PushedFilters, accept_filters, narrow_ranges

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OFFSETS = 6
PARTITIONS = [TopicPartition(topic, number) for topic in ("a", "b") for number in range(3)]
COMPARISONS: dict[Any, Callable[[Any, Any], bool]] = {
    GreaterThan: lambda left, right: left > right,
    GreaterThanOrEqual: lambda left, right: left >= right,
    LessThan: lambda left, right: left < right,
    LessThanOrEqual: lambda left, right: left <= right,
}


class Row(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: datetime
    key: bytes | None = b"k"


def at(time_us: int) -> datetime:
    return EPOCH + timedelta(microseconds=time_us)


def holds(condition: Filter, row: Row) -> bool:
    """Evaluate a filter as Spark does."""
    if isinstance(condition, Not):
        return not holds(condition.child, row)
    value = getattr(row, condition.attribute[0])  # type: ignore[attr-defined]
    if isinstance(condition, IsNull | IsNotNull):
        return (value is None) is isinstance(condition, IsNull)
    wanted = condition.value  # type: ignore[attr-defined]
    if isinstance(condition, In):
        return value in wanted
    if isinstance(condition, EqualTo | EqualNullSafe):
        return bool(value == wanted)
    if isinstance(condition, StringStartsWith):
        return bool(value.startswith(wanted))
    return bool(COMPARISONS[type(condition)](value, wanted))


def filters_on(column: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Filter]:
    path = (column,)
    return st.one_of(
        st.sampled_from(list(COMPARISONS)).flatmap(lambda kind: values.map(lambda value: kind(path, value))),
        values.map(lambda value: EqualTo(path, value)),
        (values | st.none()).map(lambda value: EqualNullSafe(path, value)),
        st.lists(values | st.none(), max_size=3).map(lambda some: In(path, tuple(some))),
        st.sampled_from([IsNotNull(path), IsNull(path), Not(IsNull(path))]),
        values.map(lambda value: Not(EqualTo(path, value))),
    )


# Some before 1970, down to -1 ms, which is a record without a timestamp.
times_us = st.integers(-1200, 4_000) | st.sampled_from([-1000, 0, 1000, 2000])
filters = st.lists(
    st.one_of(
        filters_on("topic", st.sampled_from("abc")),
        st.just(StringStartsWith(("topic",), "a")),
        filters_on("partition", st.integers(-1, 4)),
        filters_on("offset", st.integers(-1, OFFSETS + 1)),
        filters_on("timestamp", times_us.map(at)),
        filters_on("key", st.just(b"k")),
    ),
    max_size=4,
)
logs = st.lists(st.integers(-1, 3), min_size=OFFSETS * len(PARTITIONS), max_size=OFFSETS * len(PARTITIONS))


@given(filters, logs, st.integers(0, 2), st.integers(3, OFFSETS))
def test_pushed_filters_select_the_rows_of_a_full_scan(
    wanted: list[Filter], times_ms: list[int], start: int, end: int
) -> None:
    rows = {
        (partition, offset): Row(*partition, offset, at(1000 * times_ms[number * OFFSETS + offset]))
        for number, partition in enumerate(PARTITIONS)
        for offset in range(OFFSETS)
    }

    def offsets_at(asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        assert all(time_ms >= 0 for time_ms in asked.values()), "that is a code, not a time"
        offsets = {}
        for partition, time_ms in asked.items():
            late = (n for n in range(OFFSETS) if rows[partition, n].timestamp >= at(1000 * time_ms))
            offsets[partition] = next(late, -1)
        return offsets

    pushed, left = accept_filters(wanted)
    assert all(any(unpushed is given for given in wanted) for unpushed in left), "Spark knows a filter by its identity"
    ranges = narrow_ranges([OffsetRange(partition, start, end) for partition in PARTITIONS], pushed, offsets_at)
    read = [rows[narrowed.partition, offset] for narrowed in ranges for offset in range(narrowed.start, narrowed.end)]
    inside = [row for (_, offset), row in rows.items() if start <= offset < end]
    assert [row for row in read if all(holds(condition, row) for condition in left)] == [
        row for row in inside if all(holds(condition, row) for condition in wanted)
    ]


def test_exactly_evaluated_filters_are_not_returned_to_spark() -> None:
    met = [
        IsNotNull(("offset",)),
        EqualTo(("topic",), "a"),
        In(("partition",), (1, 2)),
        GreaterThan(("partition",), 0),
        GreaterThanOrEqual(("offset",), 3),
        LessThan(("offset",), 9),
    ]
    pushed, left = accept_filters(met)
    assert left == []
    assert pushed == PushedFilters(
        topics=frozenset("a"), partitions=frozenset({1, 2}), partition_min=1, offset_min=3, offset_max=8
    )


@pytest.mark.parametrize(
    "condition",
    [
        IsNotNull(("key",)),
        EqualTo(("value",), b"x"),
        EqualTo(("headers", "key"), "x"),
        LessThan(("timestamp",), at(0)),
        Not(EqualTo(("partition",), 1)),
        StringStartsWith(("topic",), "a"),
        In(("offset",), (1, 5)),
        EqualNullSafe(("offset",), None),
    ],
)
def test_filters_that_prune_nothing_are_left_to_spark(condition: Filter) -> None:
    assert accept_filters([condition]) == (PushedFilters(), [condition])


def test_a_time_is_where_to_begin_and_spark_looks_again() -> None:
    condition = GreaterThan(("timestamp",), at(5_999))
    assert accept_filters([condition]) == (PushedFilters(since_ms=5), [condition])
    eastern = at(7_000).astimezone(timezone(timedelta(hours=9)))
    assert accept_filters([EqualTo(("timestamp",), eastern)])[0] == PushedFilters(since_ms=7)


def test_partitions_without_a_record_so_late_are_not_read() -> None:
    ranges = [OffsetRange(partition, 2, 5) for partition in PARTITIONS[:4]]
    firsts = dict(zip(PARTITIONS, (-1, 0, 4, 5), strict=False))
    assert narrow_ranges(ranges, PushedFilters(since_ms=1), lambda _: firsts) == [
        OffsetRange(PARTITIONS[1], 2, 5),
        OffsetRange(PARTITIONS[2], 4, 5),
    ]


def test_times_are_not_looked_up_for_empty_ranges() -> None:
    def offsets_at(asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        raise AssertionError(f"asked for {asked}")

    assert narrow_ranges([OffsetRange(PARTITIONS[0], 0, 5)], PushedFilters(offset_min=5, since_ms=1), offsets_at) == []
