"""Reads from disk, in threads, so that reads on the event loop find their bytes in the page cache.

A handler reads within `cached`, which does not wait for the disk. On NotCachedError it calls `load` with the missing
range, and repeats the read when that is loaded. Memory pressure may evict the bytes again before they are read, so a
read waits for the disk after the same range was loaded `LOADS_MAX` times.

A thread does not copy the bytes, and holds the interpreter lock only between system calls (`File.load`). Afterwards it
has the disk read on without waiting, for the next fetch of a consumer that reads on.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from typing import TypeVar

from logbrook.model import TopicPartition
from logbrook.ports import FileRegion, Files
from logbrook.storage.data_directories import AnyDirectory
from logbrook.storage.errors import NotCachedError, ReadFailedError
from logbrook.storage.open_files import ReadRange
from logbrook.storage.paths import is_index

T = TypeVar("T")

LOADS_MAX = 3
_THREADS = 4
# A fetch reads batch headers, then batches, up to 1 MiB by default, and the header after them: one load serves all.
_LOAD_BYTES_MIN = (1 << 20) + (1 << 17)
_READ_AHEAD_BYTES = 4 << 20
# Bounds the loads that no operation waits for.
_FOR_LATER_MAX = 64
_NONE: dict[ReadRange, OSError] = {}


class CacheMisses:
    """The ranges that one operation has loaded, and those that the disk could not read for it."""

    def __init__(self) -> None:
        self.unreadable: dict[ReadRange, OSError] = {}
        # True if a range was loaded so often that the next attempt waits for the disk.
        self.is_futile = False
        self._loads: Counter[ReadRange] = Counter()

    def add(self, missing: NotCachedError) -> None:
        self._loads[missing.range] += 1
        self.is_futile = self._loads[missing.range] >= LOADS_MAX

    def add_failure(self, missing: NotCachedError, error: ReadFailedError) -> None:
        self.unreadable[missing.range] = OSError(error.errno, os.strerror(error.errno or 0), error.file)


class ColdReads:
    """One per broker. Used on the event loop; only `_load` runs in its threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop, directory: AnyDirectory) -> None:
        self._loop = loop
        self._directory = directory
        # Shared by all data directories.
        self._reader = directory.environment.reader
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="logbrook-read")
        # Loads that no operation waits for: in progress, or failed.
        self._for_later: dict[ReadRange, asyncio.Future[None]] = {}

    def stop(self) -> None:
        self._executor.shutdown(cancel_futures=True)

    def cached(self, misses: CacheMisses | None = None) -> AbstractContextManager[None]:
        """Return a context in which reads raise NotCachedError instead of waiting for the disk.

        `misses` are those of the attempts before. Reads of a range that could not be loaded raise its OSError.
        """
        if misses is None:
            return self._reader.cached_only(_NONE)
        return nullcontext() if misses.is_futile else self._reader.cached_only(misses.unreadable)

    async def read(self, operation: Callable[[], T]) -> T:
        """Return the result of `operation`, which reads logs, with what it needs loaded first. Raises as it does."""
        misses: CacheMisses | None = None
        while True:
            try:
                with self.cached(misses):
                    return operation()
            except NotCachedError as missing:
                misses = misses or CacheMisses()
                misses.add(missing)
                try:
                    await self.load(missing)
                except ReadFailedError as error:
                    # The operation reports it for the partition that it belongs to.
                    misses.add_failure(missing, error)

    def load(self, missing: NotCachedError) -> "asyncio.Future[None]":
        """Read the missing range, so that it is in the page cache. Raises ReadFailedError."""
        loaded: asyncio.Future[None] = self._loop.create_future()
        self._executor.submit(self._load, missing, loaded)
        return loaded

    def load_region(self, region: FileRegion, start: int, length: int) -> "asyncio.Future[None]":
        """Read a part of a region that was evicted from the page cache. Raises ReadFailedError."""
        loaded: asyncio.Future[None] = self._loop.create_future()

        def load() -> None:
            try:
                region.load(start, length)
            except OSError as error:
                self._finish(loaded, ReadFailedError(region.path, error))
            else:
                self._finish(loaded, None)

        self._executor.submit(load)
        return loaded

    def note_failed_region(self, region: FileRegion) -> None:
        """Have the file of a region that could not be sent read to memory from now on."""
        self._reader.failed_regions.add(region.path)

    def load_for_later(self, missing: NotCachedError) -> None:
        """Begin to load the missing range for a later read. Raises ReadFailedError if that has just failed."""
        missing_range, loads = missing.range, self._for_later
        loaded = loads.get(missing_range)
        if loaded is not None and loaded.done():
            del loads[missing_range]
            loaded.result()
        if len(loads) >= _FOR_LATER_MAX:
            for failed in [other for other, load in loads.items() if load.done()]:
                del loads[failed]
        if loaded is None and len(loads) < _FOR_LATER_MAX:
            loads[missing_range] = loaded = self.load(missing)
            loaded.add_done_callback(lambda loaded: self._forget_later(missing_range, loaded))

    def _forget_later(self, loaded_range: ReadRange, loaded: "asyncio.Future[None]") -> None:
        """Forget a load that succeeded. The failure of one that failed is kept for the next read of the range."""
        if loaded.cancelled() or loaded.exception() is None:
            self._for_later.pop(loaded_range, None)

    def _load(self, missing: NotCachedError, loaded: "asyncio.Future[None]") -> None:
        files = self._files_of(missing.file)
        try:
            with closing(files.open(missing.file)) as file:
                file.load(missing.position, missing.length)
                end = missing.position + missing.length
                with suppress(OSError):
                    end += file.load(end, max(0, _LOAD_BYTES_MIN - missing.length))
                self._finish(loaded, None)
                with suppress(OSError):
                    file.read_ahead(end, _READ_AHEAD_BYTES)
        except FileNotFoundError:
            # Retention or compaction has removed the segment: the next attempt reads its successor.
            self._finish(loaded, None)
        except OSError as error:
            if not is_index(missing.file):
                self._finish(loaded, ReadFailedError(missing.file, error))
                return
            # An index is a cache: without its file the next attempt rebuilds it from the log.
            with suppress(OSError):
                files.unlink(missing.file)
            self._finish(loaded, None)

    def _files_of(self, path: str) -> Files:
        """Return the data directory of a log's file."""
        members = self._directory.members
        partition = TopicPartition.from_directory(path.partition("/")[0]) if len(members) > 1 else None
        having = [member for member in members if partition is not None and partition in member]
        return (having or members)[0].environment.files

    def _finish(self, loaded: "asyncio.Future[None]", error: ReadFailedError | None) -> None:
        def finish() -> None:
            if loaded.done():
                return
            if error is None:
                loaded.set_result(None)
            else:
                loaded.set_exception(error)

        with suppress(RuntimeError):
            # The loop is closed if the broker has stopped meanwhile.
            self._loop.call_soon_threadsafe(finish)
