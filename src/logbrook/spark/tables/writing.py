"""How a task writes the files of a table.

Rows are gathered until they make a row group worth writing, one group per partition of the table, and a file ends when
it has the size that was asked for. Files are on disk before the driver hears of them, because a commit that outlives a
power cut must not name a file that does not. A file's name is never used twice.
"""

import os
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from logbrook.spark.tables.format import DataFile
from logbrook.spark.tables.partitions import PartitionValue, directory_of, split
from logbrook.spark.tables.schema import conform

ROW_GROUP_BYTES = 64 << 20
GATHERED_BYTES_MAX = 256 << 20
OPEN_FILES_MAX = 100


class TableFileWriter:
    """Writes record batches to files below `directory`. `finish` or `discard` must be the last call."""

    def __init__(
        self,
        directory: str,
        schema: pa.Schema,
        partition_by: Sequence[str],
        *,
        partition_columns_in_files: bool,
        file_bytes: int,
        compression: str,
    ) -> None:
        self._directory = directory
        self._schema = schema
        self._partition_by = tuple(partition_by)
        self._dropped = () if partition_columns_in_files else self._partition_by
        self._file_bytes = file_bytes
        self._group_bytes = min(ROW_GROUP_BYTES, file_bytes)
        self._compression = compression
        self._open: dict[str, _OpenFile] = {}
        self._finished: list[DataFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Take the rows of `batch`, whose columns may be in any order."""
        for values, piece in split(conform(batch, self._schema), self._partition_by):
            rows = piece.drop_columns(list(self._dropped)) if self._dropped else piece
            # Values may be large, and a batch has a number of rows and not of bytes.
            step = max(1, rows.num_rows * self._group_bytes // max(1, rows.nbytes))
            for start in range(0, rows.num_rows, step):
                self._gather(values, rows.slice(start, step))
        self._make_room()

    def finish(self) -> list[DataFile]:
        """End all files and say which there are."""
        for directory in list(self._open):
            self._end(directory)
        for directory in {os.path.dirname(file.path) for file in self._finished}:
            sync_directory(directory)
        return self._finished

    def discard(self) -> None:
        """Delete all files, which nobody has heard of yet."""
        for file in self._open.values():
            # A file that cannot be ended, as on a full disk, is deleted all the same.
            with suppress(OSError, pa.ArrowException):
                file.close()
        delete_files([file.path for file in self._open.values()] + [file.path for file in self._finished])

    def _gather(self, values: Mapping[str, PartitionValue], rows: pa.RecordBatch) -> None:
        directory = directory_of(values)
        file = self._open.pop(directory, None) or self._start(directory, values)
        # The files that were written last come last.
        self._open[directory] = file
        file.gather(rows)
        if file.gathered_bytes >= self._group_bytes:
            file.flush()
            if file.size_bytes >= self._file_bytes:
                self._end(directory)

    def _start(self, directory: str, values: Mapping[str, PartitionValue]) -> "_OpenFile":
        path = os.path.join(self._directory, directory)
        os.makedirs(path, exist_ok=True)
        dropped = [self._schema.get_field_index(name) for name in self._dropped]
        schema = pa.schema([field for index, field in enumerate(self._schema) if index not in dropped])
        return _OpenFile(os.path.join(path, f"{uuid.uuid4()}.parquet"), schema, values, self._compression)

    def _end(self, directory: str) -> None:
        self._finished.append(self._open.pop(directory).finish())

    def _make_room(self) -> None:
        while len(self._open) > OPEN_FILES_MAX:
            self._end(next(iter(self._open)))
        gathered_bytes = sum(file.gathered_bytes for file in self._open.values())
        if gathered_bytes > GATHERED_BYTES_MAX:
            for file in self._open.values():
                file.flush()


class _OpenFile:
    """A file that is being written, and the rows that are gathered for it."""

    def __init__(self, path: str, schema: pa.Schema, partition: Mapping[str, PartitionValue], compression: str) -> None:
        self.path = path
        self.gathered_bytes = 0
        self._schema = schema
        self._partition = dict(partition)
        self._gathered: list[Any] = []
        self._rows = 0
        self._footers: list[Any] = []
        self._sink = pa.OSFile(path, "wb")
        self._writer = pq.ParquetWriter(
            self._sink, schema, compression=compression.upper(), metadata_collector=self._footers
        )

    @property
    def size_bytes(self) -> int:
        return int(self._sink.tell())

    def gather(self, batch: pa.RecordBatch) -> None:
        self._gathered.append(batch)
        self._rows += batch.num_rows
        self.gathered_bytes += batch.nbytes

    def flush(self) -> None:
        """Write what is gathered as one row group."""
        if self._gathered:
            self._writer.write_table(pa.Table.from_batches(self._gathered, schema=self._schema))
        self._gathered, self.gathered_bytes = [], 0

    def finish(self) -> DataFile:
        self.flush()
        self.close()
        sync_file(self.path)
        return DataFile(self.path, os.path.getsize(self.path), self._rows, self._partition, self._footers[0])

    def close(self) -> None:
        self._writer.close()
        self._sink.close()


def delete_files(paths: Sequence[str]) -> int:
    """Delete the files that are still there, and say how many they were."""
    deleted = 0
    for path in paths:
        try:
            os.unlink(path)
        except FileNotFoundError:
            continue
        deleted += 1
    return deleted


def files_before(root: str, endings: tuple[str, ...], before: datetime) -> list[str]:
    """The files below `root` with one of these endings that have not changed since `before`."""
    found = []
    for directory, _, names in os.walk(root):
        found += [os.path.join(directory, name) for name in names if name.endswith(endings)]
    return [path for path in found if os.path.getmtime(path) <= before.timestamp()]


def sync_file(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: str) -> None:
    """Make the names in a directory outlive a power cut."""
    sync_file(path)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
