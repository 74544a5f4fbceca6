"""The sparse index of a segment: from an offset, a time or a byte limit to a place near it in the log.

The file begins with a header of 24 bytes:

    0-3     "LBX1"
    4-11    when the segment's first batch was written, in milliseconds, -1 when that is not known
    12-15   CRC32C of the above, seeded as below
    16-23   zero

An entry stands for one batch, about every `index_interval_bytes` of log:

    bytes   field, little-endian
    0-7     the largest timestamp of all records before the batch, -1 when there is none
    8-11    the batch's base offset, relative to the segment's
    12-15   the batch's position in the segment
    16-19   CRC32C of the above, seeded with the segment's base offset
    20-23   zero

All three columns only grow, so each can be searched by bisection, and the time column makes a time lookup exact: the
first record at or after a time is never before the last entry whose column is below that time, whatever the order of
timestamps in the log. The widths make each column an array in place, which bisection walks at the speed of C.

An index is a cache. It is believed entry by entry, never as a whole: a search checks the entry it found and the next
one, which is enough to prove the search right (a damaged entry that misled the bisection must be one of the two), and
the segment then checks that the batch at that position is the one the entry speaks of. Whatever does not hold, the
index is rebuilt from the log.
"""

import sys
from bisect import bisect_right
from enum import Enum
from struct import Struct
from typing import Literal, NamedTuple

from crc32c import crc32c
from typing_extensions import Buffer

from logbrook.records.batch import NO_TIMESTAMP

if sys.byteorder != "little":
    raise ImportError("Logbrook's indexes are read in place, which needs a little-endian machine")

_ENTRY = Struct("<qIII4x")
_CHECKED = Struct("<qII")
_CRC = Struct("<I4x")
ENTRY_BYTES = _ENTRY.size
_HEADER = Struct("<4sqI8x")
_HEADER_CHECKED = Struct("<4sq")
HEADER_BYTES = _HEADER.size
_MAGIC = b"LBX1"


class Column(Enum):
    """What to search by: the type of a column, and its place and stride in an array of that type."""

    MAX_TIMESTAMP_BEFORE = ("q", 0, 3)
    OFFSET = ("I", 2, 6)
    POSITION = ("I", 3, 6)

    def __init__(self, code: Literal["q", "I"], start: int, stride: int) -> None:
        self.code = code
        self.start = start
        self.stride = stride


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
        if column is Column.OFFSET:
            limit -= self.base_offset
        found = self._count_up_to(column, limit)
        if (found + 1) * ENTRY_BYTES <= len(self.entries):
            self.entry(found)
        return self.entry(found - 1) if found else IndexEntry(self.base_offset, 0, NO_TIMESTAMP)

    def entry(self, number: int) -> IndexEntry:
        """Entry `number`, checked. Raises BadIndexError."""
        start = number * ENTRY_BYTES
        max_timestamp_before, relative_offset, position, crc = _ENTRY.unpack_from(self.entries, start)
        if crc32c(self.entries[start : start + _CHECKED.size], self._seed) != crc:
            raise BadIndexError(f"entry {number} fails its checksum")
        return IndexEntry(self.base_offset + relative_offset, position, max_timestamp_before)

    def last(self) -> IndexEntry:
        return self.entry(len(self) - 1) if len(self) else IndexEntry(self.base_offset, 0, NO_TIMESTAMP)

    def add(self, offset: int, position: int, max_timestamp_before: int) -> None:
        """Append an entry; the active segment's index only."""
        checked = _CHECKED.pack(max_timestamp_before, offset - self.base_offset, position)
        self.entries += checked + _CRC.pack(crc32c(checked, self._seed))  # type: ignore[operator]

    def cut(self, position: int) -> None:
        """Drop every entry at or past `position`, and a torn last one; the active segment's index only."""
        assert isinstance(self.entries, bytearray)
        del self.entries[len(self) * ENTRY_BYTES :]
        del self.entries[self._count_up_to(Column.POSITION, position - 1) * ENTRY_BYTES :]

    def _count_up_to(self, column: Column, limit: int) -> int:
        """How many entries have `limit` or less in this column, if it is sorted as it should be."""
        whole = len(self.entries) // ENTRY_BYTES * ENTRY_BYTES
        with memoryview(self.entries)[:whole] as entries:
            return bisect_right(entries.cast(column.code)[column.start :: column.stride], limit)


def encode_index_header(base_offset: int, first_append_ms: int | None) -> bytes:
    checked = _HEADER_CHECKED.pack(_MAGIC, -1 if first_append_ms is None else first_append_ms)
    return checked + crc32c(checked, base_offset & 0xFFFFFFFF).to_bytes(4, "little") + bytes(8)


def decode_index_header(base_offset: int, data: Buffer) -> int | None:
    """When the segment's first batch was written, if that is known. Raises BadIndexError."""
    view = memoryview(data)
    if len(view) < HEADER_BYTES:
        raise BadIndexError("the index has no header")
    magic, first_append_ms, crc = _HEADER.unpack_from(view)
    if magic != _MAGIC or crc32c(view[: _HEADER_CHECKED.size], base_offset & 0xFFFFFFFF) != crc:
        raise BadIndexError("the header of the index is bad")
    return None if first_append_ms < 0 else int(first_append_ms)
