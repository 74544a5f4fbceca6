"""The size of a micro-batch."""

from hypothesis import given
from hypothesis import strategies as st

from logbrook.model import TopicPartition
from logbrook.spark.offset_ranges import Offsets, count_offsets, limit_bytes, limit_offsets

P = [TopicPartition("t", number) for number in range(8)]
# (start, number of available offsets), which is negative if the log was truncated.
partitions = st.lists(st.tuples(st.integers(0, 2**50), st.integers(-100, 2**40)), min_size=1, max_size=8)


def ends(given: list[tuple[int, int]]) -> tuple[Offsets, Offsets]:
    start = {P[number]: first for number, (first, _) in enumerate(given)}
    latest = {P[number]: first + size for number, (first, size) in enumerate(given)}
    return start, latest


def test_everything_is_taken_that_the_limit_allows() -> None:
    start, latest = {P[0]: 5, P[1]: 0}, {P[0]: 8, P[1]: 7}
    assert limit_offsets(start, latest, 10) == latest
    assert limit_bytes(start, latest, {P[0]: 10.0, P[1]: 10.0}, 100) == latest


def test_a_limit_is_divided_in_proportion_to_the_backlogs() -> None:
    start, latest = {P[0]: 0, P[1]: 50}, {P[0]: 900, P[1]: 150}
    assert limit_offsets(start, latest, 100) == {P[0]: 90, P[1]: 60}


def test_bytes_count_as_offsets_of_their_average_size() -> None:
    start, latest = {P[0]: 0, P[1]: 0}, {P[0]: 100, P[1]: 100}
    assert limit_bytes(start, latest, {P[0]: 10.0, P[1]: 30.0}, 2000) == {P[0]: 50, P[1]: 50}


def test_unknown_sizes_limit_nothing() -> None:
    assert limit_bytes({P[0]: 0}, {P[0]: 100}, {}, 1) == {P[0]: 100}


def test_remaining_offsets_are_counted() -> None:
    assert count_offsets({P[0]: 5, P[1]: 5}, {P[0]: 8, P[1]: 3}) == 3


@given(partitions, st.integers(1, 2**41))
def test_offsets_are_admitted_within_the_limit(sizes: list[tuple[int, int]], most: int) -> None:
    start, latest = ends(sizes)
    end = limit_offsets(start, latest, most)
    check(start, latest, end)
    assert count_offsets(start, end) <= most + len(start)
    # At most one offset of each partition is lost to rounding.
    assert count_offsets(start, end) >= min(most, count_offsets(start, latest)) - len(start)


@given(partitions, st.lists(st.floats(0.1, 1e6), min_size=8, max_size=8), st.integers(1, 2**41))
def test_bytes_are_admitted_within_the_limit(sizes: list[tuple[int, int]], weights: list[float], most: int) -> None:
    start, latest = ends(sizes)
    by_partition = dict(zip(P, weights, strict=True))
    end = limit_bytes(start, latest, by_partition, most)
    check(start, latest, end)
    taken = sum((end[partition] - start[partition]) * by_partition[partition] for partition in start)
    assert taken <= most * 1.001 + sum(by_partition.values())


def check(start: Offsets, latest: Offsets, end: Offsets) -> None:
    assert end.keys() == start.keys()
    for partition, first in start.items():
        assert end[partition] >= first, "it goes back"
        assert end[partition] <= max(first, latest[partition]), "it goes past what there is"
        assert end[partition] > first or latest[partition] <= first, "something is there, and nothing is taken"
