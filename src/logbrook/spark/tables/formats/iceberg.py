"""Tables in the Iceberg format, by pyiceberg.

The catalog is a sqlite file beside the table's metadata, unless the options name another one. The batches'
ids and the properties are properties of the snapshot. Files carry Iceberg's field ids, and hold all columns.
"""

import json
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
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
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Record

from logbrook.spark.tables.errors import CommitConflictError, TableError
from logbrook.spark.tables.format import PROPERTY_PREFIX, WRITE_KEY, Change, ChangeKind, DataFile
from logbrook.spark.tables.options import TableOptions
from logbrook.spark.tables.partitions import PartitionValue
from logbrook.spark.tables.schema import plain_schema
from logbrook.spark.tables.writing import files_before

# The newest batch of every writer, as JSON; each snapshot of ours repeats it, so that older ones may go.
BATCHES_KEY = "logbrook.batches"
# Whose batch the snapshot itself is, for people who look at its summary.
APP_ID_KEY = "logbrook.app-id"
BATCH_ID_KEY = "logbrook.batch-id"
_NOT_PROPERTIES = (BATCHES_KEY, APP_ID_KEY, BATCH_ID_KEY)
RETRIES_KEY = "commit.retry.num-retries"
TABLE_PROPERTIES = {
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
_EPOCH = date(1970, 1, 1)


class IcebergFormat:
    """The Iceberg table at a path."""

    partition_columns_in_files = True
    small_integers = False

    def __init__(self, options: TableOptions) -> None:
        self.root = options.path
        self.data_directory = os.path.join(options.path, "data")
        self._options = options.iceberg
        self._identifier = (options.iceberg.namespace, options.iceberg.table)

    def load(self) -> "IcebergVersion | None":
        if self._options.catalog is None and not os.path.exists(self._catalog_path):
            return None
        with self._catalog() as catalog:
            try:
                table = catalog.load_table(self._identifier)
            except NoSuchTableError:
                return None
        if local(table.location()) != self.root:
            raise TableError(self.root, f"the catalog has {'.'.join(self._identifier)!r} at {table.location()!r}")
        return IcebergVersion(self.root, table)

    def create(self, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        os.makedirs(os.path.dirname(self._catalog_path), exist_ok=True)
        if self._options.catalog is None:
            self._create_catalog()
        with self._catalog() as catalog:
            if not catalog.namespace_exists(self._options.namespace):
                with suppress(NamespaceAlreadyExistsError):
                    catalog.create_namespace(self._options.namespace)
            try:
                with catalog.create_table_transaction(
                    self._identifier, schema, location=uri(self.root), properties=TABLE_PROPERTIES
                ) as transaction:
                    if partition_by:
                        with transaction.update_spec() as spec:
                            for name in partition_by:
                                spec.add_identity(name)
            except (TableAlreadyExistsError, CommitFailedException):
                catalog.load_table(self._identifier)

    def unreferenced(self, before: datetime) -> list[str]:
        loaded = self.load()
        assert loaded is not None
        needed = loaded.files_needed(set(loaded.forgettable(before)))
        return [path for path in files_before(self.root, (".parquet", ".avro"), before) if path not in needed]

    def forget(self, before: datetime) -> None:
        loaded = self.load()
        assert loaded is not None
        forgettable = loaded.forgettable(before)
        if not forgettable:
            return
        try:
            loaded.table.maintenance.expire_snapshots().by_ids(forgettable).commit()
        except CommitFailedException as error:
            raise CommitConflictError(self.root) from error

    def _create_catalog(self) -> None:
        """Create the sqlite file, unless another was quicker: nobody must see it half made."""
        draft = f"{self._catalog_path}.{uuid.uuid4()}"
        try:
            with closing(SqlCatalog("logbrook", uri=f"sqlite:///{draft}")) as catalog:
                catalog.create_namespace(self._options.namespace)
            with suppress(FileExistsError):
                os.link(draft, self._catalog_path)
        finally:
            os.unlink(draft)

    @property
    def _catalog_path(self) -> str:
        return os.path.join(self.root, "metadata", "catalog.db")

    @contextmanager
    def _catalog(self) -> Iterator[Catalog]:
        name = self._options.catalog
        opened = load_catalog(name) if name else SqlCatalog("logbrook", uri=f"sqlite:///{self._catalog_path}")
        with closing(opened) as catalog:
            yield catalog


class IcebergVersion:
    """One version of an Iceberg table."""

    def __init__(self, root: str, table: Table) -> None:
        # pyiceberg repeats a commit that came second by itself, but what it holds was true of this version only.
        table.metadata.properties[RETRIES_KEY] = "0"
        self._root = root
        self.table = table
        self.file_schema = plain_schema(schema_to_pyarrow(table.schema()), keep_metadata=True)
        self.schema = plain_schema(self.file_schema)
        spec = table.spec()
        transforms = {str(field.transform) for field in spec.fields} - {"identity"}
        if transforms:
            raise TableError(root, f"it is partitioned by {', '.join(sorted(transforms))}, which is not supported here")
        self.partition_by = tuple(table.schema().find_column_name(field.source_id) or "" for field in spec.fields)

    def batch_id_of(self, app_id: str) -> int | None:
        return self._batch_ids().get(app_id)

    def properties(self) -> dict[str, str]:
        own = {key: text for key, text in self._marks().items() if key.startswith(PROPERTY_PREFIX)}
        return {key: text for key, text in own.items() if key not in _NOT_PROPERTIES}

    def data_files(self) -> list[DataFile]:
        return [
            DataFile(local(file.file_path), file.file_size_in_bytes, file.record_count, self._partition(file))
            for file in self._live()
        ]

    def commit(self, change: Change) -> None:
        batch_ids = self._batch_ids()
        marks = {**change.properties, WRITE_KEY: str(uuid.uuid4())}
        if change.app_id is not None and change.batch_id is not None:
            marks |= {APP_ID_KEY: change.app_id, BATCH_ID_KEY: str(change.batch_id)}
            batch_ids |= {change.app_id: change.batch_id}
        marks[BATCHES_KEY] = json.dumps(batch_ids, sort_keys=True)
        removed: list[IcebergFile] = []
        if change.kind is not ChangeKind.APPEND:
            gone = {file.path for file in change.removed}
            overwrites = change.kind is ChangeKind.OVERWRITE
            removed = [file for file in self._live() if overwrites or local(file.file_path) in gone]
        transaction = self.table.transaction()
        update = transaction.update_snapshot(snapshot_properties=marks)
        with update.merge_append() if change.kind is ChangeKind.APPEND else update.overwrite() as producer:
            for added in change.added:
                producer.append_data_file(self._iceberg_file(added))
            for file in removed:
                producer.delete_data_file(file)
        try:
            transaction.commit_transaction()
        except CommitFailedException as error:
            raise CommitConflictError(self._root) from error

    def add_columns(self, columns: Sequence[pa.Field]) -> None:
        transaction = self.table.transaction()
        with transaction.update_schema() as update:
            update.union_by_name(pa.schema(columns))
        try:
            transaction.commit_transaction()
        except CommitFailedException as error:
            raise CommitConflictError(self._root) from error

    def forgettable(self, before: datetime) -> list[int]:
        """The snapshots that are older than `before`, save the one that says what is committed."""
        metadata = self.table.metadata
        kept = {ref.snapshot_id for ref in metadata.refs.values()}
        newest = self._newest()
        if newest is not None:
            kept.add(newest.snapshot_id)
        before_ms = before.timestamp() * 1000
        old = [snapshot for snapshot in metadata.snapshots if snapshot.timestamp_ms <= before_ms]
        return [snapshot.snapshot_id for snapshot in old if snapshot.snapshot_id not in kept]

    def files_needed(self, forgotten: set[int]) -> set[str]:
        """The files of data and of metadata that the snapshots need which are not `forgotten`."""
        needed: set[str] = set()
        manifests: dict[str, Any] = {}
        for snapshot in self.table.metadata.snapshots:
            if snapshot.snapshot_id in forgotten:
                continue
            needed.add(local(snapshot.manifest_list))
            manifests.update({manifest.manifest_path: manifest for manifest in snapshot.manifests(self.table.io)})
        for path, manifest in manifests.items():
            needed.add(local(path))
            entries = manifest.fetch_manifest_entry(self.table.io, discard_deleted=True)
            needed.update(local(entry.data_file.file_path) for entry in entries)
        return needed

    def _newest(self) -> Snapshot | None:
        """The newest snapshot that led to the current one and was made here; others may have come after it."""
        snapshot = self.table.current_snapshot()
        while snapshot is not None:
            if snapshot.summary is not None and WRITE_KEY in snapshot.summary.additional_properties:
                return snapshot
            parent = snapshot.parent_snapshot_id
            snapshot = self.table.snapshot_by_id(parent) if parent is not None else None
        return None

    def _marks(self) -> dict[str, str]:
        newest = self._newest()
        return dict(newest.summary.additional_properties) if newest is not None and newest.summary is not None else {}

    def _batch_ids(self) -> dict[str, int]:
        batch_ids: dict[str, int] = json.loads(self._marks().get(BATCHES_KEY, "{}"))
        return batch_ids

    def _live(self) -> list[IcebergFile]:
        tasks = list(self.table.scan().plan_files())
        if any(task.delete_files for task in tasks):
            raise TableError(self._root, "some of its files have delete files, which are not read here")
        return [task.file for task in tasks]

    def _partition(self, file: IcebergFile) -> dict[str, Any]:
        """A file that was written under another partitioning holds all columns too, so its values are not needed."""
        if file.spec_id != self.table.metadata.default_spec_id:
            return {}
        values = {name: file.partition[number] for number, name in enumerate(self.partition_by)}
        return {name: _from_iceberg(value, self.schema.field(name).type) for name, value in values.items()}

    def _iceberg_file(self, file: DataFile) -> IcebergFile:
        schema = self.table.schema()
        found = data_file_statistics_from_parquet_metadata(
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
            **found.to_serialized_dict(),
        )


def _to_iceberg(value: PartitionValue) -> PartitionValue:
    """A date is a number of days."""
    return (value - _EPOCH).days if isinstance(value, date) else value


def _from_iceberg(value: Any, kind: pa.DataType) -> PartitionValue:
    result: PartitionValue = _EPOCH + timedelta(value) if pa.types.is_date32(kind) and value is not None else value
    return result


def uri(path: str) -> str:
    """The location as Iceberg's metadata has it, which does not escape."""
    return f"file://{path}"


def local(location: str) -> str:
    """The path of a location."""
    return location.removeprefix("file://").removeprefix("file:")
