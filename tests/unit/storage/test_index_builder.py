"""Making an index as the log grows."""

import pytest

from logbrook.storage.index import ENTRY_BYTES, BadIndexError, Index, IndexEntry
from logbrook.storage.index_builder import IndexBuilder

BASE = 500


def built(interval_bytes: int, *batches: tuple[int, int, int]) -> IndexBuilder:
    builder = IndexBuilder(Index(BASE, bytearray()), interval_bytes)
    for base_offset, position, max_timestamp in batches:
        builder.add(base_offset, position, max_timestamp)
    return builder


def entries_of(builder: IndexBuilder) -> list[IndexEntry]:
    return [builder.index.entry(number) for number in range(len(builder.index))]


BATCHES = [(BASE + n, 100 * n, timestamp) for n, timestamp in enumerate((40, 90, 10, 60, 95, 5))]


def test_the_first_batch_needs_no_entry() -> None:
    assert entries_of(built(0, (BASE, 0, 40))) == []


def test_an_entry_is_added_once_more_than_the_interval_has_gone_by() -> None:
    assert [entry.position for entry in entries_of(built(199, *BATCHES))] == [200, 400]
    assert [entry.position for entry in entries_of(built(200, *BATCHES))] == [300]
    assert [entry.position for entry in entries_of(built(0, *BATCHES))] == [100, 200, 300, 400, 500]


def test_an_entry_has_the_largest_timestamp_before_it_whatever_their_order() -> None:
    entries = entries_of(built(0, *BATCHES))
    assert [entry.max_timestamp_before for entry in entries] == [40, 90, 90, 90, 95]


def test_the_largest_timestamp_of_all_is_known() -> None:
    assert built(0).max_timestamp == -1
    assert built(10_000, *BATCHES).max_timestamp == 95


def test_resuming_goes_on_as_if_nothing_had_happened() -> None:
    whole = built(150, *BATCHES)
    half = built(150, *BATCHES[:4])
    resumed = IndexBuilder(Index(BASE, bytearray(half.index.entries)), 150)
    position = resumed.resume()
    assert position == entries_of(half)[-1].position
    for one in BATCHES:
        if one[1] >= position:
            resumed.add(*one)
    assert bytes(resumed.index.entries) == bytes(whole.index.entries)
    assert resumed.max_timestamp == whole.max_timestamp


def test_resuming_an_empty_index_starts_from_the_front() -> None:
    assert built(0).resume() == 0


def test_a_damaged_last_entry_cannot_be_resumed_from() -> None:
    builder = built(0, *BATCHES)
    builder.index.entries[-ENTRY_BYTES] ^= 0xFF
    with pytest.raises(BadIndexError):
        builder.resume()
