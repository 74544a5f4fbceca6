"""Durable writes: syncs whose failure is final, and small files that are replaced atomically.

Syncs: after a failed fsync the kernel may have marked the dirty pages clean, so a retry would succeed without the data
being on disk. Every sync of the engine goes through `sync_file` or `sync_directory`, which turn a failure into
StorageOfflineError whatever its errno. A full disk, by contrast, is a retriable error (`is_disk_full`).

Atomic replacement: write a temporary file, sync it, rename it over the old one, sync the directory. After a power loss
a reader finds either the old file or the new one. A sealed file is JSON with its CRC32C in the first line.
"""

import errno
import json
from contextlib import closing
from typing import Any

from crc32c import crc32c

from logbrook.ports import File, Files
from logbrook.storage.errors import CorruptFileError, StorageOfflineError
from logbrook.storage.paths import TEMPORARY_SUFFIX

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
# Errors of the disk, and checksum errors of the file system.
_UNREADABLE = frozenset({errno.EIO, errno.ENODATA, errno.EUCLEAN, errno.EBADMSG})

# The unit in which the kernel reads and writes a file.
PAGE_BYTES = 4096

# Exceptions of a call that writes and syncs.
IO_FAILURES = (OSError, StorageOfflineError)


def is_disk_full(error: OSError) -> bool:
    return error.errno in _FULL


def is_out_of_descriptors(error: OSError) -> bool:
    return error.errno in _OUT_OF_DESCRIPTORS


def is_unreadable(error: OSError) -> bool:
    """Return True if the disk cannot read the bytes, such as those of a bad sector."""
    return error.errno in _UNREADABLE


def sync_file(file: File) -> None:
    try:
        file.fsync()
    except OSError as error:
        raise StorageOfflineError("sync", file.path, error) from error


def sync_directory(files: Files, path: str) -> None:
    """Raises StorageOfflineError if the sync fails, OSError if the directory cannot be opened."""
    try:
        files.fsync_dir(path)
    except OSError as error:
        if isinstance(error, FileNotFoundError) or is_out_of_descriptors(error):
            raise
        raise StorageOfflineError("sync", path or "the data directory", error) from error


def write_sealed(files: Files, path: str, content: Any) -> None:
    replace_file(files, path, seal(encode_json(content)))


def prepare_sealed(files: Files, temporary: str, content: Any) -> None:
    """Write a sealed file under a temporary name. `publish_file` then needs no disk space."""
    prepare_file(files, temporary, seal(encode_json(content)))


def read_file(files: Files, path: str) -> bytes | None:
    """Return the content, or None if the file does not exist."""
    try:
        file = files.open(path)
    except FileNotFoundError:
        return None
    with closing(file):
        return file.pread(file.size(), 0)


def read_sealed(files: Files, path: str) -> Any | None:
    """Return the content, or None if the file does not exist. Raises CorruptFileError if its checksum fails."""
    data = read_file(files, path)
    if data is None:
        return None
    checksum, _, body = data.partition(b"\n")
    if checksum != b"%08x" % crc32c(body):
        raise CorruptFileError(path, "the checksum in its first line does not match its content")
    return json.loads(body)


def replace_file(files: Files, path: str, data: bytes | bytearray) -> None:
    """Replace the file at `path` atomically and durably. Raises OSError or StorageOfflineError."""
    prepare_file(files, path + TEMPORARY_SUFFIX, data)
    publish_file(files, path + TEMPORARY_SUFFIX, path)


def prepare_file(files: Files, temporary: str, data: bytes | bytearray) -> None:
    with closing(create_or_replace(files, temporary)) as file:
        file.pwrite(data, 0)
        sync_file(file)


def publish_file(files: Files, temporary: str, path: str) -> None:
    files.rename(temporary, path)
    sync_directory(files, path.rpartition("/")[0])


def create_or_replace(files: Files, path: str) -> File:
    """Create an empty file at `path`, replacing one that a crash may have left there."""
    try:
        return files.create(path)
    except FileExistsError:
        files.unlink(path)
        return files.create(path)


def encode_json(content: Any) -> str:
    return json.dumps(content, separators=(",", ":"), sort_keys=True)


def seal(encoded: str) -> bytes:
    """Return the bytes of a sealed file with this JSON."""
    body = encoded.encode() + b"\n"
    return b"%08x\n" % crc32c(body) + body
