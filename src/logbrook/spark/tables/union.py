"""A topic's whole history as one frame: the rows of a table, and those that came after them from the topic itself.

Where the table ends stands in its newest commit, so that no row is there twice and none is missing, whatever the
stream that fills the table is doing at the moment. Rows and offsets are of one version of the table.
"""

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from logbrook.client import EARLIEST
from logbrook.spark.planner import Planner
from logbrook.spark.read_options import read_options
from logbrook.spark.tables.commits import loaded
from logbrook.spark.tables.errors import SchemaMismatchError, TableError
from logbrook.spark.tables.format import TableFormat, TableVersion
from logbrook.spark.tables.formats import open_format
from logbrook.spark.tables.offsets import OFFSETS_KEY, Offsets, from_json, to_json
from logbrook.spark.tables.options import TableOptions

TOPIC_FORMAT = "logbrook"


def history_and_tail(
    spark: SparkSession,
    table_path: str,
    topic_options: Mapping[str, str],
    *,
    shape: Callable[[DataFrame], DataFrame] | None = None,
    table_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The rows of the table, then those of the topic from the offsets on that the table's newest commit holds.

    The table must have been written with `source.offsets=auto`. `topic_options` are those of the format `logbrook`.
    `shape` does to the topic's rows what was done to them on their way into the table. Raises TableError when the table
    holds no offsets, and SchemaMismatchError when the two do not have the same columns.
    """
    table = open_format(TableOptions.parse({**(table_options or {}), "path": table_path}))
    version = loaded(table)
    offsets = version.properties().get(OFFSETS_KEY)
    if offsets is None:
        raise TableError(table.root, "it holds no offsets, because it was not written with source.offsets=auto")
    options = {name: text for name, text in topic_options.items() if name.lower() != "startingoffsets"}
    starting = tail_start(options, from_json(offsets))
    tail = spark.read.format(TOPIC_FORMAT).options(**options).option("startingOffsets", to_json(starting)).load()
    if shape is not None:
        tail = shape(tail)
    rows = _rows(spark, table, version)
    _check_columns(tail, rows, table.root)
    return rows.union(tail.select(*rows.columns))


def history(spark: SparkSession, table_path: str, table_options: Mapping[str, str] | None = None) -> DataFrame:
    """The rows of the table's newest version, read by Spark's own Parquet reader."""
    table = open_format(TableOptions.parse({**(table_options or {}), "path": table_path}))
    return _rows(spark, table, loaded(table))


def tail_start(topic_options: Mapping[str, str], offsets: Offsets) -> Offsets:
    """Where the tail of each partition that is read starts: at its first record where the table has none of it."""
    planner = Planner(read_options(topic_options, is_batch=True))
    try:
        partitions = planner.partitions(planner.topics())
    finally:
        planner.close()
    starting: Offsets = {}
    for topic, number in partitions:
        starting.setdefault(topic, {})[number] = offsets.get(topic, {}).get(number, EARLIEST)
    return starting


def _rows(spark: SparkSession, table: TableFormat, version: TableVersion) -> DataFrame:
    schema = from_arrow_schema(version.schema)
    # Whether a file may hold null in a column is not worth a check here, and Spark would trust it.
    schema = StructType([StructField(field.name, field.dataType) for field in schema])
    paths = [file.path for file in version.data_files()]
    if not paths:
        return spark.createDataFrame([], schema)
    # Without this Spark takes the columns of a partition from the names of directories, which it should do only then
    # when they are not in the files.
    layout = {"recursiveFileLookup": "true"} if table.partition_columns_in_files else {"basePath": table.root}
    rows = spark.read.schema(schema).options(**layout).parquet(*paths)
    return rows.select(*(f"`{name}`" for name in schema.names))


def _check_columns(tail: DataFrame, rows: DataFrame, table: str) -> None:
    present = {field.name: field.dataType.simpleString() for field in tail.schema}
    for field in rows.schema:
        wanted = field.dataType.simpleString()
        if present.get(field.name) != wanted:
            raise SchemaMismatchError(table, field.name, present.get(field.name), wanted)
