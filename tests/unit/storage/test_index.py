"""The sparse index: construction, lookups, damage and truncation."""

import pytest

from logbrook.model.identifiers import Offset
from logbrook.storage.index import ENTRY_BYTES, BadIndexError, Index, IndexBuilder, IndexColumn, IndexEntry

BASE = Offset(1000)
START = IndexEntry(BASE, 0, -1)
ENTRIES = [IndexEntry(Offset(BASE + 10 * n), 100 * n, 50 * n) for n in range(1, 9)]


def index_of(entries: list[IndexEntry], base_offset: int = BASE) -> Index:
    index = Index(Offset(base_offset), bytearray())
    for entry in entries:
        index.add(*entry)
    return index


def damaged(index: Index, number: int, byte: int = 0) -> Index:
    """Return a memory-mapped index with one changed byte in an entry."""
    data = bytearray(index.entries)
    data[number * ENTRY_BYTES + byte] ^= 0xFF
    return Index(index.base_offset, memoryview(data))


def value_of(entry: IndexEntry, column: IndexColumn) -> int:
    return {
        IndexColumn.OFFSET: entry.offset,
        IndexColumn.POSITION: entry.position,
        IndexColumn.MAX_TIMESTAMP_BEFORE: entry.max_timestamp_before,
    }[column]


def test_an_empty_index_points_at_the_segments_start() -> None:
    index = index_of([])
    assert len(index) == 0
    assert index.last() == START
    for column in IndexColumn:
        assert index.floor(column, 10**9) == START


@pytest.mark.parametrize("column", IndexColumn)
def test_floor_is_the_last_entry_at_or_below_the_limit(column: IndexColumn) -> None:
    index = index_of(ENTRIES)
    values = [value_of(entry, column) for entry in ENTRIES]
    for entry, value in zip(ENTRIES, values, strict=True):
        assert index.floor(column, value) == entry
        assert index.floor(column, value + 1) == entry
    assert [index.floor(column, value - 1) for value in values] == [START, *ENTRIES[:-1]]
    assert index.floor(column, values[-1] + 10**6) == ENTRIES[-1]


def test_of_entries_with_equal_times_the_last_is_the_floor() -> None:
    entries = [IndexEntry(Offset(BASE + n), n * 100, 7) for n in range(1, 5)]
    assert index_of(entries).floor(IndexColumn.MAX_TIMESTAMP_BEFORE, 7) == entries[-1]


def test_entries_reach_to_the_ends_of_their_fields() -> None:
    entry = IndexEntry(Offset(BASE + 2**32 - 1), 2**32 - 1, 2**63 - 1)
    assert index_of([entry]).last() == entry


@pytest.mark.parametrize("byte", range(ENTRY_BYTES))
def test_a_damaged_entry_is_detected_or_has_the_same_meaning(byte: int) -> None:
    index = damaged(index_of(ENTRIES), 3, byte)
    try:
        entry = index.entry(3)
    except BadIndexError:
        return
    assert entry == ENTRIES[3]


def test_a_damaged_floor_is_detected() -> None:
    index = damaged(index_of(ENTRIES), 3)
    with pytest.raises(BadIndexError):
        index.floor(IndexColumn.OFFSET, ENTRIES[3].offset)


def test_a_damaged_entry_after_the_floor_is_detected_too() -> None:
    index = damaged(index_of(ENTRIES), 4)
    with pytest.raises(BadIndexError):
        index.floor(IndexColumn.OFFSET, ENTRIES[3].offset)


def test_a_damaged_entry_elsewhere_does_not_fail_the_search() -> None:
    index = damaged(index_of(ENTRIES), 0)
    assert index.floor(IndexColumn.OFFSET, ENTRIES[-1].offset) == ENTRIES[-1]


def test_entries_of_another_segment_fail_their_checksum() -> None:
    entries = index_of(ENTRIES).entries
    with pytest.raises(BadIndexError):
        Index(Offset(BASE + 1), entries).last()


def test_a_partial_entry_at_the_end_is_ignored() -> None:
    data = bytearray(index_of(ENTRIES).entries)
    index = Index(BASE, memoryview(data[:-1]))
    assert len(index) == len(ENTRIES) - 1
    assert index.last() == ENTRIES[-2]
    assert index.floor(IndexColumn.OFFSET, 10**9) == ENTRIES[-2]


@pytest.mark.parametrize(
    ("position", "kept"), [(0, 0), (100, 0), (101, 1), (350, 3), (400, 3), (401, 4), (10_000, len(ENTRIES))]
)
def test_a_truncation_removes_entries_at_and_after_the_position(position: int, kept: int) -> None:
    index = index_of(ENTRIES)
    index.cut(position)
    assert bytes(index.entries) == bytes(index_of(ENTRIES[:kept]).entries)


def test_a_cut_drops_a_torn_last_entry() -> None:
    data = bytearray(index_of(ENTRIES).entries)[:-5]
    index = Index(BASE, data)
    index.cut(10_000)
    assert bytes(index.entries) == bytes(index_of(ENTRIES[:-1]).entries)


BUILDER_BASE = Offset(500)


def built(interval_bytes: int, *batches: tuple[int, int, int]) -> IndexBuilder:
    builder = IndexBuilder(Index(BUILDER_BASE, bytearray()), interval_bytes)
    for base_offset, position, max_timestamp in batches:
        builder.add(Offset(base_offset), position, max_timestamp)
    return builder


def entries_of(builder: IndexBuilder) -> list[IndexEntry]:
    return [builder.index.entry(number) for number in range(len(builder.index))]


BATCHES = [(BUILDER_BASE + n, 100 * n, timestamp) for n, timestamp in enumerate((40, 90, 10, 60, 95, 5))]


def test_the_first_batch_needs_no_entry() -> None:
    assert entries_of(built(0, (BUILDER_BASE, 0, 40))) == []


def test_an_entry_is_added_after_more_than_the_interval() -> None:
    assert [entry.position for entry in entries_of(built(199, *BATCHES))] == [200, 400]
    assert [entry.position for entry in entries_of(built(200, *BATCHES))] == [300]
    assert [entry.position for entry in entries_of(built(0, *BATCHES))] == [100, 200, 300, 400, 500]


def test_an_entry_has_the_largest_timestamp_before_it_whatever_their_order() -> None:
    entries = entries_of(built(0, *BATCHES))
    assert [entry.max_timestamp_before for entry in entries] == [40, 90, 90, 90, 95]


def test_the_largest_timestamp_of_all_is_known() -> None:
    assert built(0).max_timestamp == -1
    assert built(10_000, *BATCHES).max_timestamp == 95


def test_resuming_builds_the_same_index_as_without_a_restart() -> None:
    whole = built(150, *BATCHES)
    half = built(150, *BATCHES[:4])
    resumed = IndexBuilder(Index(BUILDER_BASE, bytearray(half.index.entries)), 150)
    position = resumed.resume()
    assert position == entries_of(half)[-1].position
    for offset, batch_position, timestamp in BATCHES:
        if batch_position >= position:
            resumed.add(Offset(offset), batch_position, timestamp)
    assert bytes(resumed.index.entries) == bytes(whole.index.entries)
    assert resumed.max_timestamp == whole.max_timestamp


def test_resuming_an_empty_index_starts_from_the_front() -> None:
    assert built(0).resume() == 0


def test_a_damaged_last_entry_cannot_be_resumed_from() -> None:
    builder = built(0, *BATCHES)
    builder.index.entries[-ENTRY_BYTES] ^= 0xFF
    with pytest.raises(BadIndexError):
        builder.resume()
