"""An index lookup equals a linear search, and a damaged index is detected or has no effect."""

from hypothesis import given, settings
from hypothesis import strategies as st

from logbrook.model.identifiers import Offset
from logbrook.storage.index import ENTRY_BYTES, BadIndexError, Index, IndexColumn, IndexEntry

BASE = 2**40


def value_of(entry: IndexEntry, column: IndexColumn) -> int:
    return {
        IndexColumn.OFFSET: entry.offset,
        IndexColumn.POSITION: entry.position,
        IndexColumn.MAX_TIMESTAMP_BEFORE: entry.max_timestamp_before,
    }[column]


@st.composite
def entry_lists(draw: st.DrawFn) -> list[IndexEntry]:
    """Generate ascending offsets and positions, and timestamps that do not decrease."""
    steps = st.tuples(st.integers(1, 2**20), st.integers(61, 2**20), st.sampled_from([0, 0, 1, 7, 2**40]))
    offset, position, time = BASE, 0, draw(st.integers(-1, 5))
    entries: list[IndexEntry] = []
    for offset_step, position_step, time_step in draw(st.lists(steps, max_size=40)):
        offset, position, time = offset + offset_step, position + position_step, time + time_step
        entries.append(IndexEntry(Offset(offset), position, time))
    return entries


def index_of(entries: list[IndexEntry]) -> Index:
    index = Index(Offset(BASE), bytearray())
    for entry in entries:
        index.add(*entry)
    return index


def linear_floor(entries: list[IndexEntry], column: IndexColumn, limit: int) -> IndexEntry:
    floor = IndexEntry(Offset(BASE), 0, -1)
    for entry in entries:
        if value_of(entry, column) <= limit:
            floor = entry
    return floor


def limits_of(entries: list[IndexEntry], column: IndexColumn) -> st.SearchStrategy[int]:
    """Return values at, just before and just after every entry, and far from all."""
    values = [value_of(entry, column) + near for entry in entries for near in (-1, 0, 1)]
    return st.sampled_from([-2, 0, BASE, 2**62, *values])


@settings(max_examples=150)
@given(entry_lists(), st.sampled_from(IndexColumn), st.data())
def test_floor_agrees_with_a_linear_search(entries: list[IndexEntry], column: IndexColumn, data: st.DataObject) -> None:
    limit = data.draw(limits_of(entries, column))
    assert index_of(entries).floor(column, limit) == linear_floor(entries, column, limit)


@settings(max_examples=200)
@given(entry_lists(), st.sampled_from(IndexColumn), st.data())
def test_a_changed_byte_is_detected_or_lookups_stay_correct(
    entries: list[IndexEntry], column: IndexColumn, data: st.DataObject
) -> None:
    limit = data.draw(limits_of(entries, column))
    damaged = bytearray(index_of(entries).entries)
    if damaged:
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        floor = Index(Offset(BASE), memoryview(damaged)).floor(column, limit)
    except BadIndexError:
        return
    assert floor == linear_floor(entries, column, limit)


@settings(max_examples=200)
@given(entry_lists(), st.data())
def test_a_truncated_index_equals_the_index_of_the_shorter_log(entries: list[IndexEntry], data: st.DataObject) -> None:
    position = data.draw(limits_of(entries, IndexColumn.POSITION))
    torn = data.draw(st.integers(0, ENTRY_BYTES - 1))
    index = index_of(entries)
    index.entries += bytes(torn)  # type: ignore[operator]
    index.cut(position)
    assert bytes(index.entries) == bytes(index_of([entry for entry in entries if entry.position < position]).entries)
