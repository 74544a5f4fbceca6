"""Filters that spare reading leave exactly the rows that the same filters leave without them."""

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
from logbrook.spark.pushdown import Pushed, narrow, push
from logbrook.spark.splits import OffsetRange

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


def holds(one: Filter, row: Row) -> bool:
    """What Spark makes of a filter."""
    if isinstance(one, Not):
        return not holds(one.child, row)
    value = getattr(row, one.attribute[0])  # type: ignore[attr-defined]
    if isinstance(one, IsNull | IsNotNull):
        return (value is None) is isinstance(one, IsNull)
    wanted = one.value  # type: ignore[attr-defined]
    if isinstance(one, In):
        return value in wanted
    if isinstance(one, EqualTo | EqualNullSafe):
        return bool(value == wanted)
    if isinstance(one, StringStartsWith):
        return bool(value.startswith(wanted))
    return bool(COMPARISONS[type(one)](value, wanted))


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


# Some before 1970, as far as the one millisecond that a record without a time has.
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
def test_rows_are_those_that_brute_force_leaves(
    wanted: list[Filter], times_ms: list[int], start: int, end: int
) -> None:
    rows = {
        (partition, offset): Row(*partition, offset, at(1000 * times_ms[number * OFFSETS + offset]))
        for number, partition in enumerate(PARTITIONS)
        for offset in range(OFFSETS)
    }

    def offsets_at(asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        assert all(time_ms >= 0 for time_ms in asked.values()), "that is a code, not a time"
        found = {}
        for partition, time_ms in asked.items():
            late = (n for n in range(OFFSETS) if rows[partition, n].timestamp >= at(1000 * time_ms))
            found[partition] = next(late, -1)
        return found

    pushed, left = push(wanted)
    assert all(any(one is given for given in wanted) for one in left), "Spark knows a filter by its identity"
    ranges = narrow([OffsetRange(one, start, end) for one in PARTITIONS], pushed, offsets_at)
    read = [rows[one.partition, offset] for one in ranges for offset in range(one.start, one.end)]
    inside = [row for (_, offset), row in rows.items() if start <= offset < end]
    assert [row for row in read if all(holds(one, row) for one in left)] == [
        row for row in inside if all(holds(one, row) for one in wanted)
    ]


def test_what_is_met_exactly_is_not_left_to_spark() -> None:
    met = [
        IsNotNull(("offset",)),
        EqualTo(("topic",), "a"),
        In(("partition",), (1, 2)),
        GreaterThan(("partition",), 0),
        GreaterThanOrEqual(("offset",), 3),
        LessThan(("offset",), 9),
    ]
    pushed, left = push(met)
    assert left == []
    assert pushed == Pushed(
        topics=frozenset("a"), partitions=frozenset({1, 2}), partition_min=1, offset_min=3, offset_max=8
    )


@pytest.mark.parametrize(
    "one",
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
def test_what_spares_nothing_is_left_to_spark_alone(one: Filter) -> None:
    assert push([one]) == (Pushed(), [one])


def test_a_time_is_where_to_begin_and_spark_looks_again() -> None:
    one = GreaterThan(("timestamp",), at(5_999))
    assert push([one]) == (Pushed(since_ms=5), [one])
    eastern = at(7_000).astimezone(timezone(timedelta(hours=9)))
    assert push([EqualTo(("timestamp",), eastern)])[0] == Pushed(since_ms=7)


def test_partitions_without_a_record_so_late_are_not_read() -> None:
    ranges = [OffsetRange(one, 2, 5) for one in PARTITIONS[:4]]
    firsts = dict(zip(PARTITIONS, (-1, 0, 4, 5), strict=False))
    assert narrow(ranges, Pushed(since_ms=1), lambda _: firsts) == [
        OffsetRange(PARTITIONS[1], 2, 5),
        OffsetRange(PARTITIONS[2], 4, 5),
    ]


def test_nobody_is_asked_for_times_when_nothing_is_left() -> None:
    def offsets_at(asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        raise AssertionError(f"asked for {asked}")

    assert narrow([OffsetRange(PARTITIONS[0], 0, 5)], Pushed(offset_min=5, since_ms=1), offsets_at) == []
