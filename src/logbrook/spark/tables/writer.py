"""What Spark calls to write a table: planned on the driver, written by tasks, committed on the driver.

The plan is made before any task runs. It refuses a frame that does not fit, and creates the table or adds its columns,
so that the tasks know how the table wants its files. A plan's writer and the writer that commits are two objects in two
processes, and all that the second knows of the first is in the tasks' messages.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import IntegralType, StringType, StructType

from logbrook.spark.errors import OptionError
from logbrook.spark.tables.commits import ATTEMPTS_MAX, Write, publish
from logbrook.spark.tables.errors import CommitConflictError, TableError
from logbrook.spark.tables.format import DataFile, TableFormat, TableVersion
from logbrook.spark.tables.formats import open_format
from logbrook.spark.tables.offsets import OFFSET_COLUMNS, OFFSETS_KEY, Offsets, merge, next_offsets
from logbrook.spark.tables.options import TableOptions
from logbrook.spark.tables.partitions import check_partition_columns
from logbrook.spark.tables.schema import missing_columns, stored_schema
from logbrook.spark.tables.writing import TableFileWriter, delete_files

QUERY_ID_PROPERTY = "sql.streaming.queryId"


@dataclass(frozen=True)
class FilesWritten(WriterCommitMessage):
    """What a task tells the driver."""

    files: tuple[DataFile, ...]
    offsets: Offsets
    query_id: str | None


@dataclass(frozen=True, slots=True)
class WritePlan:
    """What a task must know."""

    directory: str
    schema: pa.Schema
    partition_by: tuple[str, ...]
    partition_columns_in_files: bool
    file_bytes: int
    compression: str
    track_offsets: bool

    def run(self, batches: Iterator[pa.RecordBatch]) -> FilesWritten:
        """Write the rows of one task; whatever is raised, no file of it is left."""
        writer = TableFileWriter(
            self.directory,
            self.schema,
            self.partition_by,
            partition_columns_in_files=self.partition_columns_in_files,
            file_bytes=self.file_bytes,
            compression=self.compression,
        )
        offsets: Offsets = {}
        try:
            for batch in batches:
                writer.write(batch)
                if self.track_offsets:
                    offsets = merge([offsets, next_offsets(batch)])
            files = writer.finish()
        except BaseException:
            writer.discard()
            raise
        return FilesWritten(tuple(files), offsets, _query_id())


class StreamTableWriter(DataSourceStreamArrowWriter):
    """Writes a stream's micro-batches, each of them once."""

    def __init__(self, options: TableOptions, schema: StructType, overwrite: bool) -> None:
        self._options = options
        self._overwrite = overwrite
        self._plan = plan_write(options, schema, overwrite=overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._plan.run(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        written = _written(messages)
        query_id = next((message.query_id for message in written if message.query_id), None)
        publish(
            open_format(self._options),
            Write(
                files=_files(written),
                overwrite=self._overwrite,
                app_id=app_id_of(self._options, query_id),
                batch_id=batchId,
                query_id=query_id,
                offsets=merge(message.offsets for message in written),
            ),
        )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        delete_unpublished(messages)


class BatchTableWriter(DataSourceArrowWriter):
    """Writes the rows of one batch query in one commit."""

    def __init__(self, options: TableOptions, schema: StructType, overwrite: bool) -> None:
        self._options = options
        self._overwrite = overwrite
        self._plan = plan_write(options, schema, overwrite=overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._plan.run(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        written = _written(messages)
        offsets = merge(message.offsets for message in written)
        publish(open_format(self._options), Write(_files(written), self._overwrite, offsets=offsets))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        delete_unpublished(messages)


def plan_write(options: TableOptions, frame: StructType, *, overwrite: bool = False) -> WritePlan:
    """Make the table ready for `frame`; raises TableError or OptionError when it does not fit."""
    table = open_format(options)
    stored = stored_schema(frame, table.root, small_integers=table.small_integers)
    if options.track_offsets:
        _check_offset_columns(frame)
    version = _prepare(table, options, frame, stored)
    if options.track_offsets and not overwrite and OFFSETS_KEY not in version.properties() and version.data_files():
        reason = "it has rows whose offsets nobody has noted, so that source.offsets=auto comes too late"
        raise TableError(table.root, reason)
    return WritePlan(
        directory=table.data_directory,
        schema=version.file_schema,
        partition_by=version.partition_by,
        partition_columns_in_files=table.partition_columns_in_files,
        file_bytes=options.file_bytes,
        compression=options.compression,
        track_offsets=options.track_offsets,
    )


def app_id_of(options: TableOptions, query_id: str | None) -> str:
    """Under which id the writer's batches are counted; raises OptionError when nothing stable is known."""
    if options.app_id or query_id:
        return options.app_id or query_id or ""
    if options.checkpoint:
        return hashlib.sha256(options.checkpoint.encode()).hexdigest()[:32]
    raise OptionError("app.id", "it is required, because neither the query nor its checkpoint is known")


def delete_unpublished(messages: Sequence[WriterCommitMessage | None]) -> None:
    """Delete the files of a write that failed before its commit was tried, which is when a task has no message.

    Otherwise the commit may have come through although it was reported as failed, so the files stay.
    """
    if any(message is None for message in messages):
        delete_files([file.path for file in _files(_written(messages))])


def _prepare(table: TableFormat, options: TableOptions, frame: StructType, stored: pa.Schema) -> TableVersion:
    """The newest version, with every column of the frame."""
    for _ in range(ATTEMPTS_MAX):
        version = table.load()
        if version is None:
            check_partition_columns(stored, options.partition_by, table.root)
            table.create(stored, options.partition_by)
            continue
        if options.partition_by and options.partition_by != version.partition_by:
            present = ",".join(version.partition_by) or "nothing"
            raise OptionError("partition.by", f"table {table.root!r} is partitioned by {present}")
        missing = missing_columns(frame, stored, version.schema, table.root, add=options.add_columns)
        if not missing:
            return version
        try:
            version.add_columns(missing)
        except CommitConflictError:
            continue
    raise TableError(table.root, f"{ATTEMPTS_MAX} times in a row another commit came first")


def _check_offset_columns(frame: StructType) -> None:
    for name in OFFSET_COLUMNS:
        wanted = StringType if name == "topic" else IntegralType
        if name not in frame.names or not isinstance(frame[name].dataType, wanted):
            kind = "string" if wanted is StringType else "whole number"
            raise OptionError("source.offsets", f"it needs a column {name!r} that is a {kind}")


def _query_id() -> str | None:
    context = TaskContext.get()
    return context.getLocalProperty(QUERY_ID_PROPERTY) if context is not None else None


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[FilesWritten]:
    return [message for message in messages if isinstance(message, FilesWritten)]


def _files(written: Sequence[FilesWritten]) -> list[DataFile]:
    return [file for message in written for file in message.files]
