"""The files of a checkpoint: on a local path, in an object store or in HDFS, through the storage of tables."""

import io
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from logbrook.client import ClientError
from logbrook.spark.errors import SparkError
from logbrook.spark.tables.location import Store, parse_location, relative_to, store_of
from logbrook.spark.tables.storage import StoredFile, TableStorage, open_storage
from logbrook.spark.tables.store_options import store_options

_COPY_BYTES = 4 << 20


class CheckpointImportError(SparkError):
    """A checkpoint cannot be imported: it is not one of Spark's Kafka source, or does not fit the cluster."""

    def __init__(self, directory: str, reason: str) -> None:
        super().__init__(f"checkpoint {directory!r}: {reason}")


class CheckpointFiles:
    """The directory of one checkpoint. Names are relative to it. Every method may raise CheckpointImportError."""

    def __init__(self, location: str, settings: Mapping[str, str] | None = None) -> None:
        """Accept a path or a URI; `settings` are those of its store, by default the environment's.

        Raises OptionError for a location that is not supported.
        """
        self.location = parse_location(location, "checkpoint")
        self._storage: TableStorage = open_storage(self.location, store_options(self.location, settings or {}, {}))

    def names(self, directory: str) -> list[str]:
        """Return the names of the files in a directory; empty if it does not exist."""
        with self._errors("read"):
            return self._storage.names(self._path(directory))

    def directories(self, directory: str) -> list[str]:
        """Return the names of the directories in a directory; empty if it does not exist."""
        with self._errors("read"):
            return sorted(self._storage.directories(self._path(directory)))

    def read(self, name: str) -> str:
        with self._errors(f"read: {name}"):
            return self._storage.read(self._path(name)).decode()

    def is_empty(self) -> bool:
        with self._errors("read"):
            return next(iter(self._storage.files(self.location)), None) is None

    def write_copy(
        self, source: "CheckpointFiles", *, excluding: Callable[[str], bool], added: Mapping[str, str]
    ) -> None:
        """Copy the files of another checkpoint, except those that are excluded by name, and add others.

        On a local path all of them appear at once. In a store they appear one by one, the added ones last; if one
        cannot be written, those before are deleted.
        """
        files = [file for file in source._listed() if not excluding(relative_to(file.path, source.location))]
        with self._errors("written"), self._draft() as draft:
            for file in files:
                target = os.path.join(draft, relative_to(file.path, source.location))
                with source._opened(file) as stream:
                    self._create(target, stream)
            for name, text in added.items():
                self._create(os.path.join(draft, name), io.BytesIO(text.encode()))

    def _listed(self) -> list[StoredFile]:
        with self._errors("read"):
            return list(self._storage.files(self.location))

    @contextmanager
    def _opened(self, file: StoredFile) -> Iterator[Any]:
        opened = self._storage.open(file.path, file.size_bytes)
        with open(opened, "rb") if isinstance(opened, str) else opened as stream:
            yield stream

    def _create(self, path: str, stream: Any) -> None:
        sink = self._storage.create(path)
        try:
            while piece := stream.read(_COPY_BYTES):
                sink.stream.write(piece)
            sink.finish()
        except BaseException:
            sink.discard()
            raise

    @contextmanager
    def _draft(self) -> Iterator[str]:
        """Yield the directory to write to, and publish it at the end, or delete it after an error."""
        if store_of(self.location) is not Store.LOCAL:
            try:
                yield self.location
            except BaseException:
                self._storage.delete([file.path for file in self._storage.files(self.location)])
                raise
            return
        draft = f"{self.location}.{uuid.uuid4()}"
        try:
            yield draft
            os.rename(draft, self.location)
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def _path(self, name: str) -> str:
        return os.path.join(self.location, name)

    @contextmanager
    def _errors(self, verb: str) -> Iterator[None]:
        try:
            yield
        except (SparkError, ClientError):
            raise
        # The errors of the libraries for stores have no common class.
        except Exception as error:
            raise CheckpointImportError(self.location, f"it cannot be {verb}: {error}") from error
