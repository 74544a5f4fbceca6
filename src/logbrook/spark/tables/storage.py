"""Files of a table: how they are created, read, listed and deleted, on a local path and elsewhere.

Data files have unique names and become part of a table only by a commit, so they need no atomic write. A commit does:
`put_if_absent` creates a file with its whole content, or fails because the name exists. On a local path that is
link(2), in an object store a conditional put, in HDFS a rename, which never replaces a file there.

`LocalStorage` is for directories that every executor mounts. `object_storage` and `hadoop_storage` are imported on
first use.
"""

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from logbrook.spark.tables.location import Store, split_location, store_of


class StoredFile(NamedTuple):
    """A file in a listing."""

    path: str
    size_bytes: int
    modified: datetime


class FileSink(Protocol):
    """A file being written to `stream`. End with `finish` or `discard`."""

    stream: Any

    def finish(self) -> int:
        """Make the file durable and return its size in bytes."""

    def discard(self) -> None:
        """Close the file without keeping it; never raises."""


class TableStorage(Protocol):
    """The file operations on one store. Paths are canonical, see `location`."""

    def create(self, path: str) -> FileSink:
        """Start a new file, with its directories."""

    def open(self, path: str, size_bytes: int) -> Any:
        """Return a path or a file object that pyarrow can read from. `size_bytes` is the known size of the file."""

    def read(self, path: str) -> bytes:
        """Return the whole content. Raises FileNotFoundError."""

    def put_if_absent(self, path: str, content: bytes) -> None:
        """Create a file atomically. Raises FileExistsError, or another OSError if the outcome is unknown."""

    def put(self, path: str, content: bytes) -> None:
        """Create or replace a file atomically. It need not be durable."""

    def names(self, directory: str, after: str = "") -> list[str]:
        """Return the sorted names of the files in `directory` above `after`; empty if it does not exist."""

    def directories(self, root: str) -> set[str]:
        """Return the names of the directories in `root`; empty if it does not exist."""

    def files(self, root: str) -> Iterator[StoredFile]:
        """Yield all files below `root`."""

    def delete(self, paths: Sequence[str]) -> int:
        """Delete the files that exist, and return their number."""

    def prepare(self, root: str) -> None:
        """Make ready for a new table at `root`. Raises TableError if `put_if_absent` does not work there."""

    def sync_directories(self, directories: Sequence[str]) -> None:
        """Make the names of new files durable."""


class LocalStorage:
    """A file system that is mounted on every executor."""

    def create(self, path: str) -> "LocalSink":
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return LocalSink(path)

    def open(self, path: str, size_bytes: int) -> str:  # noqa: ARG002
        return path

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def put_if_absent(self, path: str, content: bytes) -> None:
        directory = os.path.dirname(path)
        draft = os.path.join(directory, f"{uuid.uuid4()}.draft")
        with open(draft, "wb") as file:
            file.write(content)
        try:
            sync(draft)
            os.link(draft, path)
        finally:
            os.unlink(draft)
        sync(directory)

    def put(self, path: str, content: bytes) -> None:
        draft = f"{path}.{uuid.uuid4()}.draft"
        with open(draft, "wb") as file:
            file.write(content)
        os.replace(draft, path)

    def names(self, directory: str, after: str = "") -> list[str]:
        try:
            return sorted(name for name in os.listdir(directory) if name > after)
        except FileNotFoundError:
            return []

    def directories(self, root: str) -> set[str]:
        return {name for name in self.names(root) if os.path.isdir(os.path.join(root, name))}

    def files(self, root: str) -> Iterator[StoredFile]:
        for directory, _, names in os.walk(root):
            for name in names:
                path = os.path.join(directory, name)
                with suppress(FileNotFoundError):
                    status = os.stat(path)
                    yield StoredFile(path, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))

    def delete(self, paths: Sequence[str]) -> int:
        deleted = 0
        for path in paths:
            try:
                os.unlink(path)
            except FileNotFoundError:
                continue
            deleted += 1
        return deleted

    def prepare(self, root: str) -> None:
        os.makedirs(root, exist_ok=True)

    def sync_directories(self, directories: Sequence[str]) -> None:
        for directory in directories:
            sync(directory)


class LocalSink:
    """A file on a local path, synced at its end."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.stream = pa.OSFile(path, "wb")

    def finish(self) -> int:
        self.stream.close()
        sync(self._path)
        return os.path.getsize(self._path)

    def discard(self) -> None:
        # A file that cannot be closed, for example on a full disk, is deleted too.
        with suppress(OSError, pa.ArrowException):
            self.stream.close()
        with suppress(OSError):
            os.unlink(self._path)


LOCAL = LocalStorage()


def open_storage(location: str, settings: Mapping[str, str] | None = None) -> TableStorage:
    """Return the storage of a location. `settings` are those that `store_options` returned for it."""
    if store_of(location) is Store.LOCAL:
        return LOCAL
    return _remote_storage(split_location(location)[0], tuple(sorted((settings or {}).items())))


# Executors run many tasks in one process; a store keeps its connections.
@lru_cache(maxsize=16)
def _remote_storage(root: str, settings: tuple[tuple[str, str], ...]) -> TableStorage:
    if store_of(root) is Store.HDFS:
        from logbrook.spark.tables.hadoop_storage import HadoopStorage  # noqa: PLC0415

        return HadoopStorage(root, dict(settings))
    from logbrook.spark.tables.object_storage import ObjectStorage  # noqa: PLC0415

    return ObjectStorage(root, dict(settings))


def sync(path: str) -> None:
    """Make the content of a file, or the entries of a directory, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
