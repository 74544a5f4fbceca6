"""Closed segments: immutable, opened on their first read, with an index that can be rebuilt from the log."""

from contextlib import closing, suppress
from dataclasses import dataclass

from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.ports import File, Files
from logbrook.storage.durable_files import IO_FAILURES, is_unreadable, replace_file
from logbrook.storage.errors import CorruptLogError, NotCachedError
from logbrook.storage.index import HEADER_BYTES as INDEX_HEADER_BYTES
from logbrook.storage.index import BadIndexError, Index, IndexBuilder, decode_index_header, encode_index_header
from logbrook.storage.open_files import FileReader, LruCache, SegmentBytes, open_making_room
from logbrook.storage.probe import StorageProbe
from logbrook.storage.segment import Segment

# Indexes of the open segments together. That of a segment of 1 GiB has 6 MiB.
_INDEX_BYTES_MAX = 64 << 20
_REBUILD_WINDOW_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class OpenSegment:
    """The file of a segment, its index in memory and its largest timestamp."""

    file: File
    index: Index
    max_timestamp: int
    # The first damage met while walking the segment. Batches before it can be read.
    damage: CorruptLogError | None = None


class ClosedSegmentCache(LruCache[str, OpenSegment]):
    """LRU cache of open segments by path, at most `segments_max`. Shared by all logs of a directory."""

    def __init__(self, files: Files, segments_max: int, probe: StorageProbe, reader: FileReader | None = None) -> None:
        super().__init__(segments_max, self._close)
        self.files = files
        self.probe = probe
        self.reader = reader or FileReader()
        self._index_bytes = 0

    def put(self, key: str, value: OpenSegment) -> None:
        super().put(key, value)
        self._index_bytes += len(value.index.entries)
        while self._index_bytes > _INDEX_BYTES_MAX and len(self) > 1:
            self.evict_oldest()

    def open(self, path: str) -> File:
        return open_making_room(self.files, path, self.evict_oldest)

    def _close(self, _path: str, segment: OpenSegment) -> None:
        self._index_bytes -= len(segment.index.entries)
        segment.file.close()


class ClosedSegment(Segment):
    """A segment that is opened on its first read, so that opening a log costs nothing per closed segment.

    Size and largest timestamp are determined on first use unless given: they cannot change.
    """

    def __init__(
        self,
        partition: TopicPartition,
        base_offset: Offset,
        cache: ClosedSegmentCache,
        index_interval_bytes: int,
        size: int | None = None,
        max_timestamp: int | None = None,
    ) -> None:
        super().__init__(partition, base_offset)
        self._cache = cache
        self._index_interval_bytes = index_interval_bytes
        self._size = size
        self._max_timestamp = max_timestamp
        # Set while the segment is being opened, before it is in the cache.
        self._opening: File | None = None

    @property
    def size(self) -> int:
        if self._size is None:
            try:
                self._size = self._cache.files.size(self.path)
            except FileNotFoundError as error:
                raise self.corrupt(0, "the file is missing") from error
        return self._size

    @property
    def max_timestamp(self) -> int:
        """Raises CorruptLogError if the segment is damaged."""
        if self._max_timestamp is None:
            segment = self._opened()
            if segment.damage is not None:
                raise segment.damage
            self._max_timestamp = segment.max_timestamp
        return self._max_timestamp

    def forget(self) -> None:
        """Close the file: the segment is about to be replaced or removed."""
        self._cache.remove(self.path)

    drop = forget

    def rebuild_index(self) -> None:
        self._cache.remove(self.path)
        self._open(trusts_index=False)

    def _pread(self, position: int, length: int) -> memoryview:
        file = self._opening or self._opened().file
        data = self._cache.reader.read(file, length, position)
        if len(data) < length:
            raise self._too_short(position + len(data))
        return data

    def _locate(self, position: int, length: int) -> SegmentBytes:
        content = self._cache.reader.read_or_locate(self._opened().file, length, position)
        if len(content) < length:
            raise self._too_short(position + len(content))
        return content

    def _too_short(self, size: int) -> CorruptLogError:
        return self.corrupt(size, f"the file has {size} bytes, expected {self.size}")

    def _index(self) -> Index:
        return self._opened().index

    def _opened(self) -> OpenSegment:
        return self._cache.get(self.path) or self._open()

    def _open(self, *, trusts_index: bool = True) -> OpenSegment:
        try:
            file = self._cache.open(self.path)
        except FileNotFoundError as error:
            raise self.corrupt(0, "the file is missing") from error
        self._opening = file
        try:
            actual = file.size()
            if actual < self.size:
                raise self._too_short(actual)
            segment = self._with_stored_index(file) if trusts_index else None
            segment = segment or self._with_new_index(file)
        except BaseException:
            file.close()
            raise
        finally:
            self._opening = None
        self._cache.put(self.path, segment)
        return segment

    def _with_stored_index(self, file: File) -> OpenSegment | None:
        """Return None if the index file is missing or does not match the log."""
        try:
            return self._check_stored_index(file)
        except (FileNotFoundError, BadIndexError):
            return None

    def _check_stored_index(self, file: File) -> OpenSegment:
        """Raises BadIndexError or FileNotFoundError."""
        with closing(self._cache.open(self.index_path)) as index_file:
            try:
                stored = bytes(self._cache.reader.read(index_file, index_file.size(), 0))
            except OSError as error:
                if is_unreadable(error):
                    raise BadIndexError("the disk cannot read it") from error
                raise
        decode_index_header(self.base_offset, stored)
        index = Index(self.base_offset, memoryview(stored)[INDEX_HEADER_BYTES:])
        last = index.last()
        if last.position >= self.size and last.position > 0:
            raise BadIndexError("the last entry is past the end of the log")
        max_timestamp = last.max_timestamp_before
        try:
            for batch in self._walk(last.position, last.offset):
                if batch.position == last.position and last.position and batch.header.base_offset != last.offset:
                    raise BadIndexError("the last entry points at a batch with another offset")
                if batch.position - last.position > self._index_interval_bytes:
                    raise BadIndexError("the index ends too early")
                max_timestamp = max(max_timestamp, batch.header.max_timestamp)
        except CorruptLogError as damage:
            return OpenSegment(file, index, max_timestamp, damage)
        return OpenSegment(file, index, max_timestamp)

    def _with_new_index(self, file: File) -> OpenSegment:
        builder = IndexBuilder(Index(self.base_offset, bytearray()), self._index_interval_bytes)
        damage = None
        try:
            for batch in self._walk(0, window_bytes=_REBUILD_WINDOW_BYTES):
                builder.add(batch.header.base_offset, batch.position, batch.header.max_timestamp)
        except CorruptLogError as error:
            damage = error
        except NotCachedError as missing:
            # Load all of it: the walk begins again afterwards.
            raise NotCachedError(missing.file, 0, self.size) from missing
        entries = builder.index.entries
        self._cache.probe.indexes_rebuilt += 1
        with suppress(*IO_FAILURES):
            # The index works from memory and can be rebuilt, so a failed write is not the reader's error.
            replace_file(self._cache.files, self.index_path, encode_index_header(self.base_offset, None) + entries)
        return OpenSegment(file, Index(self.base_offset, memoryview(bytes(entries))), builder.max_timestamp, damage)
