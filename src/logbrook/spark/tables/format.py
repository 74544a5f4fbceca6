"""Table formats (`delta`, `iceberg`, `parquet`): interface, options of `logbrook_table`, and selection for a path.

A table is a directory of a file system that every executor mounts, of an object store or of HDFS (`location`).
A `TableVersion` is an immutable snapshot of the table. A commit succeeds only on top of the version it was prepared
from, so conclusions drawn from that version still hold when the commit takes effect.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from importlib import import_module
from typing import Any, Protocol, Self
from uuid import uuid4

import pyarrow as pa

from logbrook.spark.errors import OptionError
from logbrook.spark.options import OptionReader
from logbrook.spark.tables.location import Store, parse_location, store_of
from logbrook.spark.tables.schema import PartitionValue
from logbrook.spark.tables.storage import LOCAL, TableStorage, open_storage
from logbrook.spark.tables.store_options import HADOOP_PREFIX, STORAGE_PREFIX, store_options
from logbrook.spark.tables.upsert import UpsertRules

FILE_BYTES_DEFAULT = 128 << 20
TABLE_FORMATS = ("delta", "iceberg", "parquet")
COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "none")
# Prefix of our commit properties; formats add others of their own.
PROPERTY_PREFIX = "logbrook."
# The write id of a TableChange: it identifies the commits that Logbrook wrote, and the write that a commit is of.
WRITE_KEY = "logbrook.write"
# Summary of the TableChange as JSON, for the history; Delta and Iceberg keep it in the commit.
SUMMARY_KEY = "logbrook.commit"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet data file as a commit references it."""

    path: str
    size_bytes: int
    rows: int
    partition: Mapping[str, PartitionValue]
    # Parquet footer with column statistics; None unless the file was just written.
    footer: Any = field(default=None, compare=False, repr=False)


class ChangeKind(Enum):
    APPEND = "append"
    # Replace all rows.
    OVERWRITE = "overwrite"
    # Replace and delete single rows, by rewriting the files that contain them.
    UPSERT = "upsert"
    # Same rows in other files.
    REWRITE = "rewrite"


@dataclass(frozen=True, slots=True)
class TableChange:
    """One commit. An overwrite removes all files; `removed` is empty for it."""

    kind: ChangeKind
    added: Sequence[DataFile]
    removed: Sequence[DataFile] = ()
    app_id: str | None = None
    batch_id: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    # All attempts to commit a change have its id, so that one that took effect is recognized.
    write_id: str = field(default_factory=lambda: str(uuid4()))

    def summary(self) -> str:
        """Return the fields of a TableCommit as JSON. The files that an overwrite removes are not known here."""
        is_overwrite = self.kind is ChangeKind.OVERWRITE
        return json.dumps(
            {
                "operation": _OPERATIONS.get(self.kind, self.kind.value),
                "app_id": self.app_id,
                "batch_id": self.batch_id,
                "files_added": len(self.added),
                "files_removed": None if is_overwrite else len(self.removed),
                "rows_added": sum(file.rows for file in self.added),
                "rows_removed": None if is_overwrite else sum(file.rows for file in self.removed),
            }
        )


# In the history a rewrite has the name of the command that does it.
_OPERATIONS = {ChangeKind.REWRITE: "optimize"}


@dataclass(frozen=True, slots=True)
class TableCommit:
    """A commit in the history of a table; None where the table does not say it. `version` is Iceberg's snapshot id."""

    version: int
    time_ms: int
    operation: str
    app_id: str | None = None
    batch_id: int | None = None
    files_added: int | None = None
    files_removed: int | None = None
    rows_added: int | None = None
    rows_removed: int | None = None

    @classmethod
    def of(cls, version: int, time_ms: int, operation: str, summary: str | None) -> Self:
        """Return the commit with the fields of a TableChange's summary; `operation` is for commits without one."""
        return cls(**{"version": version, "time_ms": time_ms, "operation": operation, **json.loads(summary or "{}")})


class TableVersion(Protocol):
    """One immutable version of a table."""

    @property
    def schema(self) -> pa.Schema:
        """The columns in Spark's Arrow types."""

    @property
    def file_schema(self) -> pa.Schema:
        """The columns as written to files, including the format's field metadata."""

    @property
    def partition_by(self) -> tuple[str, ...]: ...

    def batch_id_of(self, app_id: str) -> int | None:
        """Return the newest committed batch id of `app_id`, or None."""

    def properties(self) -> dict[str, str]:
        """Return the properties of the newest TableChange; empty if there is none."""

    def data_files(self) -> list[DataFile]:
        """Return the live data files. Raises TableError if rows are deleted by deletion vectors or delete files."""

    def commit(self, change: TableChange) -> None:
        """Commit `change` on top of this version.

        Raises CommitConflictError if a newer version exists, which may be this very commit if its answer was lost and
        the request repeated, or CommitUnknownError. `commits.commit_change` finds out.
        """

    def has_write(self, write_id: str, since: Self) -> bool:
        """Return True if a commit after the version `since` has this write id."""

    def add_columns(self, columns: Sequence[pa.Field]) -> None:
        """Add nullable columns. Raises CommitConflictError or CommitUnknownError as `commit` does."""


class TableFormat(Protocol):
    """A table at the location `root`, which may not exist yet."""

    root: str
    storage: TableStorage
    # Directory of the data files; partition directories are below it.
    data_directory: str
    # True if data files contain the partition columns.
    partition_columns_in_files: bool
    # True if the format has 8- and 16-bit integers.
    small_integers: bool
    # True if every reader of the format ignores files that a commit has removed.
    can_upsert: bool

    def load(self) -> TableVersion | None:
        """Return the newest version, or None if the table does not exist."""

    def create(self, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        """Create the empty table unless it exists."""

    def history(self, limit: int) -> list[TableCommit]:
        """Return up to `limit` commits, newest first. The table must exist."""

    def unreferenced(self, before: datetime) -> list[str]:
        """Return files not referenced by any commit since `before` and not modified since then."""

    def expire_commits(self, before: datetime) -> None:
        """Expire the commits that `unreferenced` ignores, if the format keeps them."""


@dataclass(frozen=True, slots=True)
class IcebergOptions:
    """Catalog and name of an Iceberg table. Without a catalog it is an SQLite file in the table's directory.

    `properties` are pyiceberg's, such as `type` and `uri`. They add to those that its own configuration has for the
    name `catalog`.
    """

    catalog: str | None = None
    namespace: str = "logbrook"
    table: str = "table"
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def has_catalog(self) -> bool:
        return self.catalog is not None or bool(self.properties)


@dataclass(frozen=True, slots=True)
class TableOptions:
    """All options of a reader or a writer of a table."""

    path: str
    table_format: str | None = None
    partition_by: tuple[str, ...] = ()
    file_bytes: int = FILE_BYTES_DEFAULT
    compression: str = "zstd"
    app_id: str | None = None
    add_columns: bool = False
    track_offsets: bool = False
    checkpoint: str | None = None
    iceberg: IcebergOptions = field(default_factory=IcebergOptions)
    # Identifies a batch write together with `app_id`; None stands for the micro-batch that the write is part of.
    batch_id: int | None = None
    # None: rows are appended.
    upsert: UpsertRules | None = None
    # Settings of the store, in object_store's names; they include credentials.
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Parse options. Raises OptionError."""
        reader = OptionReader(options)
        location = parse_location(reader.required("path"))
        hadoop = {f"{HADOOP_PREFIX}{name}": text for name, text in reader.prefixed(HADOOP_PREFIX).items()}
        parsed = cls(
            path=location,
            storage=store_options(location, reader.prefixed(STORAGE_PREFIX), hadoop),
            table_format=reader.choice("table.format", TABLE_FORMATS, "") or None,
            partition_by=reader.names("partition.by"),
            file_bytes=reader.integer("file.bytes", FILE_BYTES_DEFAULT, at_least=1),
            compression=reader.choice("compression", COMPRESSIONS, "zstd"),
            app_id=reader.text("app.id"),
            add_columns=reader.choice("schema.evolution", ("none", "add"), "none") == "add",
            track_offsets=reader.choice("source.offsets", ("none", "auto"), "none") == "auto",
            checkpoint=reader.text("checkpointLocation"),
            iceberg=IcebergOptions(
                catalog=reader.text("iceberg.catalog"),
                properties=reader.prefixed("iceberg.catalog."),
                namespace=reader.text("iceberg.namespace") or IcebergOptions().namespace,
                table=reader.text("iceberg.table") or IcebergOptions().table,
            ),
            batch_id=reader.integer("batch.id", None, at_least=0),
            upsert=UpsertRules.parse(reader),
        )
        reader.finish()
        return parsed


_CLASSES = {
    "delta": ("logbrook.spark.tables.delta", "DeltaFormat"),
    "iceberg": ("logbrook.spark.tables.iceberg", "IcebergFormat"),
    "parquet": ("logbrook.spark.tables.parquet", "ParquetFormat"),
}
# Metadata directory that identifies the format of an existing table.
_LOG_DIRECTORIES = {"delta": "_delta_log", "iceberg": "metadata", "parquet": "_manifests"}


def open_format(options: TableOptions) -> TableFormat:
    """Open the table at `options.path` in its existing format, else in `table.format`, else as Delta.

    Raises OptionError if `table.format` differs from the existing table's. The format's library is imported on first
    use.
    """
    storage = open_storage(options.path, options.storage)
    existing = format_at(options.path, storage)
    if existing and options.table_format and existing != options.table_format:
        raise OptionError(
            "table.format", f"{options.path!r} is a table of format {existing}, not {options.table_format}"
        )
    chosen = existing or options.table_format or "delta"
    if chosen != "iceberg" and options.iceberg != IcebergOptions():
        raise OptionError("table.format", f"{options.path!r} is of format {chosen}, and iceberg.* options are given")
    if chosen == "iceberg":
        check_catalog(options)
    module, name = _CLASSES[chosen]
    opened: TableFormat = getattr(import_module(module), name)(options, storage)
    return opened


def check_catalog(options: TableOptions) -> None:
    """Raises OptionError if an Iceberg table is elsewhere than at a local path and no catalog is given."""
    if store_of(options.path) is not Store.LOCAL and not options.iceberg.has_catalog:
        raise OptionError(
            "iceberg.catalog",
            f"an Iceberg table at {options.path!r} needs a catalog: name one of pyiceberg's configuration, or give "
            "iceberg.catalog.type (rest, sql, hive) and iceberg.catalog.uri",
        )


def format_at(path: str, storage: TableStorage = LOCAL) -> str | None:
    """Return the format of the table at `path`, or None if there is no table."""
    directories = storage.directories(path)
    return next((name for name, directory in _LOG_DIRECTORIES.items() if directory in directories), None)
