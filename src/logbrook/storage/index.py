"""The sparse index of a segment: from an offset, a time or a byte limit to a place near it in the log.

An entry stands for one batch, about every `index_interval_bytes` of log:

    bytes   field
    0-3     the batch's base offset, relative to the segment's
    4-7     the batch's position in the segment
    8-15    the largest timestamp of all records before that position, -1 when there is none
    16-19   CRC32C of the above, seeded with the segment's base offset

All three columns only grow, so each can be searched by bisection, and the time column makes a time lookup exact: the
first record at or after a time is never before the last entry whose column is below that time, whatever the order of
timestamps in the log.

An index is a cache. It is believed entry by entry, never as a whole: a search checks the entry it found and the next
one, which is enough to prove the search right (a damaged entry that misled the bisection must be one of the two), and
the segment then checks that the batch at that position is the one the entry speaks of. Whatever does not hold, the
index is rebuilt from the log.
"""

from bisect import bisect_right
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from logbrook.records.batch import NO_TIMESTAMP

_ENTRY = Struct(">IIqI")
_CHECKED = Struct(">IIq")
ENTRY_BYTES = _ENTRY.size


class Column(IntEnum):
    """What to search by."""

    OFFSET = 0
    POSITION = 1
    MAX_TIMESTAMP_BEFORE = 2


class IndexEntry(NamedTuple):
    offset: int
    position: int
    max_timestamp_before: int


class BadIndexError(Exception):
    """The index does not fit its log. Never seen outside the engine: it is the signal to rebuild."""


class Index:
    """The entries of one segment: a growing bytearray for the active one, a read-only mapping for a closed one."""

    __slots__ = ("_seed", "base_offset", "entries")

    def __init__(self, base_offset: int, entries: bytearray | memoryview) -> None:
        self.base_offset = base_offset
        self.entries = entries
        self._seed = base_offset & 0xFFFFFFFF

    def __len__(self) -> int:
        return len(self.entries) // ENTRY_BYTES

    def floor(self, column: Column, limit: int) -> IndexEntry:
        """The last entry whose column is at most `limit`; the segment's start when there is none.

        Raises BadIndexError where the entries that decide it are damaged.
        """
        entries = self.entries
        if column is Column.OFFSET:
            limit -= self.base_offset
        found = bisect_right(
            range(len(entries) // ENTRY_BYTES),
            limit,
            key=lambda number: _ENTRY.unpack_from(entries, number * ENTRY_BYTES)[column],
        )
        if found * ENTRY_BYTES + ENTRY_BYTES <= len(entries):
            self.entry(found)
        return self.entry(found - 1) if found else IndexEntry(self.base_offset, 0, NO_TIMESTAMP)

    def entry(self, number: int) -> IndexEntry:
        """Entry `number`, checked. Raises BadIndexError."""
        relative_offset, position, max_timestamp_before, crc = _ENTRY.unpack_from(self.entries, number * ENTRY_BYTES)
        start = number * ENTRY_BYTES
        if crc32c(self.entries[start : start + _CHECKED.size], self._seed) != crc:
            raise BadIndexError(f"entry {number} fails its checksum")
        return IndexEntry(self.base_offset + relative_offset, position, max_timestamp_before)

    def last(self) -> IndexEntry:
        return self.entry(len(self) - 1) if len(self) else IndexEntry(self.base_offset, 0, NO_TIMESTAMP)

    def add(self, offset: int, position: int, max_timestamp_before: int) -> None:
        """Append an entry; the active segment's index only."""
        checked = _CHECKED.pack(offset - self.base_offset, position, max_timestamp_before)
        self.entries += checked + crc32c(checked, self._seed).to_bytes(4, "big")  # type: ignore[operator]

    def cut(self, position: int) -> None:
        """Drop every entry at or past `position`, and a torn last one; the active segment's index only."""
        assert isinstance(self.entries, bytearray)
        del self.entries[len(self) * ENTRY_BYTES :]
        keep = bisect_right(
            range(len(self)),
            position - 1,
            key=lambda number: _ENTRY.unpack_from(self.entries, number * ENTRY_BYTES)[Column.POSITION],
        )
        del self.entries[keep * ENTRY_BYTES :]
