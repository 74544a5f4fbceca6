"""Tables in Amazon S3, Google Cloud Storage, Azure Data Lake Storage and compatible servers, with obstore.

Files are written to a temporary file first and uploaded when they are complete, in parts if they are large. The
temporary file has no name, so nothing is left of a task that is killed.

`put_if_absent` is a conditional put: `If-None-Match: *` in S3 and Azure, a generation match in GCS. A server that
ignores the condition would let two writers replace each other's commits, so `prepare` tries it.
"""

import io
import re
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import IO, Any

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError, UnknownConfigurationKeyError
from obstore.store import from_url

from logbrook.spark.errors import OptionError, TableError
from logbrook.spark.tables.location import split_location
from logbrook.spark.tables.storage import StoredFile

# Settings of the HTTP client. delta-rs takes them together with those of the store, obstore does not.
_CLIENT_SETTINGS = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "read_timeout",
        "root_certificate",
        "timeout",
        "user_agent",
    }
)
_STORE_PREFIX = re.compile(r"^(aws|azure_storage|azure|google)_")
_BOOLEANS = {"true": True, "false": False}


class ObjectStorage:
    """One bucket or container."""

    def __init__(self, root: str, settings: dict[str, str]) -> None:
        self._root = root
        try:
            client_options, config = _split_settings(settings)
            self._store: Any = from_url(root, config=config, client_options=client_options)
        except UnknownConfigurationKeyError as error:
            raise OptionError("storage", f"the store {root!r} has no such setting: {error}") from None

    def create(self, path: str) -> "UploadSink":
        return UploadSink(lambda file: self._upload(path, file))

    def open(self, path: str, size_bytes: int) -> "ObjectReader":
        return ObjectReader(self._store, _key(path), size_bytes)

    def read(self, path: str) -> bytes:
        with _os_errors(path):
            return bytes(obstore.get(self._store, _key(path)).bytes())

    def put_if_absent(self, path: str, content: bytes) -> None:
        with _os_errors(path):
            obstore.put(self._store, _key(path), content, mode="create")

    def put(self, path: str, content: bytes) -> None:
        with _os_errors(path):
            obstore.put(self._store, _key(path), content)

    def names(self, directory: str, after: str = "") -> list[str]:
        prefix = f"{_key(directory)}/"
        entries = obstore.list(self._store, prefix, offset=f"{prefix}{after}" if after else None).collect()
        names = (entry["path"].removeprefix(prefix) for entry in entries)
        return sorted(name for name in names if "/" not in name and name > after)

    def directories(self, root: str) -> set[str]:
        listing = obstore.list_with_delimiter(self._store, f"{_key(root)}/")
        return {prefix.rstrip("/").rpartition("/")[2] for prefix in listing["common_prefixes"]}

    def files(self, root: str) -> Iterator[StoredFile]:
        for entries in obstore.list(self._store, f"{_key(root)}/"):
            for entry in entries:
                modified: datetime = entry["last_modified"]
                yield StoredFile(f"{self._root}/{entry['path']}", entry["size"], modified)

    def delete(self, paths: Sequence[str]) -> int:
        """Delete the files and return their number; S3 does not tell which of them existed."""
        keys = [_key(path) for path in paths]
        try:
            obstore.delete(self._store, keys)
        except FileNotFoundError:
            for key in keys:
                with suppress(FileNotFoundError):
                    obstore.delete(self._store, key)
        return len(keys)

    def prepare(self, root: str) -> None:
        probe = f"{root}/_conditional_put_probe-{uuid.uuid4()}"
        self.put_if_absent(probe, b"first")
        try:
            self.put_if_absent(probe, b"second")
        except FileExistsError:
            return
        finally:
            self.delete([probe])
        reason = f"the store {self._root!r} ignores the condition of a conditional put"
        raise TableError(root, f"{reason}, so that two writers would replace each other's commits")

    def sync_directories(self, directories: Sequence[str]) -> None:
        """Do nothing: an upload is durable when it is acknowledged."""

    def _upload(self, path: str, file: IO[bytes]) -> None:
        with _os_errors(path):
            obstore.put(self._store, _key(path), file)


class UploadSink:
    """A temporary file that is uploaded when it is complete."""

    def __init__(self, upload: Callable[[IO[bytes]], None]) -> None:
        self._upload = upload
        self._file = tempfile.TemporaryFile(prefix="logbrook-")  # noqa: SIM115 - closed by finish or discard
        self.stream = pa.PythonFile(self._file, mode="w")

    def finish(self) -> int:
        self.stream.flush()
        size_bytes = self._file.seek(0, io.SEEK_END)
        self._file.seek(0)
        self._upload(self._file)
        self._file.close()
        return size_bytes

    def discard(self) -> None:
        with suppress(OSError):
            self._file.close()


class ObjectReader(io.RawIOBase):
    """Random access to an object: each read is one request for a range. pyarrow reads a column chunk at a time."""

    def __init__(self, store: Any, key: str, size_bytes: int) -> None:
        self._store = store
        self._key = key
        self._size_bytes = size_bytes
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}[whence]
        self._position = start + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        length = max(0, self._size_bytes - self._position)
        if size >= 0:
            length = min(length, size)
        if length == 0:
            return b""
        content = bytes(obstore.get_range(self._store, self._key, start=self._position, length=length))
        self._position += len(content)
        return content


def _split_settings(settings: Mapping[str, str]) -> tuple[Any, Any]:
    """Return the settings of the HTTP client and those of the store."""
    client = {}
    config = {}
    for name, text in settings.items():
        client_name = _STORE_PREFIX.sub("", name)
        if client_name in _CLIENT_SETTINGS:
            client[client_name] = _BOOLEANS.get(text.lower(), text)
        else:
            config[name] = text
    return client, config


@contextmanager
def _os_errors(path: str) -> Iterator[None]:
    """Raise the errors of obstore as the OSErrors that a file system would raise."""
    try:
        yield
    except AlreadyExistsError:
        raise FileExistsError(path) from None
    except NotFoundError:
        raise FileNotFoundError(path) from None
    except BaseError as error:
        raise OSError(f"{path}: {error}") from error


def _key(path: str) -> str:
    return split_location(path)[1]
