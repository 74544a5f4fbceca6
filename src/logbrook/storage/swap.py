"""Replacing segments by one: the new one is complete and durable before any of the old ones goes.

The name `<base>-<end>.swap` is the point of no return. A crash before it leaves the old segments and a temporary file
that is worth nothing; a crash after it leaves a name that says exactly what remains to be done.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress

from logbrook.ports import Files
from logbrook.storage.disk_errors import sync_directory
from logbrook.storage.paths import index_path, log_path, swap_path


def commit_swap(files: Files, directory: str, temporary: str, base_offset: int, end_offset: int) -> None:
    """From here on the synced file `temporary` is what holds the offsets from `base_offset` to `end_offset`.

    Names must not be lost of which the new segment is the end: recovery may begin where the next one does.
    """
    sync_directory(files, directory)
    files.rename(temporary, swap_path(directory, base_offset, end_offset))
    sync_directory(files, directory)


def finish_swap(
    files: Files,
    directory: str,
    base_offset: int,
    end_offset: int,
    replaced: Iterable[int],
    remove: Callable[[str], None],
) -> None:
    """Remove the segments that begin inside the range, and put the new one in the place of the first.

    The index of the first goes before its log is replaced: it would point into the wrong file.
    """
    for base in replaced:
        remove(log_path(directory, base))
        with suppress(FileNotFoundError):
            remove(index_path(directory, base))
    with suppress(FileNotFoundError):
        files.unlink(index_path(directory, base_offset))
    sync_directory(files, directory)
    files.rename(swap_path(directory, base_offset, end_offset), log_path(directory, base_offset))
    sync_directory(files, directory)
