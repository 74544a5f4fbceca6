"""The files that are open for writing, and how many may be."""

from collections.abc import Callable

from logbrook.ports import File, Files
from logbrook.ports.lent_memory import LENT_BYTES_MIN, LentMemory
from logbrook.storage.disk_errors import is_out_of_descriptors, sync_file
from logbrook.storage.errors import StorageOfflineError
from logbrook.storage.lru import LruCache
from logbrook.storage.sealed_json import create_anew


class OpenFiles:
    """Handles by path. The one used longest ago is closed to make room, and opened again when it is needed."""

    def __init__(
        self,
        files: Files,
        handles_max: int,
        on_failure: Callable[[StorageOfflineError], None] = lambda _failure: None,
    ) -> None:
        self._files = files
        self._on_failure = on_failure
        # What is read at length is read into this. Whoever owns the thread trims it.
        self.memory = LentMemory()
        self._handles: LruCache[str, File] = LruCache(handles_max, self._sync_and_close)

    def get(self, path: str) -> File:
        return self._handles.get(path) or self._open(path)

    def read(self, path: str, length: int, position: int) -> memoryview:
        """Up to `length` bytes; fewer only where the file ends."""
        file = self.get(path)
        if length < LENT_BYTES_MIN:
            return memoryview(file.pread(length, position))
        data = self.memory.take(length)
        return data[: file.pread_into(data, position)]

    def create(self, path: str) -> File:
        """A new, empty file, in place of one that a failed attempt may have left."""
        self._handles.remove(path)
        file = create_anew(self._files, path)
        self._handles.put(path, file)
        return file

    def forget(self, path: str) -> None:
        self._handles.remove(path)

    def drop(self, path: str) -> None:
        """Close a file whose bytes do not matter any more."""
        file = self._handles.take(path)
        if file is not None:
            file.close()

    def close(self) -> None:
        """Let go of everything. What should be on the disk was synced by a checkpoint before."""
        while (entry := self._handles.pop()) is not None:
            entry[1].close()

    def _open(self, path: str) -> File:
        file = open_making_room(self._files, path, self._handles.evict_oldest)
        self._handles.put(path, file)
        return file

    def _sync_and_close(self, _path: str, file: File) -> None:
        # The kernel tells of a failed write-back only to handles that are open when it happens, so a handle must not
        # go before its bytes are on the disk: the next sync, through another handle, would be a false success.
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
    """Open a file. When the process has no descriptor left, give one back and try again while there is one to give."""
    while True:
        try:
            return files.open(path)
        except OSError as error:
            if not (is_out_of_descriptors(error) and evict()):
                raise
