"""Tables in HDFS, with hdfs-native, the client that delta-rs uses too: no JVM and no libhdfs.

The client finds name nodes, high availability and Kerberos in `core-site.xml` and `hdfs-site.xml` in HADOOP_CONF_DIR;
settings given as `storage.<name>` take precedence. HDFS renames atomically and never onto an existing file, which makes
`put_if_absent`.
"""

import io
import os
import posixpath
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import IO, Any

from logbrook.model.version import install_command
from logbrook.spark.errors import OptionError
from logbrook.spark.tables.location import split_location
from logbrook.spark.tables.object_storage import UploadSink
from logbrook.spark.tables.storage import StoredFile

_COPY_BYTES = 4 << 20


class HadoopStorage:
    """One HDFS name service."""

    def __init__(self, root: str, settings: dict[str, str]) -> None:
        try:
            from hdfs_native import Client  # noqa: PLC0415 - an optional package
        except ImportError:
            reason = f"{root!r} needs the package hdfs-native: {install_command('hdfs')}"
            raise OptionError("path", reason) from None
        self._root = root
        self._client: Any = Client(root, settings)

    def create(self, path: str) -> UploadSink:
        return UploadSink(lambda file: self._upload(path, file))

    def open(self, path: str, size_bytes: int) -> Any:  # noqa: ARG002
        return self._client.read(_absolute(path))

    def read(self, path: str) -> bytes:
        with self._client.read(_absolute(path)) as file:
            return bytes(file.read())

    def put_if_absent(self, path: str, content: bytes) -> None:
        draft = f"{path}.{uuid.uuid4()}.draft"
        self._upload(draft, io.BytesIO(content))
        try:
            self._client.rename(_absolute(draft), _absolute(path), overwrite=False)
        except Exception as error:
            # hdfs-native has one error for all answers of the name node, so the file system is asked.
            if not self._exists(path):
                raise OSError(f"{path}: {error}") from error
            raise FileExistsError(path) from None
        finally:
            with suppress(Exception):
                self._client.delete(_absolute(draft))

    def put(self, path: str, content: bytes) -> None:
        draft = f"{path}.{uuid.uuid4()}.draft"
        self._upload(draft, io.BytesIO(content))
        self._client.rename(_absolute(draft), _absolute(path), overwrite=True)

    def names(self, directory: str, after: str = "") -> list[str]:
        names = (posixpath.basename(status.path) for status in self._list(directory) if not status.isdir)
        return sorted(name for name in names if name > after)

    def directories(self, root: str) -> set[str]:
        return {posixpath.basename(status.path) for status in self._list(root) if status.isdir}

    def files(self, root: str) -> Iterator[StoredFile]:
        for status in self._list(root, recursive=True):
            if not status.isdir:
                modified = datetime.fromtimestamp(status.modification_time / 1000, UTC)
                # The client returns paths without the name service.
                yield StoredFile(f"{self._root}{_absolute_name(status.path)}", status.length, modified)

    def delete(self, paths: Sequence[str]) -> int:
        return sum(self._client.delete(_absolute(path)) for path in paths if self._exists(path))

    def prepare(self, root: str) -> None:
        self._client.mkdirs(_absolute(root), create_parent=True)

    def sync_directories(self, directories: Sequence[str]) -> None:
        """Do nothing: a file is durable on the data nodes' terms when it is closed."""

    def _upload(self, path: str, file: IO[bytes]) -> None:
        with suppress(Exception):
            self._client.mkdirs(posixpath.dirname(_absolute(path)), create_parent=True)
        with self._client.create(_absolute(path)) as target:
            while piece := file.read(_COPY_BYTES):
                target.write(piece)

    def _list(self, directory: str, *, recursive: bool = False) -> list[Any]:
        return list(self._client.list_status(_absolute(directory), recursive)) if self._exists(directory) else []

    def _exists(self, path: str) -> bool:
        try:
            self._client.get_file_info(_absolute(path))
        except FileNotFoundError:
            return False
        return True


def _absolute(path: str) -> str:
    return f"/{split_location(path)[1]}"


def _absolute_name(path: str) -> str:
    return _absolute(path) if "://" in path else os.path.normpath(path)
