"""Division of offset ranges among tasks."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from logbrook.model import TopicPartition
from logbrook.spark.offset_ranges import OffsetRange, RangePartition, split_ranges


def ranges_of(*sizes: int, start: int = 100) -> list[OffsetRange]:
    return [OffsetRange(TopicPartition("t", number), start, start + size) for number, size in enumerate(sizes)]


def sizes_of(splits: Sequence[RangePartition]) -> list[list[int]]:
    """Return the sizes of the splits of each partition."""
    sizes: dict[TopicPartition, list[int]] = {}
    for split in splits:
        sizes.setdefault(split.range.partition, []).append(split.range.size)
    return list(sizes.values())


def test_a_range_is_one_split() -> None:
    splits = split_ranges(ranges_of(10, 20), None, None)
    assert [split.range for split in splits] == ranges_of(10, 20)
    assert [split.value for split in splits] == ranges_of(10, 20)


def test_empty_and_inverted_ranges_have_no_split() -> None:
    assert split_ranges(ranges_of(0, -5), 4, 1) == []
    assert sizes_of(split_ranges(ranges_of(0, 3), None, None)) == [[3]]


def test_a_range_that_is_too_large_is_divided_evenly() -> None:
    assert sizes_of(split_ranges(ranges_of(10, 3), None, 4)) == [[3, 3, 4], [3]]


def test_equal_ranges_make_no_fewer_splits_than_asked_for() -> None:
    assert len(split_ranges(ranges_of(100, 100, 100), 4, None)) == 4


def test_large_ranges_get_more_of_the_splits() -> None:
    assert sizes_of(split_ranges(ranges_of(600, 300, 1), 4, None)) == [[300, 300], [300], [1]]
    assert sizes_of(split_ranges(ranges_of(10), 3, None)) == [[3, 3, 4]]


@given(
    sizes=st.lists(st.integers(-3, 500), max_size=8),
    start=st.integers(0, 2**60),
    splits_min=st.none() | st.integers(1, 60),
    records_max=st.none() | st.integers(1, 200),
)
def test_splits_cover_the_ranges_exactly_within_their_limits(
    sizes: list[int], start: int, splits_min: int | None, records_max: int | None
) -> None:
    ranges = ranges_of(*sizes, start=start)
    splits = [split.range for split in split_ranges(ranges, splits_min, records_max)]
    covered = [(split.partition, offset) for split in splits for offset in range(split.start, split.end)]
    assert covered == [(whole.partition, offset) for whole in ranges for offset in range(whole.start, whole.end)]
    assert all(split.size > 0 for split in splits)
    assert records_max is None or all(split.size <= records_max for split in splits)
    if splits_min is not None:
        assert len(splits) >= min(splits_min, len(covered))
    if records_max is None:
        # At most one more per range than requested.
        assert len(splits) <= max(splits_min or 0, sum(size > 0 for size in sizes))
