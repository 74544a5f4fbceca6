"""A segment: one file of record batches with ascending offsets.

A lookup by offset, position or timestamp takes the nearest index entry and then walks batch headers from there; records
are decoded only for the one batch that holds a timestamp. `Segment` has what closed and active segments share. Both are
read with `pread`, never through a mapping: touching a mapped page that the disk cannot read, or that lies past the end
of a truncated file, kills the process, while `pread` returns an error.

`scan_batches` reads a file front to back and verifies every checksum, for recovery, compaction and verification.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from struct import Struct
from typing import NamedTuple

from logbrook.model import TopicPartition
from logbrook.model.identifiers import LeaderEpoch, Offset
from logbrook.ports import Advice, File
from logbrook.records.batch import HEADER_BYTES, MAGIC_V2, BatchHeader, check_batch, read_header, read_prefix
from logbrook.records.errors import RecordsError
from logbrook.records.reader import iter_records
from logbrook.storage.durable_files import is_unreadable
from logbrook.storage.errors import CorruptLogError
from logbrook.storage.index import BadIndexError, Index, IndexColumn, IndexEntry
from logbrook.storage.open_files import SegmentBytes
from logbrook.storage.paths import index_path, log_path

# Largest distance of an offset from the segment's base offset: index entries hold it in 32 bits.
OFFSET_DELTA_MAX = 2**31 - 1

# A timestamp lookup does not decode batches with more records than this; it returns their base offset.
_RECORDS_DECODED_MAX = 100_000

# Of one segment, which take about 2 KiB. As many readers at different offsets find theirs.
_KNOWN_POSITIONS_MAX = 16

_OFFSET_AND_MAGIC = Struct(">q8xb")


class LogSlice(NamedTuple):
    """Whole batches of a file.

    `content` is a buffer of the `FileReader`, which is reused when no view of it is left, or a region of the file.
    """

    file: str
    position: int
    length: int
    content: SegmentBytes

    @property
    def data(self) -> memoryview:
        """The batches of a slice that was read to memory."""
        assert isinstance(self.content, memoryview)
        return self.content


class TimestampedOffset(NamedTuple):
    offset: Offset
    timestamp: int
    leader_epoch: LeaderEpoch


class LocatedBatch(NamedTuple):
    """A batch header and the byte range of its batch in the segment."""

    position: int
    end: int
    header: BatchHeader


class BatchBoundary(NamedTuple):
    """The end of a batch in the segment, and the offset to continue reading at."""

    position: int
    offset: Offset


class Window(NamedTuple):
    """A range of the segment's bytes: `data[0]` is the byte at position `origin`."""

    data: memoryview
    origin: int


_NO_BYTES = Window(memoryview(b""), 0)
# Usually enough to read all headers between two index entries in one read.
_HEADERS_WINDOW_BYTES = 8192


class Segment(ABC):
    """The batches from `base_offset` up to the base offset of the next segment. Owned by a `Log`."""

    def __init__(self, partition: TopicPartition, base_offset: Offset) -> None:
        self.partition = partition
        self.base_offset = base_offset
        # Positions by offset, oldest first: where reads ended, and appends to a segment that is read.
        self._known_positions: dict[Offset, int] = {}

    @cached_property
    def path(self) -> str:
        return log_path(self.partition.directory, self.base_offset)

    @cached_property
    def index_path(self) -> str:
        return index_path(self.partition.directory, self.base_offset)

    @property
    @abstractmethod
    def size(self) -> int:
        """Valid bytes. The file may be longer after a failed append."""

    @property
    @abstractmethod
    def max_timestamp(self) -> int:
        """Largest timestamp of its records, -1 if there are none."""

    @abstractmethod
    def drop(self) -> None:
        """Close the files without a sync: their content is no longer needed."""

    @abstractmethod
    def _pread(self, position: int, length: int) -> memoryview:
        """Read within the segment's size. Raises OSError or NotCachedError."""

    @abstractmethod
    def _locate(self, position: int, length: int) -> SegmentBytes:
        """Return a region of the file, or what `_pread` returns."""

    @abstractmethod
    def _index(self) -> Index: ...

    @abstractmethod
    def rebuild_index(self) -> None:
        """Rebuild the index from the log. Raises CorruptLogError."""

    def read(self, position: int, length: int) -> LogSlice:
        return LogSlice(self.path, position, length, self._pread(position, length))

    def locate(self, position: int, length: int) -> LogSlice:
        """Return a slice that is to be sent to a client: its content may be a region of the file."""
        return LogSlice(self.path, position, length, self._locate(position, length))

    def position_of(self, offset: Offset) -> int:
        """Return the position of the first batch whose last offset is at least `offset`; the size if there is none."""
        for batch in self._walk_from(IndexColumn.OFFSET, offset):
            if batch.header.last_offset >= offset:
                return batch.position
        return self.size

    def read_position(self, offset: Offset) -> int:
        """Return what `position_of` returns, without a look at the log if a read or an append has ended there.

        Only for the log owner's thread.
        """
        position = self._known_positions.get(offset)
        if position is None:
            position = self.position_of(offset)
            self.note_position(offset, position)
        return position

    def note_position(self, offset: Offset, position: int) -> None:
        """Remember the position of `offset`, for the next read. Only for the log owner's thread."""
        known = self._known_positions
        if len(known) >= _KNOWN_POSITIONS_MAX:
            del known[next(iter(known))]
        known[offset] = position

    def boundary_before(self, limit: int, start: int) -> BatchBoundary | None:
        """Return the end of the last batch that ends by `limit`, but at least the end of the batch at `start`.

        None if the segment ends by `limit`.
        """
        if limit < self.size:
            for batch in self._walk_from(IndexColumn.POSITION, limit, at_least=start):
                if batch.end > limit:
                    if batch.position > start:
                        return BatchBoundary(batch.position, batch.header.base_offset)
                    return BatchBoundary(batch.end, batch.header.next_offset)
        return None

    def find_time(self, timestamp: int, from_offset: Offset, decompressed_bytes_max: int) -> TimestampedOffset | None:
        """Return the first record at or after `from_offset` with a timestamp of at least `timestamp`."""
        for batch in self._walk_from(IndexColumn.MAX_TIMESTAMP_BEFORE, timestamp - 1):
            header = batch.header
            if header.max_timestamp < timestamp or header.last_offset < from_offset or header.is_control:
                continue
            if header.count > _RECORDS_DECODED_MAX:
                # Decoding it would block the event loop. Starting too early is safe: it skips no record.
                return _start_of(header, from_offset)
            data = self.read(batch.position, header.size).data
            try:
                for record in iter_records(data, bytes_max=decompressed_bytes_max, with_headers=False):
                    if record.timestamp >= timestamp and record.offset >= from_offset:
                        return TimestampedOffset(record.offset, record.timestamp, header.leader_epoch)
            except RecordsError:
                # The checksum holds, so the producer sent records that cannot be decoded.
                return _start_of(header, from_offset)
        return None

    def batches(self, position: int = 0, offset: Offset | None = None) -> Iterator[LocatedBatch]:
        """Walk the batch headers from `position`, the start of a batch whose base offset is at least `offset`.

        Raises CorruptLogError.
        """
        return self._walk(position, offset)

    def copy_index(self) -> Index:
        """Return a copy of the index, safe to read while the index grows. Raises CorruptLogError."""
        return Index(self.base_offset, memoryview(bytes(self._index().entries)))

    def corrupt(self, position: int, reason: str, offset: Offset | None = None) -> CorruptLogError:
        """Return the error for damage at `position`. `offset` is the next expected offset, by default the segment's."""
        return CorruptLogError(self.partition, self.path, position, offset or self.base_offset, reason)

    def _window(self, position: int, length: int = _HEADERS_WINDOW_BYTES) -> Window:
        """Return bytes from `position` on, at least one whole header unless the segment ends before."""
        try:
            return Window(self._pread(position, min(length, self.size - position)), position)
        except OSError as error:
            if not is_unreadable(error):
                raise
        return Window(self._pread(position, min(HEADER_BYTES, self.size - position)), position)

    def _walk(
        self,
        position: int,
        offset: Offset | None = None,
        window_bytes: int = _HEADERS_WINDOW_BYTES,
        window: Window = _NO_BYTES,
    ) -> Iterator[LocatedBatch]:
        """`window` has bytes that were read already, from `position` on."""
        size = self.size
        expected = self.base_offset if offset is None else offset
        data, origin = window
        while position < size:
            if position - origin + HEADER_BYTES > len(data):
                data, origin = self._window(position, window_bytes)
                if position - origin + HEADER_BYTES > len(data):
                    raise self.corrupt(position, "the segment ends inside a batch header", expected)
            header = read_header(data, position - origin)
            end = position + header.size
            if header.magic != MAGIC_V2 or not position + HEADER_BYTES <= end <= size or header.last_offset_delta < 0:
                raise self.corrupt(position, "it is not a valid batch header", expected)
            if not expected <= header.base_offset <= header.last_offset <= self.base_offset + OFFSET_DELTA_MAX:
                raise self.corrupt(position, f"offset {header.base_offset} is out of order", expected)
            yield LocatedBatch(position, end, header)
            position = end
            expected = header.next_offset

    def _walk_from(self, column: IndexColumn, limit: int, at_least: int = 0) -> Iterator[LocatedBatch]:
        """Walk batches from the index entry at or below `limit`.

        An index that does not match the log is rebuilt once.
        """
        try:
            entry, window = self._checked_floor(column, limit)
        except BadIndexError:
            self.rebuild_index()
            entry, window = self._checked_floor(column, limit)
        if entry.position < at_least:
            return self._walk(at_least)
        return self._walk(entry.position, entry.offset, window=window)

    def _checked_floor(self, column: IndexColumn, limit: int) -> tuple[IndexEntry, Window]:
        """Return the index entry, and the bytes at its position that it was verified with."""
        entry = self._index().floor(column, limit)
        position = entry.position
        if position == 0:
            return entry, _NO_BYTES
        if position + HEADER_BYTES > self.size:
            raise BadIndexError("an entry points past the end of the log")
        data, origin = self._window(position)
        base_offset, magic = _OFFSET_AND_MAGIC.unpack_from(data, position - origin)
        if base_offset != entry.offset or magic != MAGIC_V2:
            raise BadIndexError("an entry points at a batch with another offset")
        return entry, Window(data, origin)


def _start_of(header: BatchHeader, from_offset: Offset) -> TimestampedOffset:
    return TimestampedOffset(max(header.base_offset, from_offset), header.max_timestamp, header.leader_epoch)


_WINDOW_BYTES = 1 << 20


class VerifiedBatch(NamedTuple):
    """A batch whose checksum was verified."""

    position: int
    header: BatchHeader
    data: memoryview


def scan_batches(file: File, position: int, end: int) -> Iterator[VerifiedBatch]:
    """Read the batches from `position` to `end` and verify their checksums.

    Raises RecordsError at the first bad one, OSError at the first one that cannot be read.
    """
    window = memoryview(b"")
    while position < end:
        if len(window) < _bytes_needed(window, end - position):
            window = memoryview(_read_window(file, position, end - position))
            needed = _bytes_needed(window, end - position)
            if len(window) < needed:
                window = memoryview(file.pread(needed, position))
        header = check_batch(window, 0, len(window))
        yield VerifiedBatch(position, header, window[: header.size])
        window = window[header.size :]
        position += header.size


def _read_window(file: File, position: int, length_max: int) -> bytes:
    """Read a window, or the header of its first batch if the disk cannot read all of it. Raises OSError."""
    try:
        return file.pread(min(_WINDOW_BYTES, length_max), position)
    except OSError as error:
        if not is_unreadable(error):
            raise
        file.advise(Advice.EXACT)
        return file.pread(min(HEADER_BYTES, length_max), position)


def scan_headers(file: File, position: int, end: int) -> Iterator[BatchHeader]:
    """Read the batch headers from `position` to `end` without verifying them.

    Ends at the first impossible header; reading the batches themselves will report the damage.
    """
    while position + HEADER_BYTES <= end:
        data = file.pread(HEADER_BYTES, position)
        if len(data) < HEADER_BYTES:
            return
        header = read_header(data)
        if header.size < HEADER_BYTES:
            return
        yield header
        position += header.size


def _bytes_needed(window: memoryview, remaining_bytes: int) -> int:
    """Return the bytes needed to verify the window's first batch, at most what remains of the file."""
    if len(window) < HEADER_BYTES:
        return min(HEADER_BYTES, remaining_bytes)
    return min(max(HEADER_BYTES, read_prefix(window)[1]), remaining_bytes)
