"""Tables in the Iceberg format, with pyiceberg.

The catalog is an SQLite file in the table's metadata directory unless `iceberg.catalog` or `iceberg.catalog.*` names
another: REST, SQL, Hive or any other of pyiceberg's. Batch ids and properties are summary properties of the snapshot.
Data files contain all columns, with Iceberg's field ids.
"""

import json
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import date, datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import AVAILABLE_CATALOGS, Catalog, CatalogType, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    RESTError,
    TableAlreadyExistsError,
)
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Properties, Record
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from logbrook.model.version import install_command
from logbrook.spark.errors import CommitConflictError, CommitUnknownError, OptionError, TableError
from logbrook.spark.tables.files import files_before
from logbrook.spark.tables.format import (
    PROPERTY_PREFIX,
    SUMMARY_KEY,
    WRITE_KEY,
    ChangeKind,
    DataFile,
    TableChange,
    TableCommit,
    TableOptions,
)
from logbrook.spark.tables.iceberg_io import file_io_properties
from logbrook.spark.tables.location import canonical_location, scheme_of
from logbrook.spark.tables.schema import PartitionValue, plain_schema
from logbrook.spark.tables.storage import TableStorage

# Newest batch id by app.id, as JSON. Every snapshot by Logbrook repeats it, so that older snapshots can expire.
BATCHES_KEY = "logbrook.batches"
# app.id and batch id of the snapshot itself; informational.
APP_ID_KEY = "logbrook.app-id"
BATCH_ID_KEY = "logbrook.batch-id"
_NOT_PROPERTIES = (BATCHES_KEY, APP_ID_KEY, BATCH_ID_KEY, SUMMARY_KEY)
RETRIES_KEY = "commit.retry.num-retries"
TABLE_PROPERTIES = {
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
_SQL_CATALOG_TABLES = 2
_EPOCH = date(1970, 1, 1)
# Of a catalog or a store, after which the outcome of a commit is unknown: requests' errors are OSErrors.
_FAILURES = (OSError, RESTError, SQLAlchemyError)


class IcebergFormat:
    """The Iceberg table at a location."""

    partition_columns_in_files = True
    small_integers = False
    can_upsert = True

    def __init__(self, options: TableOptions, storage: TableStorage) -> None:
        self.root = options.path
        self.storage = storage
        self.data_directory = os.path.join(options.path, "data")
        self._options = options.iceberg
        catalog = options.iceberg.properties
        self._properties = {**file_io_properties(options.path, options.storage, catalog), **catalog}
        self._identifier = (options.iceberg.namespace, options.iceberg.table)

    def load(self) -> "IcebergVersion | None":
        if not self._options.has_catalog and not os.path.exists(self._catalog_path):
            return None
        with self._catalog() as catalog:
            try:
                table = catalog.load_table(self._identifier)
            except NoSuchTableError:
                return None
        if canonical_location(table.location()) != self.root:
            raise TableError(self.root, f"the catalog has {'.'.join(self._identifier)!r} at {table.location()!r}")
        return IcebergVersion(self.root, table)

    def create(self, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        if not self._options.has_catalog:
            os.makedirs(os.path.dirname(self._catalog_path), exist_ok=True)
            self._create_catalog()
        with self._catalog() as catalog:
            self._create_namespace(catalog)
            try:
                with catalog.create_table_transaction(
                    self._identifier, schema, location=uri(self.root), properties=TABLE_PROPERTIES
                ) as transaction:
                    if partition_by:
                        with transaction.update_spec() as spec:
                            for name in partition_by:
                                spec.add_identity(name)
            except (TableAlreadyExistsError, CommitFailedException, *_FAILURES):
                # Another writer has created it, or the answer was lost.
                if not catalog.table_exists(self._identifier):
                    raise

    def history(self, limit: int) -> list[TableCommit]:
        loaded = self.load()
        assert loaded is not None
        return [_commit(snapshot) for snapshot in islice(loaded.ancestors(), limit)]

    def unreferenced(self, before: datetime) -> list[str]:
        loaded = self.load()
        assert loaded is not None
        needed = loaded.files_needed(set(loaded.expirable(before)))
        old = files_before(self.root, (".parquet", ".avro"), before, self.storage)
        return [path for path in old if path not in needed]

    def expire_commits(self, before: datetime) -> None:
        loaded = self.load()
        assert loaded is not None
        expirable = loaded.expirable(before)
        if not expirable:
            return
        try:
            loaded.table.maintenance.expire_snapshots().by_ids(expirable).commit()
        except CommitFailedException as error:
            raise CommitConflictError(self.root) from error

    def _create_catalog(self) -> None:
        """Create the SQLite file unless it exists; link(2) makes it visible only when complete."""
        draft = f"{self._catalog_path}.{uuid.uuid4()}"
        try:
            with closing(SqlCatalog("logbrook", uri=f"sqlite:///{draft}")) as catalog:
                catalog.create_namespace(self._options.namespace)
            with suppress(FileExistsError):
                os.link(draft, self._catalog_path)
        finally:
            os.unlink(draft)

    def _create_namespace(self, catalog: Catalog) -> None:
        """Create the table's namespace unless it exists.

        SQL catalogs look it up and insert it in two statements: the loser of a race fails with an IntegrityError.
        """
        if catalog.namespace_exists(self._options.namespace):
            return
        try:
            catalog.create_namespace(self._options.namespace)
        except (NamespaceAlreadyExistsError, *_FAILURES):
            if not catalog.namespace_exists(self._options.namespace):
                raise

    @property
    def _catalog_path(self) -> str:
        return os.path.join(self.root, "metadata", "catalog.db")

    @contextmanager
    def _catalog(self) -> Iterator[Catalog]:
        if self._options.has_catalog:
            opened = self._load_catalog()
        else:
            opened = SqlCatalog("logbrook", uri=f"sqlite:///{self._catalog_path}")
        with closing(opened) as catalog:
            yield catalog

    def _load_catalog(self) -> Catalog:
        AVAILABLE_CATALOGS[CatalogType.REST] = _load_rest_catalog
        AVAILABLE_CATALOGS[CatalogType.HIVE] = _load_hive_catalog
        load = partial(load_catalog, self._options.catalog or "logbrook", **self._properties)
        for _ in range(_SQL_CATALOG_TABLES):
            # pyiceberg fails if another process creates a table of a new catalog while it does so itself.
            with suppress(DBAPIError):
                return load()
        return load()


class IcebergVersion:
    """One version of an Iceberg table."""

    def __init__(self, root: str, table: Table) -> None:
        # Disable pyiceberg's own retries: the commit is only valid on top of this version.
        table.metadata.properties[RETRIES_KEY] = "0"
        self._root = root
        self.table = table
        self.file_schema = plain_schema(schema_to_pyarrow(table.schema()), keep_metadata=True)
        self.schema = plain_schema(self.file_schema)
        spec = table.spec()
        transforms = {str(field.transform) for field in spec.fields} - {"identity"}
        if transforms:
            raise TableError(root, f"it is partitioned by {', '.join(sorted(transforms))}, which is not supported")
        self.partition_by = tuple(table.schema().find_column_name(field.source_id) or "" for field in spec.fields)

    def batch_id_of(self, app_id: str) -> int | None:
        return self._batch_ids().get(app_id)

    def properties(self) -> dict[str, str]:
        own = {key: text for key, text in self._summary().items() if key.startswith(PROPERTY_PREFIX)}
        return {key: text for key, text in own.items() if key not in _NOT_PROPERTIES}

    def data_files(self) -> list[DataFile]:
        return [
            DataFile(
                canonical_location(file.file_path), file.file_size_in_bytes, file.record_count, self._partition(file)
            )
            for file in self._live()
        ]

    def commit(self, change: TableChange) -> None:
        batch_ids = self._batch_ids()
        summary = {**change.properties, WRITE_KEY: change.write_id, SUMMARY_KEY: change.summary()}
        if change.app_id is not None and change.batch_id is not None:
            summary |= {APP_ID_KEY: change.app_id, BATCH_ID_KEY: str(change.batch_id)}
            batch_ids |= {change.app_id: change.batch_id}
        summary[BATCHES_KEY] = json.dumps(batch_ids, sort_keys=True)
        removed: list[IcebergFile] = []
        if change.kind is not ChangeKind.APPEND:
            removed_paths = {file.path for file in change.removed}
            overwrites = change.kind is ChangeKind.OVERWRITE
            removed = [
                file for file in self._live() if overwrites or canonical_location(file.file_path) in removed_paths
            ]
        transaction = self.table.transaction()
        update = transaction.update_snapshot(snapshot_properties=summary)
        is_append = change.kind is not ChangeKind.OVERWRITE and not removed
        with update.merge_append() if is_append else update.overwrite() as producer:
            for added in change.added:
                producer.append_data_file(self._iceberg_file(added))
            for file in removed:
                producer.delete_data_file(file)
        self._commit(transaction)

    def has_write(self, write_id: str, since: "IcebergVersion") -> bool:  # noqa: ARG002 - snapshots are few
        summaries = (snapshot.summary for snapshot in self.table.metadata.snapshots)
        return any(summary is not None and summary.get(WRITE_KEY) == write_id for summary in summaries)

    def add_columns(self, columns: Sequence[pa.Field]) -> None:
        transaction = self.table.transaction()
        with transaction.update_schema() as update:
            update.union_by_name(pa.schema(columns))
        self._commit(transaction)

    def expirable(self, before: datetime) -> list[int]:
        """Return ids of snapshots older than `before`, except referenced ones and the newest with batch ids."""
        metadata = self.table.metadata
        kept = {ref.snapshot_id for ref in metadata.refs.values()}
        newest = self._newest()
        if newest is not None:
            kept.add(newest.snapshot_id)
        before_ms = before.timestamp() * 1000
        old = [snapshot for snapshot in metadata.snapshots if snapshot.timestamp_ms <= before_ms]
        return [snapshot.snapshot_id for snapshot in old if snapshot.snapshot_id not in kept]

    def files_needed(self, expired: set[int]) -> set[str]:
        """Return the data and metadata files referenced by snapshots other than `expired`."""
        needed: set[str] = set()
        manifests: dict[str, Any] = {}
        for snapshot in self.table.metadata.snapshots:
            if snapshot.snapshot_id in expired:
                continue
            needed.add(canonical_location(snapshot.manifest_list))
            manifests.update({manifest.manifest_path: manifest for manifest in snapshot.manifests(self.table.io)})
        for path, manifest in manifests.items():
            needed.add(canonical_location(path))
            entries = manifest.fetch_manifest_entry(self.table.io, discard_deleted=True)
            needed.update(canonical_location(entry.data_file.file_path) for entry in entries)
        return needed

    def _commit(self, transaction: Transaction) -> None:
        try:
            transaction.commit_transaction()
        except CommitFailedException as error:
            raise CommitConflictError(self._root) from error
        except _FAILURES as error:
            raise CommitUnknownError(self._root, str(error)) from error

    def ancestors(self) -> Iterator[Snapshot]:
        """Yield the current snapshot, its parent and so on, as far as they are not expired."""
        snapshot = self.table.current_snapshot()
        while snapshot is not None:
            yield snapshot
            parent = snapshot.parent_snapshot_id
            snapshot = self.table.snapshot_by_id(parent) if parent is not None else None

    def _newest(self) -> Snapshot | None:
        """Return the newest ancestor of the current snapshot that was committed here, or None."""
        for snapshot in self.ancestors():
            if snapshot.summary is not None and WRITE_KEY in snapshot.summary.additional_properties:
                return snapshot
        return None

    def _summary(self) -> dict[str, str]:
        newest = self._newest()
        return dict(newest.summary.additional_properties) if newest is not None and newest.summary is not None else {}

    def _batch_ids(self) -> dict[str, int]:
        batch_ids: dict[str, int] = json.loads(self._summary().get(BATCHES_KEY, "{}"))
        return batch_ids

    def _live(self) -> list[IcebergFile]:
        tasks = list(self.table.scan().plan_files())
        if any(task.delete_files for task in tasks):
            raise TableError(self._root, "some of its files have delete files, which are not supported")
        return [task.file for task in tasks]

    def _partition(self, file: IcebergFile) -> dict[str, Any]:
        """Return partition values; empty for a file of another partition spec, which contains all columns anyway."""
        if file.spec_id != self.table.metadata.default_spec_id:
            return {}
        values = {name: file.partition[number] for number, name in enumerate(self.partition_by)}
        return {name: _from_iceberg(value, self.schema.field(name).type) for name, value in values.items()}

    def _iceberg_file(self, file: DataFile) -> IcebergFile:
        schema = self.table.schema()
        stats = data_file_statistics_from_parquet_metadata(
            parquet_metadata=file.footer,
            stats_columns=compute_statistics_plan(schema, self.table.metadata.properties),
            parquet_column_mapping=parquet_path_to_id_mapping(schema),
        )
        return IcebergFile.from_args(
            content=DataFileContent.DATA,
            file_path=uri(file.path),
            file_format=FileFormat.PARQUET,
            partition=Record(*(_to_iceberg(file.partition[name]) for name in self.partition_by)),
            file_size_in_bytes=file.size_bytes,
            sort_order_id=None,
            spec_id=self.table.metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **stats.to_serialized_dict(),
        )


def _load_rest_catalog(name: str, properties: Properties) -> Catalog:
    from logbrook.spark.tables.rest_catalog import LimitedRestCatalog  # noqa: PLC0415 - it loads an HTTP client

    return LimitedRestCatalog(name, **properties)


def _load_hive_catalog(name: str, properties: Properties) -> Catalog:
    try:
        from logbrook.spark.tables.hive_catalog import LimitedHiveCatalog  # noqa: PLC0415 - it loads Thrift
    except ImportError:
        reason = f"a Hive catalog needs the package thrift: {install_command('hive')}"
        raise OptionError("iceberg.catalog.type", reason) from None
    return LimitedHiveCatalog(name, **properties)


def _commit(snapshot: Snapshot) -> TableCommit:
    summary = snapshot.summary
    operation = summary.operation.value if summary is not None else "?"
    text = summary.additional_properties.get(SUMMARY_KEY) if summary is not None else None
    return TableCommit.of(snapshot.snapshot_id, snapshot.timestamp_ms, operation, text)


def _to_iceberg(value: PartitionValue) -> PartitionValue:
    """Convert a partition value; Iceberg stores dates as days since the epoch."""
    return (value - _EPOCH).days if isinstance(value, date) else value


def _from_iceberg(value: Any, kind: pa.DataType) -> PartitionValue:
    result: PartitionValue = _EPOCH + timedelta(value) if pa.types.is_date32(kind) and value is not None else value
    return result


def uri(path: str) -> str:
    """Return the unescaped location as in Iceberg's metadata."""
    return path if scheme_of(path) else f"file://{path}"
