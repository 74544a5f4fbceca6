"""Replacing segment files atomically, and removing files with a delay.

Replacement (compaction, repair): the new segment is complete and synced before an old one is removed. Renaming it to
`<base>-<end>.swap` is the commit point. A crash before it leaves the old segments and a temporary file, which recovery
discards; after it, recovery finds the `.swap` file and finishes the replacement.

Removal: a file is renamed to `*.deleted` at once and unlinked later, a few files per step. Unlinking a large file can
take long and must not delay appends and reads; and a reader may still be about to open it.
"""

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

from logbrook.model.identifiers import Offset
from logbrook.ports import Files
from logbrook.storage.durable_files import sync_directory
from logbrook.storage.paths import DELETED_SUFFIX, index_path, log_path, swap_path
from logbrook.storage.probe import StorageProbe


def commit_swap(files: Files, directory: str, temporary: str, base_offset: Offset, end_offset: Offset) -> None:
    """Commit the synced file `temporary` as the segment for offsets from `base_offset` up to `end_offset`.

    The directory is synced first: the names of later segments must be durable, since recovery may start at the next
    one.
    """
    sync_directory(files, directory)
    files.rename(temporary, swap_path(directory, base_offset, end_offset))
    sync_directory(files, directory)


def finish_swap(
    files: Files,
    directory: str,
    base_offset: Offset,
    end_offset: Offset,
    replaced: Iterable[int],
    remove: Callable[[str], None],
) -> None:
    """Remove the segments with base offsets `replaced` and rename the new segment over the first one.

    The index of the first is unlinked before its log is replaced: its positions refer to the old file.
    """
    for base in replaced:
        remove(log_path(directory, Offset(base)))
        with suppress(FileNotFoundError):
            remove(index_path(directory, Offset(base)))
    with suppress(FileNotFoundError):
        files.unlink(index_path(directory, base_offset))
    sync_directory(files, directory)
    files.rename(swap_path(directory, base_offset, end_offset), log_path(directory, base_offset))
    sync_directory(files, directory)


class FileRemover:
    """Queue of files to unlink. After a crash, recovery refills it from the `*.deleted` names."""

    def __init__(self, files: Files, probe: StorageProbe) -> None:
        self._files = files
        self._probe = probe
        self._queue: deque[tuple[int, str, bool]] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def retire(self, path: str, due_ms: int) -> None:
        """Rename the file to `*.deleted` and queue it. The caller syncs the directory."""
        retired = path + DELETED_SUFFIX
        self._files.rename(path, retired)
        self.add(retired, due_ms)

    def add(self, path: str, due_ms: int) -> None:
        self._queue.append((due_ms, path, False))

    def add_directory(self, path: str, due_ms: int) -> None:
        """Queue a directory that contains only files."""
        self._queue.append((due_ms, path, True))

    def step(self, now_ms: int, files_max: int = 16) -> list[str]:
        """Unlink up to `files_max` files that are due. Returns their paths."""
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
        """Unlink a directory's files, then the directory. Returns False if `files_max` was reached before."""
        for name in self._files.list(path):
            if len(removed) >= files_max:
                return False
            self._unlink(f"{path}/{name}", removed)
        self._files.remove_dir(path)
        return True

    def _unlink(self, path: str, removed: list[str]) -> None:
        # The same name may be queued twice if a later file of that name was retired too.
        with suppress(FileNotFoundError):
            self._files.unlink(path)
            removed.append(path)
