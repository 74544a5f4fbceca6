"""The Spark data source `logbrook_table`: its batch reader and its writers.

The reader is for convenience: `logbrook.spark.tables.union.history` reads the same files with Spark's own Parquet
reader, which is several times faster.

`plan_write` runs on the driver before any task. It rejects a DataFrame that does not fit, and creates the table or adds
columns, which fixes the file schema of the tasks. Spark creates the planning and the committing writer in two
processes: the committing one has only the options and the tasks' commit messages.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import IntegralType, StringType, StructType

from logbrook.spark.arrow_batches import gather_batches
from logbrook.spark.errors import CommitConflictError, CommitUnknownError, OptionError, TableError
from logbrook.spark.micro_batch import WriteIdentity, identify_write
from logbrook.spark.tables.commits import (
    ATTEMPTS_MAX,
    KEYS_KEY,
    OFFSETS_KEY,
    TableOffsets,
    TableWrite,
    load_existing,
    merge_offsets,
    next_offsets,
    publish,
)
from logbrook.spark.tables.files import TableFileWriter, delete_files, read_file
from logbrook.spark.tables.format import DataFile, TableFormat, TableOptions, TableVersion, open_format
from logbrook.spark.tables.location import Store, store_of
from logbrook.spark.tables.merging import UpsertWrite
from logbrook.spark.tables.schema import check_partition_columns, missing_columns, stored_schema
from logbrook.spark.tables.storage import LOCAL, TableStorage, open_storage
from logbrook.spark.tables.upsert import offset_columns

TASK_BYTES = 64 << 20
# Cost of opening a file, expressed in bytes; the default of spark.sql.files.openCostInBytes.
OPEN_COST_BYTES = 4 << 20
# Files of changes are read once, by the commit that merges them.
CHANGES_COMPRESSION = "snappy"
QUERY_ID_PROPERTY = "sql.streaming.queryId"


class TableDataSource(DataSource):
    """The format `logbrook_table` with the options of TableOptions."""

    # Hadoop's settings of the session that registered the source. Options take precedence.
    session_settings: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def name(cls) -> str:
        return "logbrook_table"

    def schema(self) -> StructType:
        return from_arrow_schema(load_existing(open_format(self._parsed())).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        return TableReader(self._parsed(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return BatchTableWriter(self._parsed(), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        return StreamTableWriter(self._parsed(), schema, overwrite)

    def _parsed(self) -> TableOptions:
        given = {name.lower() for name in self.options}
        inherited = {name: text for name, text in self.session_settings.items() if name.lower() not in given}
        return TableOptions.parse({**inherited, **self.options})


def table_source(settings: Mapping[str, str]) -> type[TableDataSource]:
    """Return the data source to register in a session that has these `fs.*` settings of Hadoop."""
    if not settings:
        return TableDataSource

    # Spark pickles a class that cannot be imported with its attributes.
    class SessionTableDataSource(TableDataSource):
        session_settings: ClassVar[Mapping[str, str]] = dict(settings)

    return SessionTableDataSource


@dataclass
class FilePartition(InputPartition):
    """Spark input partition: the data files that one task reads."""

    files: tuple[DataFile, ...]


class TableReader(DataSourceReader):
    """Reads the data files of one table version."""

    def __init__(self, options: TableOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        return [FilePartition(files) for files in pack_files(load_existing(open_format(self._options)).data_files())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # For a table without files Spark passes an input partition of its own.
        if isinstance(partition, FilePartition):
            schema = to_arrow_schema(self._schema, timezone="UTC")
            storage = open_storage(self._options.path, self._options.storage)
            for file in partition.files:
                yield from read_file(file, schema, storage)


def pack_files(files: Sequence[DataFile]) -> Iterator[tuple[DataFile, ...]]:
    """Group files into tasks of about `TASK_BYTES`."""
    group: list[DataFile] = []
    cost = 0
    for file in files:
        if group and cost + file.size_bytes + OPEN_COST_BYTES > TASK_BYTES:
            yield tuple(group)
            group, cost = [], 0
        group.append(file)
        cost += file.size_bytes + OPEN_COST_BYTES
    if group:
        yield tuple(group)


@dataclass(frozen=True)
class TableCommitMessage(WriterCommitMessage):
    """Commit message of a task: its files, their source offsets, and the identity of a batch write."""

    files: tuple[DataFile, ...]
    offsets: TableOffsets
    query_id: str | None
    identity: WriteIdentity | None = None


@dataclass(frozen=True, slots=True)
class WritePlan:
    """The parameters that a task needs to write files."""

    directory: str
    schema: pa.Schema
    partition_by: tuple[str, ...]
    partition_columns_in_files: bool
    file_bytes: int
    compression: str
    track_offsets: bool
    # Settings of the store of `directory`.
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    def run(self, batches: Iterator[pa.RecordBatch], storage: TableStorage | None = None) -> TableCommitMessage:
        """Write the rows of one task. On any exception its files are deleted.

        `storage` is the table's if the caller has opened it.
        """
        writer = TableFileWriter(
            self.directory,
            self.schema,
            self.partition_by,
            partition_columns_in_files=self.partition_columns_in_files,
            file_bytes=self.file_bytes,
            compression=self.compression,
            storage=storage or open_storage(self.directory, self.storage),
        )
        offsets: TableOffsets = {}
        try:
            for batch in gather_batches(batches):
                writer.write(batch)
                if self.track_offsets:
                    offsets = merge_offsets([offsets, next_offsets(batch)])
            files = writer.finish()
        except BaseException:
            writer.discard()
            raise
        return TableCommitMessage(tuple(files), offsets, _query_id())


class _PlannedWriter:
    """The part of a writer that is the same for both kinds of query."""

    def __init__(self, options: TableOptions, schema: StructType, overwrite: bool) -> None:
        self._options = options
        self._overwrite = overwrite
        self._plan = plan_write(options, schema, overwrite=overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._plan.run(iterator)

    @property
    def _storage(self) -> TableStorage:
        return open_storage(self._options.path, self._options.storage)

    @property
    def _upsert(self) -> UpsertWrite | None:
        options = self._options
        if options.upsert is None:
            return None
        return UpsertWrite(options.upsert, options.file_bytes, options.compression, options.track_offsets)

    def _delete_files(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self._options.upsert is not None:
            # Never part of the table, whether or not it was committed.
            delete_files([file.path for file in _files(_task_messages(messages))], self._storage)
        else:
            delete_unpublished(messages, self._storage)


class StreamTableWriter(_PlannedWriter, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a streaming query, each in one idempotent commit."""

    def __init__(self, options: TableOptions, schema: StructType, overwrite: bool) -> None:
        if options.batch_id is not None:
            raise OptionError("batch.id", "it is only for batch writes; a streaming query has its own batch ids")
        super().__init__(options, schema, overwrite)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        task_messages = _task_messages(messages)
        query_id = next((message.query_id for message in task_messages if message.query_id), None)
        publish(
            open_format(self._options),
            TableWrite(
                files=_files(task_messages),
                overwrite=self._overwrite,
                app_id=app_id_of(self._options, query_id),
                batch_id=batchId,
                query_id=query_id,
                offsets=merge_offsets(message.offsets for message in task_messages),
                upsert=self._upsert,
            ),
        )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        self._delete_files(messages)


class BatchTableWriter(_PlannedWriter, DataSourceArrowWriter):
    """Writes a batch query in one commit, which is idempotent if the write has an identity."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Raises OptionError if only one of `app.id` and `batch.id` is known."""
        identity = None
        # Repeating an overwrite changes nothing, so it takes part only if it is asked to.
        if not self._overwrite or self._options.batch_id is not None:
            identity = identify_write(self._options.app_id, self._options.batch_id)
        return replace(self._plan.run(iterator), identity=identity)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        task_messages = _task_messages(messages)
        identity = next((message.identity for message in task_messages), None)
        write = TableWrite(
            files=_files(task_messages),
            overwrite=self._overwrite,
            offsets=merge_offsets(message.offsets for message in task_messages),
            upsert=self._upsert,
        )
        publish(open_format(self._options), write if identity is None else replace(write, **identity._asdict()))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._delete_files(messages)


def plan_write(options: TableOptions, frame: StructType, *, overwrite: bool = False) -> WritePlan:
    """Create or extend the table for `frame`. Raises TableError or OptionError if it does not fit."""
    table = open_format(options)
    frame, stored = _stored(options, frame, table, overwrite=overwrite)
    version = _prepare(table, options, frame, stored)
    if not overwrite:
        _check_keys(options, version, table.root)
    if options.track_offsets and not overwrite and OFFSETS_KEY not in version.properties() and version.data_files():
        reason = "it has rows without source offsets; source.offsets=auto must be set from the first write on"
        raise TableError(table.root, reason)
    plan = WritePlan(
        directory=table.data_directory,
        schema=version.file_schema,
        partition_by=version.partition_by,
        partition_columns_in_files=table.partition_columns_in_files,
        file_bytes=options.file_bytes,
        compression=options.compression,
        track_offsets=options.track_offsets,
        storage=options.storage,
    )
    return plan if options.upsert is None else _plan_changes(plan, options.upsert.delete)


def _plan_changes(plan: WritePlan, delete: str | None) -> WritePlan:
    """Return the plan for files of changes: not partitioned, with the delete column, any column null in a delete."""
    fields = [column.with_nullable(True) for column in plan.schema]
    fields += [pa.field(delete, pa.bool_())] if delete is not None else []
    return replace(
        plan,
        schema=pa.schema(fields),
        partition_by=(),
        partition_columns_in_files=True,
        compression=CHANGES_COMPRESSION,
    )


def check_write(options: Mapping[str, str], frame: StructType) -> None:
    """Raise the TableError or OptionError that `plan_write` would raise, without creating or changing the table."""
    parsed = TableOptions.parse(options)
    table = open_format(parsed)
    frame, stored = _stored(parsed, frame, table, overwrite=False)
    # Opening the catalog of an Iceberg table on a local path creates it, so only an existing directory is loaded.
    is_new = store_of(table.root) is Store.LOCAL and not os.path.isdir(table.root)
    version = None if is_new else table.load()
    if version is None:
        check_partition_columns(stored, parsed.partition_by, table.root)
        return
    _check_partition_by(parsed, version, table.root)
    _check_keys(parsed, version, table.root)
    missing_columns(frame, stored, version.schema, table.root, add=parsed.add_columns)


def app_id_of(options: TableOptions, query_id: str | None) -> str:
    """Return the id of the writer: `app.id`, else the query's id, else a hash of the checkpoint's path.

    Raises OptionError if none is known.
    """
    if options.app_id or query_id:
        return options.app_id or query_id or ""
    if options.checkpoint:
        return hashlib.sha256(options.checkpoint.encode()).hexdigest()[:32]
    raise OptionError("app.id", "it is required, because neither query id nor checkpointLocation is known")


def delete_unpublished(messages: Sequence[WriterCommitMessage | None], storage: TableStorage = LOCAL) -> None:
    """Delete the files of a write whose commit was never attempted, which is the case if a task has no message.

    Otherwise the commit may have succeeded although it was reported as failed, so the files stay.
    """
    if any(message is None for message in messages):
        delete_files([file.path for file in _files(_task_messages(messages))], storage)


def _stored(
    options: TableOptions, frame: StructType, table: TableFormat, *, overwrite: bool
) -> tuple[StructType, pa.Schema]:
    """Return the columns of `frame` that the table stores, as a frame and as a table schema."""
    upsert = options.upsert
    if upsert is not None:
        if not table.can_upsert:
            reason = "upsert is for delta and iceberg: readers of plain parquet files would also see the replaced rows"
            raise OptionError("write.mode", reason)
        if overwrite:
            raise OptionError("write.mode", "upsert cannot be combined with overwrite, which replaces all rows")
        frame = upsert.stored(frame)
    stored = stored_schema(frame, table.root, small_integers=table.small_integers)
    if upsert is not None:
        upsert.check(stored)
    if options.track_offsets:
        _check_offset_columns(frame)
    return frame, stored


def _check_keys(options: TableOptions, version: TableVersion, table: str) -> None:
    """Raise TableError if the table's rows are upserted by a key and the options would not keep it unique."""
    keys = json.loads(version.properties().get(KEYS_KEY, "[]"))
    if not keys or (options.upsert is not None and keys == list(options.upsert.keys)):
        return
    given = "write.mode=append" if options.upsert is None else f"the key {', '.join(options.upsert.keys)}"
    raise TableError(table, f"its rows are upserted by the key {', '.join(keys)}, and {given} could duplicate them")


def _prepare(table: TableFormat, options: TableOptions, frame: StructType, stored: pa.Schema) -> TableVersion:
    """Return the newest version, after creating the table or adding the columns it lacks."""
    for _ in range(ATTEMPTS_MAX):
        version = table.load()
        if version is None:
            check_partition_columns(stored, options.partition_by, table.root)
            table.create(stored, options.partition_by)
            continue
        _check_partition_by(options, version, table.root)
        missing = missing_columns(frame, stored, version.schema, table.root, add=options.add_columns)
        if not missing:
            return version
        try:
            version.add_columns(missing)
        except (CommitConflictError, CommitUnknownError):
            continue
    raise TableError(table.root, f"{ATTEMPTS_MAX} attempts to add columns failed because other commits came first")


def _check_partition_by(options: TableOptions, version: TableVersion, table: str) -> None:
    if options.partition_by and options.partition_by != version.partition_by:
        actual = ",".join(version.partition_by) or "nothing"
        raise OptionError("partition.by", f"table {table!r} is partitioned by {actual}")


def _check_offset_columns(frame: StructType) -> None:
    topic, *numbers = offset_columns(frame.names)
    for name in (topic, *numbers):
        wanted = StringType if name == topic else IntegralType
        if name not in frame.names or not isinstance(frame[name].dataType, wanted):
            kind = "string" if wanted is StringType else "integer"
            raise OptionError("source.offsets", f"it needs a column {name!r} of type {kind}")


def _query_id() -> str | None:
    context = TaskContext.get()
    return context.getLocalProperty(QUERY_ID_PROPERTY) if context is not None else None


def _task_messages(messages: Sequence[WriterCommitMessage | None]) -> list[TableCommitMessage]:
    return [message for message in messages if isinstance(message, TableCommitMessage)]


def _files(messages: Sequence[TableCommitMessage]) -> list[DataFile]:
    return [file for message in messages for file in message.files]
