"""Tables of plain Parquet files, with a log of manifests that says which of them count.

`_manifests/<version>.json` is a commit. It is created by a link, which fails when the name exists, so that every
version has one writer; a reader folds the manifests in the order of their names. Every `SNAPSHOT_EVERY` versions a
manifest also holds the state that the fold has reached, and a reader starts at the newest of those.

A manifest is named by its version and not by its writer's batch, because the files that an overwrite or a compaction
removes, and which properties are the newest, depend on the order of the commits.
"""

import json
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Self

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from logbrook.spark.tables.errors import CommitConflictError
from logbrook.spark.tables.format import Change, ChangeKind, DataFile
from logbrook.spark.tables.options import TableOptions
from logbrook.spark.tables.partitions import from_text, to_text
from logbrook.spark.tables.writing import files_before, now_ms, sync_directory, sync_file

SNAPSHOT_EVERY = 50
# How long a snapshot remembers when a file was removed.
TOMBSTONE_MS = 30 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class ManifestState:
    """What the manifests up to one version add up to; everything is as JSON has it."""

    version: int = -1
    schema: dict[str, Any] = field(default_factory=dict)
    partition_by: list[str] = field(default_factory=list)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    removed_ms: dict[str, int] = field(default_factory=dict)
    batch_ids: dict[str, int] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)

    def fold(self, manifest: dict[str, Any]) -> Self:
        """The state after `manifest`, which must be the next."""
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
        recent = {name: then for name, then in self.removed_ms.items() if then > time_ms - TOMBSTONE_MS}
        names = ("version", "schema", "partition_by", "files", "batch_ids", "properties")
        return {**{name: getattr(self, name) for name in names}, "removed_ms": recent}


class ParquetFormat:
    """The table of Parquet files at a path."""

    partition_columns_in_files = True
    small_integers = True

    def __init__(self, options: TableOptions) -> None:
        self.root = options.path
        self.data_directory = os.path.join(options.path, "data")
        self._manifests = os.path.join(options.path, "_manifests")

    def load(self) -> "ParquetVersion | None":
        try:
            names = sorted(name for name in os.listdir(self._manifests) if name.endswith(".json"))
        except FileNotFoundError:
            return None
        if not names:
            return None
        newest = int(names[-1].removesuffix(".json"))
        state = ManifestState()
        snapshot = newest - newest % SNAPSHOT_EVERY
        if snapshot > 0:
            state = ManifestState(**self._read(snapshot)["state"])
        for version in range(state.version + 1, newest + 1):
            state = state.fold(self._read(version))
        return ParquetVersion(self, state)

    def create(self, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        os.makedirs(self._manifests, exist_ok=True)
        first = {"schema": from_arrow_schema(schema).jsonValue(), "partition_by": list(partition_by)}
        try:
            self.append(ManifestState(), first)
        except CommitConflictError:
            return

    def append(self, state: ManifestState, manifest: dict[str, Any]) -> None:
        """Create the manifest that follows `state`; raises CommitConflictError when another was quicker."""
        manifest = {"version": state.version + 1, "time_ms": now_ms(), **manifest}
        if manifest["version"] % SNAPSHOT_EVERY == 0:
            manifest["state"] = state.fold(manifest).to_json(manifest["time_ms"])
        draft = os.path.join(self._manifests, f"{uuid.uuid4()}.draft")
        with open(draft, "w", encoding="utf-8") as file:
            json.dump(manifest, file)
        try:
            sync_file(draft)
            os.link(draft, self._path(manifest["version"]))
        except FileExistsError:
            raise CommitConflictError(self.root) from None
        finally:
            os.unlink(draft)
        sync_directory(self._manifests)

    def unreferenced(self, before: datetime) -> list[str]:
        loaded = self.load()
        assert loaded is not None
        # A file that was removed lately may still be read.
        lately = {name for name, then in loaded.state.removed_ms.items() if then > before.timestamp() * 1000}
        needed = {os.path.join(self.root, name) for name in lately.union(loaded.state.files)}
        return [path for path in files_before(self.root, (".parquet", ".draft"), before) if path not in needed]

    def forget(self, before: datetime) -> None:
        """Manifests stay: they are small, and nobody reads those before the newest snapshot."""

    def _read(self, version: int) -> dict[str, Any]:
        with open(self._path(version), encoding="utf-8") as file:
            manifest: dict[str, Any] = json.load(file)
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
        for name, facts in self.state.files.items():
            partition = {
                column: from_text(text, self.schema.field(column).type) for column, text in facts["partition"].items()
            }
            files.append(DataFile(os.path.join(self._table.root, name), facts["bytes"], facts["rows"], partition))
        return files

    def commit(self, change: Change) -> None:
        manifest: dict[str, Any] = {
            "add": {self._name(file): _facts(file) for file in change.added},
            "remove": [self._name(file) for file in change.removed],
            "overwrite": change.kind is ChangeKind.OVERWRITE,
            "properties": dict(change.properties),
        }
        if change.app_id is not None and change.batch_id is not None:
            manifest["app"] = {"id": change.app_id, "batch": change.batch_id}
        self._table.append(self.state, manifest)

    def add_columns(self, columns: Sequence[pa.Field]) -> None:
        wider = pa.schema([*self.schema, *columns])
        self._table.append(self.state, {"schema": from_arrow_schema(wider).jsonValue()})

    def _name(self, file: DataFile) -> str:
        return os.path.relpath(file.path, self._table.root)


def _facts(file: DataFile) -> dict[str, Any]:
    partition = {name: to_text(value) for name, value in file.partition.items()}
    return {"bytes": file.size_bytes, "rows": file.rows, "partition": partition}
