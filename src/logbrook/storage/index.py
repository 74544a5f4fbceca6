"""The sparse index of a segment: finds the batch near an offset, a timestamp or a byte position.

The file begins with a header of 24 bytes:

    0-3     "LBX1"
    4-11    time of the segment's first append in milliseconds, -1 if unknown
    12-15   CRC32C of the above, seeded as below
    16-23   zero

An entry stands for one batch, about every `index_interval_bytes` of log:

    bytes   field, little-endian
    0-7     largest timestamp of all records before the batch, -1 if there is none
    8-11    base offset of the batch, relative to the segment's
    12-15   position of the batch in the segment
    16-19   CRC32C of the above, seeded with the segment's base offset
    20-23   zero

Each column ascends, so each can be searched by bisection. The first record at or after a timestamp is never before the
last entry whose timestamp column is smaller, whatever the order of timestamps in the log, so a time lookup is exact.
The field widths make each column a strided array, which `bisect` searches in place.

An index is a cache and is validated per entry: a search verifies the checksum of the entry it returns and of the next
one (a damaged entry that misled the bisection must be one of the two), and the segment then checks that the batch at
that position has the entry's offset. On any mismatch the index is rebuilt from the log.
"""

import sys
from bisect import bisect_right
from enum import Enum
from struct import Struct
from typing import Literal, NamedTuple

from crc32c import crc32c
from typing_extensions import Buffer

from logbrook.model.identifiers import Offset
from logbrook.records.batch import NO_TIMESTAMP

if sys.byteorder != "little":
    raise ImportError("Logbrook's indexes are read in place, which requires a little-endian machine")

_ENTRY = Struct("<qIII4x")
_CHECKED = Struct("<qII")
_CRC = Struct("<I4x")
ENTRY_BYTES = _ENTRY.size
_HEADER = Struct("<4sqI8x")
_HEADER_CHECKED = Struct("<4sq")
HEADER_BYTES = _HEADER.size
_MAGIC = b"LBX1"


class IndexColumn(Enum):
    """A searchable column: its array type code, and its start and stride in an array of that type."""

    MAX_TIMESTAMP_BEFORE = ("q", 0, 3)
    OFFSET = ("I", 2, 6)
    POSITION = ("I", 3, 6)

    def __init__(self, code: Literal["q", "I"], start: int, stride: int) -> None:
        self.code = code
        self.start = start
        self.stride = stride


class IndexEntry(NamedTuple):
    offset: Offset
    position: int
    max_timestamp_before: int


class BadIndexError(Exception):
    """The index does not match its log and must be rebuilt. Not raised outside the engine."""


class Index:
    """The entries of one segment: a growing bytearray for an active segment, a read-only copy for a closed one."""

    __slots__ = ("_seed", "base_offset", "entries")

    def __init__(self, base_offset: Offset, entries: bytearray | memoryview) -> None:
        self.base_offset = base_offset
        self.entries = entries
        self._seed = base_offset & 0xFFFFFFFF

    def __len__(self) -> int:
        return len(self.entries) // ENTRY_BYTES

    def floor(self, column: IndexColumn, limit: int) -> IndexEntry:
        """Return the last entry whose column is at most `limit`, or the segment's start if there is none.

        Raises BadIndexError if that entry or the next one is damaged.
        """
        if column is IndexColumn.OFFSET:
            limit -= self.base_offset
        count = self._count_up_to(column, limit)
        if (count + 1) * ENTRY_BYTES <= len(self.entries):
            self.entry(count)
        return self.entry(count - 1) if count else IndexEntry(self.base_offset, 0, NO_TIMESTAMP)

    def entry(self, number: int) -> IndexEntry:
        """Return entry `number` after verifying its checksum. Raises BadIndexError."""
        start = number * ENTRY_BYTES
        max_timestamp_before, relative_offset, position, crc = _ENTRY.unpack_from(self.entries, start)
        if crc32c(self.entries[start : start + _CHECKED.size], self._seed) != crc:
            raise BadIndexError(f"entry {number} fails its checksum")
        return IndexEntry(self.base_offset + relative_offset, position, max_timestamp_before)

    def last(self) -> IndexEntry:
        return self.entry(len(self) - 1) if len(self) else IndexEntry(self.base_offset, 0, NO_TIMESTAMP)

    def add(self, offset: Offset, position: int, max_timestamp_before: int) -> None:
        """Append an entry. Only for the index of an active segment."""
        checked = _CHECKED.pack(max_timestamp_before, offset - self.base_offset, position)
        self.entries += checked + _CRC.pack(crc32c(checked, self._seed))  # type: ignore[operator]

    def cut(self, position: int) -> None:
        """Drop entries at or past `position` and a torn last entry. Only for the index of an active segment."""
        assert isinstance(self.entries, bytearray)
        del self.entries[len(self) * ENTRY_BYTES :]
        del self.entries[self._count_up_to(IndexColumn.POSITION, position - 1) * ENTRY_BYTES :]

    def _count_up_to(self, column: IndexColumn, limit: int) -> int:
        """Count the entries with at most `limit` in this column, which is assumed to be sorted."""
        whole = len(self.entries) // ENTRY_BYTES * ENTRY_BYTES
        with memoryview(self.entries)[:whole] as entries:
            return bisect_right(entries.cast(column.code)[column.start :: column.stride], limit)


def encode_index_header(base_offset: Offset, first_append_ms: int | None) -> bytes:
    checked = _HEADER_CHECKED.pack(_MAGIC, -1 if first_append_ms is None else first_append_ms)
    return checked + crc32c(checked, base_offset & 0xFFFFFFFF).to_bytes(4, "little") + bytes(8)


def decode_index_header(base_offset: Offset, data: Buffer) -> int | None:
    """Return the time of the segment's first append in milliseconds, None if unknown. Raises BadIndexError."""
    view = memoryview(data)
    if len(view) < HEADER_BYTES:
        raise BadIndexError("the index has no header")
    magic, first_append_ms, crc = _HEADER.unpack_from(view)
    if magic != _MAGIC or crc32c(view[: _HEADER_CHECKED.size], base_offset & 0xFFFFFFFF) != crc:
        raise BadIndexError("the header of the index fails its checksum")
    return None if first_append_ms < 0 else int(first_append_ms)


class IndexBuilder:
    """Adds an entry every `interval_bytes` of log and tracks the largest timestamp. Used for appends and rebuilds."""

    __slots__ = ("_interval_bytes", "index", "last_entry_position", "max_timestamp")

    def __init__(self, index: Index, interval_bytes: int) -> None:
        self.index = index
        self._interval_bytes = interval_bytes
        self.last_entry_position = 0
        self.max_timestamp = NO_TIMESTAMP

    def add(self, base_offset: Offset, position: int, max_timestamp: int) -> None:
        """Account for the batch at `position`. Batches must be added in log order."""
        if position - self.last_entry_position > self._interval_bytes:
            self.index.add(base_offset, position, self.max_timestamp)
            self.last_entry_position = position
        self.max_timestamp = max(self.max_timestamp, max_timestamp)

    def resume(self) -> int:
        """Continue after the index's last entry. Returns the position to add batches from. Raises BadIndexError."""
        last = self.index.last()
        self.last_entry_position = last.position
        self.max_timestamp = last.max_timestamp_before
        return last.position
