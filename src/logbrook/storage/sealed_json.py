"""Small files that are replaced whole: JSON behind a checksum, never seen half-written.

The order is the one that survives a power loss: write a temporary file, sync it, rename it over the old one, sync the
directory. Before the rename is durable a reader finds the old file; after it, the new one; never a mixture.
"""

import json
from typing import Any

from crc32c import crc32c

from logbrook.ports import File, Files
from logbrook.storage.disk_errors import sync_directory, sync_file
from logbrook.storage.errors import CorruptFileError
from logbrook.storage.paths import TEMPORARY_SUFFIX


def write_sealed(files: Files, path: str, content: Any) -> None:
    replace_file(files, path, _seal(content))


def prepare_sealed(files: Files, temporary: str, content: Any) -> None:
    """Write it under a temporary name, so that `publish_file` needs no more room on the disk."""
    prepare_file(files, temporary, _seal(content))


def read_sealed(files: Files, path: str) -> Any | None:
    """The content, or None where there is no such file. Raises CorruptFileError when the checksum does not hold."""
    try:
        file = files.open(path)
    except FileNotFoundError:
        return None
    try:
        data = file.pread(file.size(), 0)
    finally:
        file.close()
    checksum, _, body = data.partition(b"\n")
    if checksum != b"%08x" % crc32c(body):
        raise CorruptFileError(path, "the checksum in its first line does not fit the rest")
    return json.loads(body)


def replace_file(files: Files, path: str, data: bytes | bytearray) -> None:
    """Put `data` at `path`, atomically and durably. Raises OSError or StorageOfflineError."""
    prepare_file(files, path + TEMPORARY_SUFFIX, data)
    publish_file(files, path + TEMPORARY_SUFFIX, path)


def prepare_file(files: Files, temporary: str, data: bytes | bytearray) -> None:
    file = create_anew(files, temporary)
    try:
        file.pwrite(data, 0)
        sync_file(file)
    finally:
        file.close()


def publish_file(files: Files, temporary: str, path: str) -> None:
    files.rename(temporary, path)
    sync_directory(files, path.rpartition("/")[0])


def create_anew(files: Files, path: str) -> File:
    """A new, empty file at `path`, in place of what a crash may have left there."""
    try:
        return files.create(path)
    except FileExistsError:
        files.unlink(path)
        return files.create(path)


def _seal(content: Any) -> bytes:
    body = json.dumps(content, separators=(",", ":"), sort_keys=True).encode() + b"\n"
    return b"%08x\n" % crc32c(body) + body
