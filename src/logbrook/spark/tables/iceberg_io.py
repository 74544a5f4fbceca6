"""The files of an Iceberg table's metadata, read and written by the same storage as its data files.

pyiceberg's own classes take their settings in other names for each store, need an extra package for Azure and libhdfs
for HDFS, and cannot be given a service account of Google. With `StorageFileIO` one set of settings, see
`store_options`, covers data and metadata in every store.

Metadata files are small, so each is read with one request and written with one when it is complete.
"""

import io
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from pyiceberg.io import PY_IO_IMPL, FileIO, InputFile, InputStream, OutputFile
from pyiceberg.typedef import EMPTY_DICT, Properties

from logbrook.spark.tables.location import Store, canonical_location, store_of
from logbrook.spark.tables.storage import TableStorage, open_storage

# pyiceberg passes the properties of a catalog on to its FileIO.
_SETTING_PREFIX = "logbrook.storage."
# Properties that configure pyiceberg's own classes.
_OTHER_PREFIXES = ("adls.", "gcs.", "hdfs.", "s3.")


def file_io_properties(location: str, settings: Mapping[str, str], catalog: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that make a catalog use this module for a table at `location`.

    Empty for a local path, and for a catalog whose own properties, `catalog`, configure a FileIO.
    """
    if store_of(location) is Store.LOCAL or any(name.startswith(_OTHER_PREFIXES) for name in catalog):
        return {}
    own = {f"{_SETTING_PREFIX}{name}": text for name, text in settings.items()}
    return {PY_IO_IMPL: f"{StorageFileIO.__module__}.{StorageFileIO.__name__}", **own}


class StorageFileIO(FileIO):
    """Files of the stores of `location`, with the settings in the catalog's properties."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        self._settings = {
            name.removeprefix(_SETTING_PREFIX): text
            for name, text in properties.items()
            if name.startswith(_SETTING_PREFIX)
        }

    def new_input(self, location: str) -> "StoredInput":
        return StoredInput(location, *self._open(location))

    def new_output(self, location: str) -> "StoredOutput":
        return StoredOutput(location, *self._open(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        storage, path = self._open(location if isinstance(location, str) else location.location)
        storage.delete([path])

    def _open(self, location: str) -> tuple[TableStorage, str]:
        path = canonical_location(location)
        return open_storage(path, self._settings), path


class StoredInput(InputFile):
    """A file that is read as a whole."""

    def __init__(self, location: str, storage: TableStorage, path: str) -> None:
        super().__init__(location)
        self._storage = storage
        self._path = path

    def __len__(self) -> int:
        return len(self._storage.read(self._path))

    def exists(self) -> bool:
        try:
            self._storage.read(self._path)
        except FileNotFoundError:
            return False
        return True

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002 - pyiceberg's signature
        return io.BytesIO(self._storage.read(self._path))


class StoredOutput(OutputFile):
    """A file that is written as a whole. Its length is known once it is written."""

    def __init__(self, location: str, storage: TableStorage, path: str) -> None:
        super().__init__(location)
        self._storage = storage
        self._path = path
        self._size_bytes: int | None = None

    def __len__(self) -> int:
        return len(self.to_input_file()) if self._size_bytes is None else self._size_bytes

    def exists(self) -> bool:
        return self.to_input_file().exists()

    def to_input_file(self) -> StoredInput:
        return StoredInput(self.location, self._storage, self._path)

    def create(self, overwrite: bool = False) -> "StoredStream":
        return StoredStream(self, overwrite=overwrite)

    def store(self, content: bytes, *, overwrite: bool) -> None:
        """Write the file. Raises FileExistsError if it exists, unless `overwrite`."""
        put = self._storage.put if overwrite else self._storage.put_if_absent
        put(self._path, content)
        self._size_bytes = len(content)


class StoredStream(io.BytesIO):
    """Content that is stored when it is closed, unless an error ends the block."""

    def __init__(self, output: StoredOutput, *, overwrite: bool) -> None:
        super().__init__()
        self._output = output
        self._overwrite = overwrite

    def close(self) -> None:
        if not self.closed:
            content = self.getvalue()
            super().close()
            self._output.store(content, overwrite=self._overwrite)

    def discard(self) -> None:
        super().close()

    def __del__(self) -> None:
        """Store nothing: a stream that is collected was not closed."""
        self.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()
