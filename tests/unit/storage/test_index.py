"""The sparse index: searching it, damaging it, cutting it."""

import pytest

from logbrook.storage.index import ENTRY_BYTES, BadIndexError, Column, Index, IndexEntry

BASE = 1000
START = IndexEntry(BASE, 0, -1)
ENTRIES = [IndexEntry(BASE + 10 * n, 100 * n, 50 * n) for n in range(1, 9)]


def index_of(entries: list[IndexEntry], base_offset: int = BASE) -> Index:
    index = Index(base_offset, bytearray())
    for entry in entries:
        index.add(*entry)
    return index


def damaged(index: Index, number: int, byte: int = 0) -> Index:
    """One byte of an entry changed, in an index that is mapped from the disk."""
    data = bytearray(index.entries)
    data[number * ENTRY_BYTES + byte] ^= 0xFF
    return Index(index.base_offset, memoryview(data))


def value_of(entry: IndexEntry, column: Column) -> int:
    return {
        Column.OFFSET: entry.offset,
        Column.POSITION: entry.position,
        Column.MAX_TIMESTAMP_BEFORE: entry.max_timestamp_before,
    }[column]


def test_an_empty_index_points_at_the_segments_start() -> None:
    index = index_of([])
    assert len(index) == 0
    assert index.last() == START
    for column in Column:
        assert index.floor(column, 10**9) == START


@pytest.mark.parametrize("column", Column)
def test_floor_is_the_last_entry_at_or_below_the_limit(column: Column) -> None:
    index = index_of(ENTRIES)
    values = [value_of(entry, column) for entry in ENTRIES]
    for entry, value in zip(ENTRIES, values, strict=True):
        assert index.floor(column, value) == entry
        assert index.floor(column, value + 1) == entry
    assert [index.floor(column, value - 1) for value in values] == [START, *ENTRIES[:-1]]
    assert index.floor(column, values[-1] + 10**6) == ENTRIES[-1]


def test_of_entries_with_equal_times_the_last_is_the_floor() -> None:
    entries = [IndexEntry(BASE + n, n * 100, 7) for n in range(1, 5)]
    assert index_of(entries).floor(Column.MAX_TIMESTAMP_BEFORE, 7) == entries[-1]


def test_entries_reach_to_the_ends_of_their_fields() -> None:
    entry = IndexEntry(BASE + 2**32 - 1, 2**32 - 1, 2**63 - 1)
    assert index_of([entry]).last() == entry


@pytest.mark.parametrize("byte", range(ENTRY_BYTES))
def test_a_damaged_entry_is_noticed_unless_it_says_the_same(byte: int) -> None:
    index = damaged(index_of(ENTRIES), 3, byte)
    try:
        found = index.entry(3)
    except BadIndexError:
        return
    assert found == ENTRIES[3]


def test_a_damaged_floor_is_noticed() -> None:
    index = damaged(index_of(ENTRIES), 3)
    with pytest.raises(BadIndexError):
        index.floor(Column.OFFSET, ENTRIES[3].offset)


def test_a_damaged_entry_after_the_floor_is_noticed_too() -> None:
    index = damaged(index_of(ENTRIES), 4)
    with pytest.raises(BadIndexError):
        index.floor(Column.OFFSET, ENTRIES[3].offset)


def test_a_damaged_entry_elsewhere_is_in_nobodys_way() -> None:
    index = damaged(index_of(ENTRIES), 0)
    assert index.floor(Column.OFFSET, ENTRIES[-1].offset) == ENTRIES[-1]


def test_entries_of_another_segment_are_not_believed() -> None:
    entries = index_of(ENTRIES).entries
    with pytest.raises(BadIndexError):
        Index(BASE + 1, entries).last()


def test_half_an_entry_at_the_end_does_not_count() -> None:
    data = bytearray(index_of(ENTRIES).entries)
    index = Index(BASE, memoryview(data[:-1]))
    assert len(index) == len(ENTRIES) - 1
    assert index.last() == ENTRIES[-2]
    assert index.floor(Column.OFFSET, 10**9) == ENTRIES[-2]


@pytest.mark.parametrize(
    ("position", "kept"), [(0, 0), (100, 0), (101, 1), (350, 3), (400, 3), (401, 4), (10_000, len(ENTRIES))]
)
def test_a_cut_drops_the_entries_at_or_past_the_position(position: int, kept: int) -> None:
    index = index_of(ENTRIES)
    index.cut(position)
    assert bytes(index.entries) == bytes(index_of(ENTRIES[:kept]).entries)


def test_a_cut_drops_a_torn_last_entry() -> None:
    data = bytearray(index_of(ENTRIES).entries)[:-5]
    index = Index(BASE, data)
    index.cut(10_000)
    assert bytes(index.entries) == bytes(index_of(ENTRIES[:-1]).entries)
