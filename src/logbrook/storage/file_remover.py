"""Files on their way out: renamed at once, unlinked later, in small steps.

Unlinking a large file takes the file system a while, and a reader may be about to open what was just removed, so
neither happens where an append or a read would wait for it.
"""

from collections import deque
from contextlib import suppress

from logbrook.ports import Files
from logbrook.storage.paths import DELETED_SUFFIX
from logbrook.storage.probe import StorageProbe


class FileRemover:
    """The queue. What is in it at a crash is found again by its name when the directory is opened."""

    def __init__(self, files: Files, probe: StorageProbe) -> None:
        self._files = files
        self._probe = probe
        self._queue: deque[tuple[int, str, bool]] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def retire(self, path: str, due_ms: int) -> None:
        """Give the file its last name. The directory's sync is the caller's."""
        retired = path + DELETED_SUFFIX
        self._files.rename(path, retired)
        self.add(retired, due_ms)

    def add(self, path: str, due_ms: int) -> None:
        self._queue.append((due_ms, path, False))

    def add_directory(self, path: str, due_ms: int) -> None:
        """A directory with only files in it."""
        self._queue.append((due_ms, path, True))

    def step(self, now_ms: int, files_max: int = 16) -> list[str]:
        """Unlink up to `files_max` files whose time has come. Returns their paths."""
        removed: list[str] = []
        for _ in range(len(self._queue)):
            if len(removed) >= files_max:
                break
            due_ms, path, is_directory = self._queue.popleft()
            if due_ms > now_ms:
                self._queue.append((due_ms, path, is_directory))
            elif is_directory:
                if not self._empty(path, removed, files_max):
                    self._queue.append((due_ms, path, is_directory))
            else:
                self._unlink(path, removed)
        self._probe.files_unlinked += len(removed)
        return removed

    def _empty(self, path: str, removed: list[str], files_max: int) -> bool:
        """Unlink what is in a directory, and the directory once nothing is. False when `files_max` came first."""
        for name in self._files.list(path):
            if len(removed) >= files_max:
                return False
            self._unlink(f"{path}/{name}", removed)
        self._files.remove_dir(path)
        return True

    def _unlink(self, path: str, removed: list[str]) -> None:
        # A name may be queued twice, when a later file of the same name was retired too; then it is gone already.
        with suppress(FileNotFoundError):
            self._files.unlink(path)
            removed.append(path)
