"""A segment: one file of batches with rising offsets, and how places in it are found.

Finding anything takes an index lookup and then a short hop from batch header to batch header, never a look at a
record. What a closed and an active segment share is here; they differ in where bytes come from: a closed one is
mapped, read-only, because it never changes; the active one is read with `pread`, because a mapping of a file that may
yet be cut is a crash waiting to happen.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from struct import Struct
from typing import NamedTuple

from logbrook.model import TopicPartition
from logbrook.records.batch import HEADER_BYTES, MAGIC_V2, BatchHeader, read_header
from logbrook.records.errors import RecordsError
from logbrook.records.reader import iter_records
from logbrook.storage.errors import CorruptLogError
from logbrook.storage.index import BadIndexError, Column, Index, IndexEntry
from logbrook.storage.paths import index_path, log_path

# How far a segment's offsets may go from its first, so that an index entry can hold them.
OFFSET_DELTA_MAX = 2**31 - 1

# A lookup by time does not look into a batch with more records than this, but answers with its beginning.
_RECORDS_LOOKED_AT_MAX = 100_000

_OFFSET = Struct(">q")
_OFFSET_AND_MAGIC = Struct(">q8xb")


class LogSlice(NamedTuple):
    """Whole batches in a file. `data` is a view of the mapping, or the bytes themselves for the active segment."""

    file: str
    position: int
    length: int
    data: memoryview


class TimestampedOffset(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int


class Hop(NamedTuple):
    """A batch, as its header tells of it."""

    position: int
    end: int
    header: BatchHeader


class Window(NamedTuple):
    """Bytes of the segment: `data[0]` is the byte at `origin`."""

    data: memoryview
    origin: int


_NO_BYTES = Window(memoryview(b""), 0)


class Segment(ABC):
    """The batches from `base_offset` up to the next segment's."""

    def __init__(self, partition: TopicPartition, base_offset: int) -> None:
        self.partition = partition
        self.base_offset = base_offset

    @cached_property
    def path(self) -> str:
        return log_path(self.partition.directory, self.base_offset)

    @cached_property
    def index_path(self) -> str:
        return index_path(self.partition.directory, self.base_offset)

    @property
    @abstractmethod
    def size(self) -> int:
        """The bytes that count. The file may have more where an append failed half-way."""

    @property
    @abstractmethod
    def max_timestamp(self) -> int:
        """The largest timestamp of its records, -1 when it has none."""

    @abstractmethod
    def drop(self) -> None:
        """Let go of the files, whose bytes do not matter any more."""

    @abstractmethod
    def read(self, position: int, length: int) -> LogSlice: ...

    @abstractmethod
    def _index(self) -> Index: ...

    @abstractmethod
    def rebuild_index(self) -> None:
        """Make the index again from the log. Raises CorruptLogError."""

    @abstractmethod
    def _window(self, position: int) -> Window:
        """Bytes from `position` on, with at least one whole header unless the segment ends before."""

    def position_of(self, offset: int) -> int:
        """Where the first batch that holds `offset` or a later one starts; the segment's size when none does."""
        for hop in self._hops_from(Column.OFFSET, offset):
            if hop.header.last_offset >= offset:
                return hop.position
        return self.size

    def batch_end_before(self, limit: int, start: int) -> int:
        """The end of the last whole batch that ends by `limit`, or of the one at `start` when that is longer."""
        if limit < self.size:
            for hop in self._hops_from(Column.POSITION, limit, at_least=start):
                if hop.end > limit:
                    return hop.position if hop.position > start else hop.end
        return self.size

    def offset_at(self, position: int) -> int:
        """The base offset of the batch that starts at `position`."""
        offset: int = _OFFSET.unpack(self.read(position, _OFFSET.size).data)[0]
        return offset

    def find_time(self, timestamp: int, from_offset: int, decompressed_bytes_max: int) -> TimestampedOffset | None:
        """The first record from `from_offset` on whose timestamp is `timestamp` or later."""
        for hop in self._hops_from(Column.MAX_TIMESTAMP_BEFORE, timestamp - 1):
            header = hop.header
            if header.max_timestamp < timestamp or header.last_offset < from_offset or header.is_control:
                continue
            if header.count > _RECORDS_LOOKED_AT_MAX:
                # Looking into it would keep everyone waiting. A lookup that stops too early skips nothing.
                return _beginning_of(header, from_offset)
            batch = self.read(hop.position, header.size).data
            try:
                for record in iter_records(batch, bytes_max=decompressed_bytes_max, with_headers=False):
                    if record.timestamp >= timestamp and record.offset >= from_offset:
                        return TimestampedOffset(record.offset, record.timestamp, header.leader_epoch)
            except RecordsError:
                # Its writer sent what nobody can decode.
                return _beginning_of(header, from_offset)
        return None

    def hops(self, position: int = 0, offset: int | None = None) -> Iterator[Hop]:
        """One hop per batch from `position`, where one with this offset or later starts. Raises CorruptLogError."""
        return self._hops_in(self._window, position, offset)

    def copy_index(self) -> Index:
        """The index as it is now, for whoever reads it while it may grow or be unmapped. Raises CorruptLogError."""
        return Index(self.base_offset, memoryview(bytes(self._index().entries)))

    def corrupt(self, position: int, reason: str, offset: int | None = None) -> CorruptLogError:
        """The error for bad bytes at `position`. `offset` is the last one known before them, if not the segment's."""
        return CorruptLogError(self.partition, self.path, position, offset or self.base_offset, reason)

    def _hops_in(self, window_at: Callable[[int], Window], position: int, offset: int | None = None) -> Iterator[Hop]:
        size = self.size
        expected = self.base_offset if offset is None else offset
        data, origin = window_at(position) if position < size else _NO_BYTES
        while position < size:
            if position - origin + HEADER_BYTES > len(data):
                data, origin = window_at(position)
                if position - origin + HEADER_BYTES > len(data):
                    raise self.corrupt(position, "the segment ends inside a batch header", expected)
            header = read_header(data, position - origin)
            end = position + header.size
            if header.magic != MAGIC_V2 or not position + HEADER_BYTES <= end <= size or header.last_offset_delta < 0:
                raise self.corrupt(position, "there is no batch header here", expected)
            if not expected <= header.base_offset <= header.last_offset <= self.base_offset + OFFSET_DELTA_MAX:
                raise self.corrupt(position, f"offset {header.base_offset} is out of order", expected)
            yield Hop(position, end, header)
            position = end
            expected = header.next_offset

    def _hops_from(self, column: Column, limit: int, at_least: int = 0) -> Iterator[Hop]:
        """Hops from the index's floor on. An index that does not fit the log is rebuilt, once, and asked again."""
        try:
            entry = self._checked_floor(column, limit)
        except BadIndexError:
            self.rebuild_index()
            entry = self._checked_floor(column, limit)
        if entry.position < at_least:
            return self.hops(at_least)
        return self.hops(entry.position, entry.offset)

    def _checked_floor(self, column: Column, limit: int) -> IndexEntry:
        entry = self._index().floor(column, limit)
        position = entry.position
        if position == 0:
            return entry
        if position + HEADER_BYTES > self.size:
            raise BadIndexError("an entry points past the end of the log")
        data, origin = self._window(position)
        base_offset, magic = _OFFSET_AND_MAGIC.unpack_from(data, position - origin)
        if base_offset != entry.offset or magic != MAGIC_V2:
            raise BadIndexError("an entry points at another batch than its own")
        return entry


def _beginning_of(header: BatchHeader, from_offset: int) -> TimestampedOffset:
    return TimestampedOffset(max(header.base_offset, from_offset), header.max_timestamp, header.leader_epoch)
