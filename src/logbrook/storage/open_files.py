"""Bounded caches of open files: an LRU cache, the handles that segments are written through, and reads of them."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Generic, TypeAlias, TypeVar

from logbrook.ports import File, FileRegion, Files
from logbrook.ports.buffer_pool import POOLED_BYTES_MIN, BufferPool
from logbrook.storage.durable_files import create_or_replace, is_out_of_descriptors, sync_file
from logbrook.storage.errors import NotCachedError, StorageOfflineError

K = TypeVar("K")
V = TypeVar("V")
# Path, position and length.
ReadRange: TypeAlias = tuple[str, int, int]
# Bytes of a segment: in memory, or to be read when they are sent.
SegmentBytes: TypeAlias = memoryview | FileRegion

# Fewer bytes are read at once: a response with many partitions takes little memory, too.
REGION_BYTES_MIN = 256 * 1024


class LruCache(Generic[K, V]):
    """At most `capacity` values. `on_evict(key, value)` is called for each value evicted, replaced or removed."""

    def __init__(self, capacity: int, on_evict: Callable[[K, V], None]) -> None:
        self._capacity = capacity
        self._on_evict = on_evict
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> None:
        self.remove(key)
        self._entries[key] = value
        while len(self._entries) > self._capacity:
            self.evict_oldest()

    def remove(self, key: K) -> None:
        value = self._entries.pop(key, None)
        if value is not None:
            self._on_evict(key, value)

    def take(self, key: K) -> V | None:
        """Remove and return a value without calling `on_evict`."""
        return self._entries.pop(key, None)

    def pop(self) -> tuple[K, V] | None:
        """Remove and return the least recently used entry without calling `on_evict`."""
        return self._entries.popitem(last=False) if self._entries else None

    def evict_oldest(self) -> bool:
        """Evict the least recently used value. Returns False if the cache is empty."""
        if not self._entries:
            return False
        self._on_evict(*self._entries.popitem(last=False))
        return True

    def clear(self) -> None:
        while self.evict_oldest():
            continue

    def __len__(self) -> int:
        return len(self._entries)


class FileReader:
    """Reads segments for the log owner's thread, large ranges into buffers that are reused.

    Within `cached_only`, reads do not wait for the disk: they raise NotCachedError for what is not in the page cache,
    and the given error for ranges that could not be loaded.
    """

    def __init__(self) -> None:
        # The owner of the thread trims it periodically.
        self.buffers = BufferPool()
        # The errors, within `cached_only`.
        self._unreadable: Mapping[ReadRange, OSError] | None = None
        # Files of regions that could not be read. Their bytes are read at once, so that errors reach the client.
        self.failed_regions: set[str] = set()

    @contextmanager
    def cached_only(self, unreadable: Mapping[ReadRange, OSError]) -> Iterator[None]:
        self._unreadable = unreadable
        try:
            yield
        finally:
            self._unreadable = None

    def read(self, file: File, length: int, position: int) -> memoryview:
        """Return up to `length` bytes; fewer only at the end of the file. Raises OSError or NotCachedError."""
        data = self.buffers.take_large(length) if length >= POOLED_BYTES_MIN else memoryview(bytearray(length))
        if self._unreadable is None:
            return data[: file.pread_into(data, position)]
        if file.pread_cached_into(data, position) < length:
            if (error := self._unreadable.get((file.path, position, length))) is not None:
                raise error.with_traceback(None)
            raise NotCachedError(file.path, position, length)
        return data

    def read_or_locate(self, file: File, length: int, position: int) -> SegmentBytes:
        """Return a region of the file, or as `read` does what is small or cannot be read later."""
        if length < REGION_BYTES_MIN or file.path in self.failed_regions:
            return self.read(file, length, position)
        region = file.region(position, length)
        if region is None:
            return self.read(file, length, position)
        if self._unreadable is not None:
            if (error := self._unreadable.get((file.path, position, length))) is not None:
                raise error.with_traceback(None)
            if not region.is_cached():
                raise NotCachedError(file.path, position, length)
        return region


class OpenFiles:
    """File handles by path, at most `handles_max`. The least recently used is synced and closed, and reopened on use.

    Used by the log owner's thread. `on_failure` is called when the sync of an evicted handle fails.
    """

    def __init__(
        self,
        files: Files,
        handles_max: int,
        on_failure: Callable[[StorageOfflineError], None] = lambda _failure: None,
        reader: FileReader | None = None,
    ) -> None:
        self._files = files
        self._on_failure = on_failure
        self._reader = reader or FileReader()
        self._handles: LruCache[str, File] = LruCache(handles_max, self._sync_and_close)

    def get(self, path: str) -> File:
        return self._handles.get(path) or self._open(path)

    def read(self, path: str, length: int, position: int) -> memoryview:
        """Return up to `length` bytes; fewer only at the end of the file. Raises OSError or NotCachedError."""
        return self._reader.read(self.get(path), length, position)

    def read_or_locate(self, path: str, length: int, position: int) -> SegmentBytes:
        """Return the bytes, or their region of the file. Raises OSError or NotCachedError."""
        file = self._handles.get(path) or self._open(path)
        if length < REGION_BYTES_MIN:
            return self._reader.read(file, length, position)
        return self._reader.read_or_locate(file, length, position)

    def create(self, path: str) -> File:
        """Create an empty file, replacing one that a failed attempt may have left."""
        self._handles.remove(path)
        file = create_or_replace(self._files, path)
        self._handles.put(path, file)
        return file

    def forget(self, path: str) -> None:
        """Sync and close the handle, if it is open."""
        self._handles.remove(path)

    def drop(self, path: str) -> None:
        """Close the handle without a sync: the file's content is no longer needed."""
        file = self._handles.take(path)
        if file is not None:
            file.close()

    def close(self) -> None:
        """Close all handles without a sync. The caller has taken a checkpoint if the content is to be durable."""
        while (entry := self._handles.pop()) is not None:
            entry[1].close()

    def _open(self, path: str) -> File:
        file = open_making_room(self._files, path, self._handles.evict_oldest)
        self._handles.put(path, file)
        return file

    def _sync_and_close(self, _path: str, file: File) -> None:
        # The kernel reports a failed write-back only to handles that are open at that time. A handle closed before its
        # pages are written back would make the next sync, through another handle, succeed although bytes were lost.
        try:
            sync_file(file)
        except StorageOfflineError as failure:
            self._on_failure(failure)
            raise
        finally:
            file.close()

    def __len__(self) -> int:
        return len(self._handles)


def open_making_room(files: Files, path: str, evict: Callable[[], bool]) -> File:
    """Open a file. When the process is out of descriptors, call `evict` to close one and retry, until it is False."""
    while True:
        try:
            return files.open(path)
        except OSError as error:
            if not (is_out_of_descriptors(error) and evict()):
                raise
