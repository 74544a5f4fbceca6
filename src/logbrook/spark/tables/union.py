"""A topic's full history as one DataFrame: the rows of a table, and the newer records of the topic.

The offsets up to which the table holds the topic are in its newest commit. Rows and offsets are taken from one version,
so no row is duplicated or missing even while a stream writes to the table.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from logbrook.client import EARLIEST
from logbrook.spark.errors import SchemaMismatchError, TableError
from logbrook.spark.planner import Planner
from logbrook.spark.read_options import read_options
from logbrook.spark.tables.commits import (
    KEYS_KEY,
    OFFSETS_KEY,
    TableOffsets,
    load_existing,
    offsets_from_json,
    offsets_to_json,
)
from logbrook.spark.tables.files import files_from_json, files_to_json, read_file
from logbrook.spark.tables.format import DataFile, TableFormat, TableOptions, TableVersion, open_format
from logbrook.spark.tables.hadoop_settings import session_settings
from logbrook.spark.tables.location import Store, store_of
from logbrook.spark.tables.source import pack_files
from logbrook.spark.tables.storage import open_storage

TOPIC_FORMAT = "logbrook"


def history_and_tail(
    spark: SparkSession,
    table_path: str,
    topic_options: Mapping[str, str],
    *,
    shape: Callable[[DataFrame], DataFrame] | None = None,
    table_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the rows of the table, then those of the topic from the offsets in the table's newest commit.

    The table must have been written with `source.offsets=auto`. `topic_options` are those of the format `logbrook`.
    `shape` applies to the topic's rows the transformation that the stream into the table applied. Raises TableError if
    the table has no offsets or is upserted, SchemaMismatchError if columns differ.
    """
    parsed = _parsed(spark, table_path, table_options)
    table = open_format(parsed)
    version = load_existing(table)
    properties = version.properties()
    if KEYS_KEY in properties:
        raise TableError(table.root, "its rows are upserted by a key, and the records of the topic are changes of them")
    offsets = properties.get(OFFSETS_KEY)
    if offsets is None:
        raise TableError(table.root, "it has no source offsets, because it was not written with source.offsets=auto")
    options = {name: text for name, text in topic_options.items() if name.lower() != "startingoffsets"}
    starting = tail_start(options, offsets_from_json(offsets))
    tail = (
        spark.read.format(TOPIC_FORMAT).options(**options).option("startingOffsets", offsets_to_json(starting)).load()
    )
    if shape is not None:
        tail = shape(tail)
    rows = _rows(spark, table, version, parsed)
    _check_columns(tail, rows, table.root)
    return rows.union(tail.select(*rows.columns))


def history(spark: SparkSession, table_path: str, table_options: Mapping[str, str] | None = None) -> DataFrame:
    """Return the rows of the table's newest version, read by Spark's own Parquet reader if it is at a local path."""
    parsed = _parsed(spark, table_path, table_options)
    table = open_format(parsed)
    return _rows(spark, table, load_existing(table), parsed)


def tail_start(topic_options: Mapping[str, str], offsets: TableOffsets) -> TableOffsets:
    """Return the start of the tail for each subscribed partition; EARLIEST if the table has no rows of it."""
    with closing(Planner(read_options(topic_options, is_batch=True))) as planner:
        partitions = planner.partitions(planner.topics())
    starting: TableOffsets = {}
    for topic, number in partitions:
        starting.setdefault(topic, {})[number] = offsets.get(topic, {}).get(number, EARLIEST)
    return starting


def _parsed(spark: SparkSession, table_path: str, table_options: Mapping[str, str] | None) -> TableOptions:
    return TableOptions.parse({**session_settings(spark), **(table_options or {}), "path": table_path})


def _rows(spark: SparkSession, table: TableFormat, version: TableVersion, options: TableOptions) -> DataFrame:
    schema = from_arrow_schema(version.schema)
    # All columns nullable: Spark would trust NOT NULL without checking the files.
    schema = StructType([StructField(field.name, field.dataType) for field in schema])
    files = version.data_files()
    if not files:
        return spark.createDataFrame([], schema)
    if store_of(table.root) is not Store.LOCAL:
        return _rows_of_store(spark, files, schema, options)
    paths = [file.path for file in files]
    # If files contain the partition columns, keep Spark from also deriving them from directory names.
    layout = {"recursiveFileLookup": "true"} if table.partition_columns_in_files else {"basePath": table.root}
    rows = spark.read.schema(schema).options(**layout).parquet(*paths)
    return rows.select(*(f"`{name}`" for name in schema.names))


def _rows_of_store(
    spark: SparkSession, files: Sequence[DataFile], schema: StructType, options: TableOptions
) -> DataFrame:
    """Read the files in Python tasks: Spark's reader needs a JAR for each kind of object store."""
    groups = [(files_to_json(group),) for group in pack_files(files)]
    path, settings, columns = options.path, dict(options.storage), to_arrow_schema(schema, timezone="UTC")

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        storage = open_storage(path, settings)
        for batch in batches:
            for group in batch.column(0).to_pylist():
                for file in files_from_json(group, columns):
                    yield from read_file(file, columns, storage)

    return spark.createDataFrame(groups, "files string").repartition(len(groups)).mapInArrow(read, schema)


def _check_columns(tail: DataFrame, rows: DataFrame, table: str) -> None:
    tail_types = {field.name: field.dataType.simpleString() for field in tail.schema}
    for field in rows.schema:
        wanted = field.dataType.simpleString()
        if tail_types.get(field.name) != wanted:
            raise SchemaMismatchError(table, field.name, tail_types.get(field.name), wanted)
