"""Parquet data files of a table: written and read by tasks, deleted.

Rows are buffered per table partition until they fill a row group; a file is closed at its target size. Files are
durable before the task reports them, because a commit that survives a power failure must not reference a lost file.
File names are UUIDs and never reused.
"""

import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from logbrook.spark.arrow_batches import BYTES_MAX, ROWS_MAX, split_batch
from logbrook.spark.tables.format import DataFile
from logbrook.spark.tables.schema import PartitionValue, conform, partition_directory, split_by_partition
from logbrook.spark.tables.storage import LOCAL, FileSink, TableStorage

ROW_GROUP_BYTES = 64 << 20
BUFFERED_BYTES_MAX = 256 << 20
OPEN_FILES_MAX = 100


class TableFileWriter:
    """Writes record batches to files below `directory`. End with `finish` or `discard`. Not thread-safe."""

    def __init__(
        self,
        directory: str,
        schema: pa.Schema,
        partition_by: Sequence[str],
        *,
        partition_columns_in_files: bool,
        file_bytes: int,
        compression: str,
        storage: TableStorage = LOCAL,
    ) -> None:
        self._directory = directory
        self._storage = storage
        self._schema = schema
        self._partition_by = tuple(partition_by)
        self._dropped = () if partition_columns_in_files else self._partition_by
        self._file_bytes = file_bytes
        self._group_bytes = min(ROW_GROUP_BYTES, file_bytes)
        self._compression = compression
        self._open: dict[str, _OpenFile] = {}
        self._finished: list[DataFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the rows of `batch`, whose columns may be in any order."""
        for values, piece in split_by_partition(conform(batch, self._schema), self._partition_by):
            rows = piece.drop_columns(list(self._dropped)) if self._dropped else piece
            # A batch is bounded in rows, not bytes; slice it so that large values do not overflow a row group.
            step = max(1, rows.num_rows * self._group_bytes // max(1, rows.nbytes))
            for start in range(0, rows.num_rows, step):
                self._buffer(values, rows.slice(start, step))
        self._limit_memory()

    def finish(self) -> list[DataFile]:
        """Close all files, make them durable and return them."""
        for directory in list(self._open):
            self._end(directory)
        self._storage.sync_directories(sorted({os.path.dirname(file.path) for file in self._finished}))
        return self._finished

    def discard(self) -> None:
        """Delete all files; none of them is committed."""
        for file in self._open.values():
            file.discard()
        delete_files([file.path for file in self._finished], self._storage)

    def _buffer(self, values: Mapping[str, PartitionValue], rows: pa.RecordBatch) -> None:
        directory = partition_directory(values)
        file = self._open.pop(directory, None) or self._start(directory, values)
        # Keep the order of last use: `_limit_memory` closes the least recently used file.
        self._open[directory] = file
        file.append(rows)
        if file.buffered_bytes >= self._group_bytes:
            file.flush()
            if file.size_bytes >= self._file_bytes:
                self._end(directory)

    def _start(self, directory: str, values: Mapping[str, PartitionValue]) -> "_OpenFile":
        dropped = [self._schema.get_field_index(name) for name in self._dropped]
        schema = pa.schema([field for index, field in enumerate(self._schema) if index not in dropped])
        path = os.path.join(self._directory, directory, f"{uuid.uuid4()}.parquet")
        return _OpenFile(path, self._storage.create(path), schema, values, self._compression)

    def _end(self, directory: str) -> None:
        # If that fails, `discard` still knows the file.
        self._finished.append(self._open[directory].finish())
        del self._open[directory]

    def _limit_memory(self) -> None:
        while len(self._open) > OPEN_FILES_MAX:
            self._end(next(iter(self._open)))
        buffered_bytes = sum(file.buffered_bytes for file in self._open.values())
        if buffered_bytes > BUFFERED_BYTES_MAX:
            for file in self._open.values():
                file.flush()


class _OpenFile:
    """A file being written, and its buffered rows."""

    def __init__(
        self, path: str, sink: FileSink, schema: pa.Schema, partition: Mapping[str, PartitionValue], compression: str
    ) -> None:
        self.path = path
        self.buffered_bytes = 0
        self._schema = schema
        self._partition = dict(partition)
        self._buffered: list[Any] = []
        self._rows = 0
        self._footers: list[Any] = []
        self._sink = sink
        self._writer = pq.ParquetWriter(
            sink.stream, schema, compression=compression.upper(), metadata_collector=self._footers
        )

    @property
    def size_bytes(self) -> int:
        return int(self._sink.stream.tell())

    def append(self, batch: pa.RecordBatch) -> None:
        self._buffered.append(batch)
        self._rows += batch.num_rows
        self.buffered_bytes += batch.nbytes

    def flush(self) -> None:
        """Write the buffered rows as one row group."""
        if self._buffered:
            self._writer.write_table(pa.Table.from_batches(self._buffered, schema=self._schema))
        self._buffered, self.buffered_bytes = [], 0

    def finish(self) -> DataFile:
        self.flush()
        self._writer.close()
        return DataFile(self.path, self._sink.finish(), self._rows, self._partition, self._footers[0])

    def discard(self) -> None:
        # The writer of a full disk cannot write its footer.
        with suppress(OSError, pa.ArrowException):
            self._writer.close()
        self._sink.discard()


def delete_files(paths: Sequence[str], storage: TableStorage = LOCAL) -> int:
    """Delete the files that exist, and return their number."""
    return storage.delete(paths)


def files_before(root: str, endings: tuple[str, ...], before: datetime, storage: TableStorage = LOCAL) -> list[str]:
    """Return the files below `root` with one of `endings` that were not modified since `before`."""
    files = (file for file in storage.files(root) if file.path.endswith(endings))
    return [file.path for file in files if file.modified <= before]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def read_file(file: DataFile, schema: pa.Schema, storage: TableStorage = LOCAL) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `file` in the columns of `schema`.

    A column that the file lacks has the partition's value, or null if it was added after the file was written.
    """
    with pq.ParquetFile(storage.open(file.path, file.size_bytes), coerce_int96_timestamp_unit="us") as parquet:
        present = set(parquet.schema_arrow.names)
        # If the file has none of the columns, read one anyway for the number of rows.
        columns = [name for name in schema.names if name in present] or parquet.schema_arrow.names[:1]
        constants = [field for field in schema if field.name not in present and field.name in file.partition]
        for batch in parquet.iter_batches(_batch_rows(parquet.metadata), columns=columns):
            scalars = (pa.scalar(file.partition[field.name], field.type) for field in constants)
            arrays = [*batch.columns, *(pa.repeat(scalar, batch.num_rows) for scalar in scalars)]
            names = [*batch.schema.names, *(field.name for field in constants)]
            yield from split_batch(conform(pa.RecordBatch.from_arrays(arrays, names=names), schema))


def files_to_json(files: Sequence[DataFile]) -> str:
    """Return what a task needs to read the files, without their footers."""
    return json.dumps(
        [
            {
                "path": file.path,
                "size_bytes": file.size_bytes,
                "rows": file.rows,
                "partition": {
                    name: value.isoformat() if isinstance(value, date) else value
                    for name, value in file.partition.items()
                },
            }
            for file in files
        ]
    )


def files_from_json(text: str, schema: pa.Schema) -> list[DataFile]:
    """The inverse of `files_to_json` for a table with the columns of `schema`."""
    dates = {field.name for field in schema if pa.types.is_date32(field.type)}

    def value_of(name: str, value: Any) -> PartitionValue:
        result: PartitionValue = date.fromisoformat(value) if name in dates and value is not None else value
        return result

    return [
        DataFile(
            document["path"],
            document["size_bytes"],
            document["rows"],
            {name: value_of(name, value) for name, value in document["partition"].items()},
        )
        for document in json.loads(text)
    ]


def _batch_rows(metadata: pq.FileMetaData) -> int:
    """Return the rows of a batch of about `BYTES_MAX` bytes, by the average row of the file."""
    size_bytes = sum(int(metadata.row_group(number).total_byte_size) for number in range(metadata.num_row_groups))
    return min(ROWS_MAX, max(1, int(metadata.num_rows) * BYTES_MAX // max(1, size_bytes)))


def column_bounds(file: DataFile, name: str, storage: TableStorage = LOCAL) -> tuple[Any, Any] | None:
    """Return the least and the greatest value of a column, both None if it has no value; None if they are not known.

    `name` is a column of a type whose bounds Parquet compares as Arrow does: integers, strings, dates, timestamps.
    """
    footer = file.footer
    if footer is None:
        footer = pq.read_metadata(storage.open(file.path, file.size_bytes))
    positions = [number for number in range(footer.num_columns) if footer.schema.column(number).path == name]
    bounds = []
    for number in range(footer.num_row_groups if positions else 0):
        column = footer.row_group(number).column(positions[0])
        stats = column.statistics
        if stats is None or not stats.has_null_count:
            return None
        if stats.null_count == column.num_values:
            continue
        if not stats.has_min_max:
            return None
        bounds.append((stats.min, stats.max))
    if not bounds:
        return None, None
    return min(low for low, _ in bounds), max(high for _, high in bounds)
