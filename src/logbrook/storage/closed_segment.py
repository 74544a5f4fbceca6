"""A closed segment: it never changes, so it is mapped, and its index can always be made again from it."""

from contextlib import suppress
from dataclasses import dataclass

from logbrook.model import TopicPartition
from logbrook.ports import File, Files
from logbrook.storage.disk_errors import IO_FAILURES
from logbrook.storage.errors import CorruptLogError
from logbrook.storage.index import HEADER_BYTES as INDEX_HEADER_BYTES
from logbrook.storage.index import BadIndexError, Index, decode_index_header, encode_index_header
from logbrook.storage.index_builder import IndexBuilder
from logbrook.storage.lru import LruCache
from logbrook.storage.open_files import open_making_room
from logbrook.storage.probe import StorageProbe
from logbrook.storage.sealed_json import replace_file
from logbrook.storage.segment import LogSlice, Segment, Window


@dataclass(frozen=True, slots=True)
class Mapping:
    """A segment's bytes, mapped read-only, its index, and the largest timestamp in it."""

    data: memoryview
    index: Index
    max_timestamp: int
    # What was met on the way, if the segment is not good to its end. What is before can be read.
    damage: CorruptLogError | None = None

    def release(self) -> None:
        # Slices in readers' hands keep the pages; only the cache's own hold on them goes.
        self.data.release()
        if isinstance(self.index.entries, memoryview):
            self.index.entries.release()


class SegmentCache:
    """The mapped segments by path. The one read longest ago is unmapped to make room for another."""

    def __init__(self, files: Files, mappings_max: int, probe: StorageProbe) -> None:
        self.files = files
        self.probe = probe
        self._mappings: LruCache[str, Mapping] = LruCache(mappings_max, lambda _path, mapping: mapping.release())

    def get(self, path: str) -> Mapping | None:
        return self._mappings.get(path)

    def put(self, path: str, mapping: Mapping) -> None:
        self._mappings.put(path, mapping)

    def open(self, path: str) -> File:
        return open_making_room(self.files, path, self._mappings.evict_oldest)

    def forget(self, path: str) -> None:
        self._mappings.remove(path)

    def close(self) -> None:
        self._mappings.clear()

    def __len__(self) -> int:
        return len(self._mappings)


class ClosedSegment(Segment):
    """Nothing is opened before the first read, so a log of a thousand segments opens as fast as a log of one."""

    def __init__(
        self,
        partition: TopicPartition,
        base_offset: int,
        cache: SegmentCache,
        index_interval_bytes: int,
        size: int | None = None,
        max_timestamp: int | None = None,
    ) -> None:
        super().__init__(partition, base_offset)
        self._cache = cache
        self._index_interval_bytes = index_interval_bytes
        self._size = size
        self._max_timestamp = max_timestamp

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
        """Raises CorruptLogError when it cannot be told."""
        if self._max_timestamp is None:
            mapping = self._mapping()
            if mapping.damage is not None:
                raise mapping.damage
            self._max_timestamp = mapping.max_timestamp
        return self._max_timestamp

    def read(self, position: int, length: int) -> LogSlice:
        return LogSlice(self.path, position, length, self._mapping().data[position : position + length])

    def forget(self) -> None:
        """Drop the cache's hold: the segment is about to be replaced or removed."""
        self._cache.forget(self.path)

    drop = forget

    def _window(self, _position: int) -> Window:
        # A view of its own: the walk that asked for it may go on while this mapping is evicted by another's.
        return Window(self._mapping().data[:], 0)

    def _index(self) -> Index:
        return self._mapping().index

    def rebuild_index(self) -> None:
        data = self._mapping().data[:]
        self._cache.put(self.path, self._with_new_index(data))

    def _mapping(self) -> Mapping:
        mapping = self._cache.get(self.path)
        if mapping is None:
            mapping = self._map()
            self._cache.put(self.path, mapping)
        return mapping

    def _map(self) -> Mapping:
        data = memoryview(b"")
        if self.size:
            try:
                file = self._cache.open(self.path)
            except FileNotFoundError as error:
                raise self.corrupt(0, "the file is missing") from error
            try:
                actual = file.size()
                if actual < self.size:
                    raise self.corrupt(actual, f"the file has {actual} bytes where {self.size} were written")
                data = file.map_readonly(self.size)
            finally:
                file.close()
        try:
            return self._with_stored_index(data)
        except (FileNotFoundError, BadIndexError):
            return self._with_new_index(data)

    def _with_stored_index(self, data: memoryview) -> Mapping:
        """Raises BadIndexError or FileNotFoundError when the index on disk does not serve."""
        file = self._cache.open(self.index_path)
        try:
            mapped = file.map_readonly(file.size())
        finally:
            file.close()
        decode_index_header(self.base_offset, mapped)
        index = Index(self.base_offset, mapped[INDEX_HEADER_BYTES:])
        last = index.last()
        if last.position >= len(data) and last.position > 0:
            raise BadIndexError("the index goes past the end of the log")
        max_timestamp = last.max_timestamp_before
        try:
            for hop in self._hops_in(lambda _position: Window(data, 0), last.position, last.offset):
                if hop.position == last.position and last.position and hop.header.base_offset != last.offset:
                    raise BadIndexError("the last entry points at another batch than its own")
                if hop.position - last.position > self._index_interval_bytes:
                    raise BadIndexError("the index ends too early")
                max_timestamp = max(max_timestamp, hop.header.max_timestamp)
        except CorruptLogError as damage:
            return Mapping(data, index, max_timestamp, damage)
        return Mapping(data, index, max_timestamp)

    def _with_new_index(self, data: memoryview) -> Mapping:
        builder = IndexBuilder(Index(self.base_offset, bytearray()), self._index_interval_bytes)
        damage = None
        try:
            for hop in self._hops_in(lambda _position: Window(data, 0), 0):
                builder.add(hop.header.base_offset, hop.position, hop.header.max_timestamp)
        except CorruptLogError as error:
            damage = error
        entries = builder.index.entries
        self._cache.probe.indexes_rebuilt += 1
        with suppress(*IO_FAILURES):
            # It serves from memory as well, and the next process makes it again; a reader has no use for this error.
            replace_file(self._cache.files, self.index_path, encode_index_header(self.base_offset, None) + entries)
        index = Index(self.base_offset, memoryview(bytes(entries)))
        return Mapping(data, index, builder.max_timestamp, damage)
