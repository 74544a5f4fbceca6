"""Spark's format `logbrook_table`: a table that is written exactly once, and read back.

The reader is for convenience. Spark's own Parquet reader over the same files is several times faster, which is what
`logbrook.spark.tables.union.history` uses.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from logbrook.spark.tables.commits import loaded
from logbrook.spark.tables.format import DataFile
from logbrook.spark.tables.formats import open_format
from logbrook.spark.tables.options import TableOptions
from logbrook.spark.tables.reading import read_file
from logbrook.spark.tables.writer import BatchTableWriter, StreamTableWriter

TASK_BYTES = 64 << 20
# What opening a file costs, in bytes that could be read meanwhile; Spark's own estimate.
OPEN_COST_BYTES = 4 << 20


class TableDataSource(DataSource):
    """The format `logbrook_table`; its options are those of TableOptions."""

    @classmethod
    def name(cls) -> str:
        return "logbrook_table"

    def schema(self) -> StructType:
        return from_arrow_schema(loaded(open_format(self._parsed())).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        return TableReader(self._parsed(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return BatchTableWriter(self._parsed(), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        return StreamTableWriter(self._parsed(), schema, overwrite)

    def _parsed(self) -> TableOptions:
        return TableOptions.parse(self.options)


@dataclass
class FilePartition(InputPartition):
    """Some files of the table, which one task reads."""

    files: tuple[DataFile, ...]


class TableReader(DataSourceReader):
    """Reads a table file by file, all of one version."""

    def __init__(self, options: TableOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        return [FilePartition(files) for files in packed(loaded(open_format(self._options)).data_files())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # An empty table still has one partition, which is not ours.
        if isinstance(partition, FilePartition):
            schema = to_arrow_schema(self._schema, timezone="UTC")
            for file in partition.files:
                yield from read_file(file, schema)


def packed(files: Sequence[DataFile]) -> Iterator[tuple[DataFile, ...]]:
    """The files in groups that are worth a task each."""
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
