"""Telling what a failed call means: a full disk passes, a failed sync does not.

After a failed sync the kernel may have marked the pages clean, so trying again would succeed and prove nothing. Every
sync of the engine therefore goes through here, and its failure is a StorageOfflineError whatever the error number says.
"""

import errno

from logbrook.ports import File, Files
from logbrook.storage.errors import StorageOfflineError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})

# What a call that writes and syncs can raise.
IO_FAILURES = (OSError, StorageOfflineError)


def is_disk_full(error: OSError) -> bool:
    return error.errno in _FULL


def is_out_of_descriptors(error: OSError) -> bool:
    return error.errno in _OUT_OF_DESCRIPTORS


def sync_file(file: File) -> None:
    try:
        file.fsync()
    except OSError as error:
        raise StorageOfflineError("sync", file.path, error) from error


def sync_directory(files: Files, path: str) -> None:
    """Raises StorageOfflineError; OSError when the directory could not even be opened, which is no failed sync."""
    try:
        files.fsync_dir(path)
    except OSError as error:
        if isinstance(error, FileNotFoundError) or is_out_of_descriptors(error):
            raise
        raise StorageOfflineError("sync", path or "the data directory", error) from error
