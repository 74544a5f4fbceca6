"""Tables of plain Parquet files, with a log of manifests that lists the live files.

`_manifests/<version>.json` is one commit. It is created by `put_if_absent`, which fails for an existing name, so each
version has one writer, and nothing is renamed in an object store. A reader applies the manifests in order. Every
`SNAPSHOT_EVERY` versions a manifest also contains the accumulated state, and a reader starts at the newest of those.
`_manifests/_snapshot` has the version of a recent one, which saves listing all manifests.

Manifests are numbered by version, not by batch id: which files an overwrite or a compaction removes, and which
properties are current, depends on the order of commits.
"""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Self

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from logbrook.spark.errors import CommitConflictError, CommitUnknownError
from logbrook.spark.tables.files import files_before, now_ms
from logbrook.spark.tables.format import ChangeKind, DataFile, TableChange, TableCommit, TableOptions
from logbrook.spark.tables.location import relative_to
from logbrook.spark.tables.schema import partition_text, partition_value
from logbrook.spark.tables.storage import LOCAL, TableStorage

SNAPSHOT_EVERY = 50
# How long a snapshot keeps the removal time of a file.
TOMBSTONE_MS = 30 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class ManifestState:
    """The state after all manifests up to `version`, in JSON types."""

    version: int = -1
    schema: dict[str, Any] = field(default_factory=dict)
    partition_by: list[str] = field(default_factory=list)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    removed_ms: dict[str, int] = field(default_factory=dict)
    batch_ids: dict[str, int] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)

    def apply(self, manifest: dict[str, Any]) -> Self:
        """Return the state after `manifest`, which must be the next version."""
        assert manifest["version"] == self.version + 1, f"version {manifest['version']} after {self.version}"
        removed = list(self.files) if manifest.get("overwrite") else manifest.get("remove", [])
        files = {name: file for name, file in self.files.items() if name not in set(removed)}
        app = manifest.get("app")
        return replace(
            self,
            version=manifest["version"],
            schema=manifest.get("schema", self.schema),
            partition_by=manifest.get("partition_by", self.partition_by),
            files=files | manifest.get("add", {}),
            removed_ms=self.removed_ms | dict.fromkeys(removed, manifest["time_ms"]),
            batch_ids=self.batch_ids | ({app["id"]: app["batch"]} if app else {}),
            properties=manifest.get("properties", self.properties),
        )

    def to_json(self, time_ms: int) -> dict[str, Any]:
        recent = {name: at_ms for name, at_ms in self.removed_ms.items() if at_ms > time_ms - TOMBSTONE_MS}
        names = ("version", "schema", "partition_by", "files", "batch_ids", "properties")
        return {**{name: getattr(self, name) for name in names}, "removed_ms": recent}


class ParquetFormat:
    """The table of Parquet files at a path."""

    partition_columns_in_files = True
    small_integers = True
    can_upsert = False

    def __init__(self, options: TableOptions, storage: TableStorage = LOCAL) -> None:
        self.root = options.path
        self.storage = storage
        self.data_directory = os.path.join(options.path, "data")
        self._manifests = os.path.join(options.path, "_manifests")
        self._snapshot = os.path.join(self._manifests, "_snapshot")

    def load(self) -> "ParquetVersion | None":
        newest = self._newest()
        if newest is None:
            return None
        state = ManifestState()
        snapshot = newest - newest % SNAPSHOT_EVERY
        if snapshot > 0:
            state = ManifestState(**self._read(snapshot)["state"])
        for version in range(state.version + 1, newest + 1):
            state = state.apply(self._read(version))
        return ParquetVersion(self, state)

    def create(self, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        self.storage.prepare(self._manifests)
        first = {"schema": from_arrow_schema(schema).jsonValue(), "partition_by": list(partition_by)}
        try:
            self.append(ManifestState(), first)
        except (CommitConflictError, CommitUnknownError):
            if self.load() is None:
                raise

    def append(self, state: ManifestState, manifest: dict[str, Any]) -> None:
        """Write the manifest that follows `state`. Raises CommitConflictError if that version exists.

        Raises CommitUnknownError if the storage cannot tell.
        """
        manifest = {"version": state.version + 1, "time_ms": now_ms(), **manifest}
        if manifest["version"] % SNAPSHOT_EVERY == 0:
            manifest["state"] = state.apply(manifest).to_json(manifest["time_ms"])
        try:
            self.storage.put_if_absent(self._path(manifest["version"]), json.dumps(manifest).encode())
        except FileExistsError:
            raise CommitConflictError(self.root) from None
        except OSError as error:
            raise CommitUnknownError(self.root, str(error)) from error
        if manifest["version"] > 0 and "state" in manifest:
            # A reader without it lists more manifests.
            with suppress(OSError):
                self.storage.put(self._snapshot, str(manifest["version"]).encode())

    def history(self, limit: int) -> list[TableCommit]:
        loaded = self.load()
        assert loaded is not None
        newest = loaded.state.version
        manifests = map(self._read, range(newest, max(-1, newest - limit), -1))
        return [
            TableCommit.of(manifest["version"], manifest["time_ms"], _operation(manifest), manifest.get("summary"))
            for manifest in manifests
        ]

    def unreferenced(self, before: datetime) -> list[str]:
        loaded = self.load()
        assert loaded is not None
        # Running queries may still read recently removed files.
        removed_ms = loaded.state.removed_ms
        recent = {name for name, at_ms in removed_ms.items() if at_ms > before.timestamp() * 1000}
        needed = {os.path.join(self.root, name) for name in recent.union(loaded.state.files)}
        old = files_before(self.root, (".parquet", ".draft"), before, self.storage)
        return [path for path in old if path not in needed]

    def expire_commits(self, before: datetime) -> None:
        """Do nothing: manifests are small, and readers start at the newest snapshot."""

    def has_write(self, write_id: str, versions: range) -> bool:
        return any(self._read(version).get("write") == write_id for version in versions)

    def _newest(self) -> int | None:
        """Return the newest version, or None if there is no table."""
        try:
            snapshot = int(self.storage.read(self._snapshot))
        except FileNotFoundError:
            snapshot = None
        after = "" if snapshot is None else os.path.basename(self._path(snapshot))
        names = [name for name in self.storage.names(self._manifests, after) if name.endswith(".json")]
        return int(names[-1].removesuffix(".json")) if names else snapshot

    def _read(self, version: int) -> dict[str, Any]:
        manifest: dict[str, Any] = json.loads(self.storage.read(self._path(version)))
        return manifest

    def _path(self, version: int) -> str:
        return os.path.join(self._manifests, f"{version:020}.json")


class ParquetVersion:
    """One version of a table of Parquet files."""

    def __init__(self, table: ParquetFormat, state: ManifestState) -> None:
        self._table = table
        self.state = state
        self.schema = to_arrow_schema(StructType.fromJson(state.schema), timezone="UTC")
        self.file_schema = self.schema
        self.partition_by = tuple(state.partition_by)

    def batch_id_of(self, app_id: str) -> int | None:
        return self.state.batch_ids.get(app_id)

    def properties(self) -> dict[str, str]:
        return dict(self.state.properties)

    def data_files(self) -> list[DataFile]:
        files = []
        for name, entry in self.state.files.items():
            partition = {
                column: partition_value(text, self.schema.field(column).type)
                for column, text in entry["partition"].items()
            }
            files.append(DataFile(os.path.join(self._table.root, name), entry["bytes"], entry["rows"], partition))
        return files

    def commit(self, change: TableChange) -> None:
        manifest: dict[str, Any] = {
            "add": {self._name(file): _file_entry(file) for file in change.added},
            "remove": [self._name(file) for file in change.removed],
            "overwrite": change.kind is ChangeKind.OVERWRITE,
            "properties": dict(change.properties),
            "summary": change.summary(),
            "write": change.write_id,
        }
        if change.app_id is not None and change.batch_id is not None:
            manifest["app"] = {"id": change.app_id, "batch": change.batch_id}
        self._table.append(self.state, manifest)

    def has_write(self, write_id: str, since: "ParquetVersion") -> bool:
        return self._table.has_write(write_id, range(since.state.version + 1, self.state.version + 1))

    def add_columns(self, columns: Sequence[pa.Field]) -> None:
        wider = pa.schema([*self.schema, *columns])
        self._table.append(self.state, {"schema": from_arrow_schema(wider).jsonValue()})

    def _name(self, file: DataFile) -> str:
        return relative_to(file.path, self._table.root)


def _operation(manifest: dict[str, Any]) -> str:
    """Return the operation of a manifest that is not a TableChange."""
    return "create table" if manifest["version"] == 0 else "add columns"


def _file_entry(file: DataFile) -> dict[str, Any]:
    partition = {name: partition_text(value) for name, value in file.partition.items()}
    return {"bytes": file.size_bytes, "rows": file.rows, "partition": partition}
