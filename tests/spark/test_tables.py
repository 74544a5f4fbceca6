"""Tables of all three formats, written and read by Spark."""

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from logbrook.spark.tables.commits import load_existing
from logbrook.spark.tables.format import TableOptions, TableVersion, open_format
from logbrook.spark.tables.maintenance import compact, vacuum
from logbrook.spark.tables.source import StreamTableWriter, TableDataSource
from logbrook.spark.tables.union import history
from tests.spark.limits import finish

LONG = pytest.mark.long
ROWS_PER_BATCH = 50
IDS = list(range(3 * ROWS_PER_BATCH))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A source of three files, which make three micro-batches, with ascending ids, each on one of two days."""
    directory = tmp_path_factory.mktemp("source")
    for number in range(3):
        ids = range(number * ROWS_PER_BATCH, (number + 1) * ROWS_PER_BATCH)
        days = [f"day {number % 2}" for number in ids]
        pq.write_table(pa.table({"id": list(ids), "day": days}), directory / f"{number}.parquet")
    return str(directory)


def start(
    spark: SparkSession, source: str, table: Path, checkpoint: Path, name: str = "logbrook_table", **options: str
) -> StreamingQuery:
    """Start a stream over the files of `source`, one per batch, that ends after the last one."""
    frame = spark.readStream.schema("id long, day string").option("maxFilesPerTrigger", 1).parquet(source)
    named = {option.replace("_", "."): text for option, text in options.items()}
    writer = frame.writeStream.format(name).options(**named).option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start(str(table))


def version_of(table: Path) -> TableVersion:
    return load_existing(open_format(TableOptions.parse({"path": str(table)})))


def ids_of(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.select("id").collect())


def read(spark: SparkSession, table: Path) -> DataFrame:
    """Read the table with a new frame, because a frame is bound to the version that it read first."""
    return spark.read.format("logbrook_table").load(str(table))


def crashing(before: int, after: int) -> type[TableDataSource]:
    """A table whose driver fails before the commit of one batch, and after the commit of another."""

    class CrashingWriter(StreamTableWriter):
        def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
            if batchId == before:
                raise RuntimeError("broken before the commit")
            super().commit(messages, batchId)
            if batchId == after:
                raise RuntimeError("broken after the commit")

    class CrashingTable(TableDataSource):
        @classmethod
        def name(cls) -> str:
            return "crashing_table"

        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
            return CrashingWriter(self._parsed(), schema, overwrite)

    return CrashingTable


# test_tables_kill.py kills a driver that writes tables of the other formats.
@pytest.mark.parametrize(
    "table_format", ["delta", pytest.param("iceberg", marks=LONG), pytest.param("parquet", marks=LONG)]
)
def test_every_row_exists_once_after_a_crash_before_or_after_the_commit_and_after_vacuum(
    spark: SparkSession, source: str, tmp_path: Path, table_format: str
) -> None:
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    options = {"table_format": table_format, "partition_by": "day"}
    for before, after, message in ((0, -1, "broken before the commit"), (-1, 1, "broken after the commit")):
        spark.dataSource.register(crashing(before, after))
        with pytest.raises(PySparkException, match=message):
            finish(start(spark, source, table, checkpoint, "crashing_table", **options))
    query = start(spark, source, table, checkpoint, **options)
    finish(query)
    version = version_of(table)
    assert version.batch_id_of(query.id) == 2
    assert sum(file.rows for file in version.data_files()) == len(IDS)
    assert ids_of(history(spark, str(table))) == IDS

    # The failed batch has left its files, and maintenance changes no row.
    live = {file.path for file in version.data_files()}
    assert {str(path) for path in table.rglob("*.parquet")} > live
    assert compact(str(table)).files_added == 2
    vacuum(str(table), timedelta(0), dry_run=False)
    assert len(list(table.rglob("*.parquet"))) == 2
    assert ids_of(read(spark, table)) == IDS


# tests/unit/spark/tables/test_formats.py appends to and overwrites tables of every format without Spark. Spark writes
# Delta above, and Iceberg in test_pipeline.py.
@pytest.mark.parametrize(
    "table_format", ["parquet", pytest.param("delta", marks=LONG), pytest.param("iceberg", marks=LONG)]
)
def test_a_batch_query_appends_overwrites_and_reads_back(
    spark: SparkSession, tmp_path: Path, table_format: str
) -> None:
    table = tmp_path / "table"
    frame = spark.sql(
        """select id, cast(id % 2 as string) as day, timestamp '2026-01-31 12:00:00.123456' as at,
           if(id = 0, null, array(struct(string(id) as key, binary(string(id)) as value))) as headers
           from range(0, 1000, 1, 2)"""
    )
    options = {"table.format": table_format, "partition.by": "day", "file.bytes": "1000"}
    frame.write.format("logbrook_table").options(**options).mode("append").save(str(table))
    assert read(spark, table).schema.simpleString() == frame.schema.simpleString()
    expected = sorted(frame.collect())
    assert sorted(read(spark, table).collect()) == expected
    assert sorted(history(spark, str(table)).collect()) == expected
    # Two tasks, two partitions, and more than one file of each.
    assert len(version_of(table).data_files()) > 4

    frame.where("id < 10").write.format("logbrook_table").mode("append").save(str(table))
    assert read(spark, table).where("day = '1' and id < 10").count() == 10
    frame.where("id < 7").write.format("logbrook_table").mode("overwrite").save(str(table))
    assert sorted(read(spark, table).collect()) == expected[:7]
    # Only the selected columns are read.
    narrow = spark.read.schema("headers array<struct<key: string, value: binary>>").format("logbrook_table")
    assert sorted(row.headers[0].key for row in narrow.load(str(table)).collect() if row.headers) == list("123456")


def test_streams_with_different_ids_share_a_table(spark: SparkSession, source: str, tmp_path: Path) -> None:
    table = tmp_path / "table"
    names = ("left", "right")
    for query in [start(spark, source, table, tmp_path / name, app_id=name) for name in names]:
        finish(query)
    assert ids_of(history(spark, str(table))) == sorted(IDS + IDS)
    assert [version_of(table).batch_id_of(name) for name in names] == [2, 2]
    # The same id with another checkpoint is not taken for a replay.
    with pytest.raises(PySparkException, match=r"batch 0 of app\.id 'left' was committed by query"):
        finish(start(spark, source, table, tmp_path / "new", app_id="left"))


def test_a_frame_that_does_not_fit_is_refused_and_a_new_column_added_where_allowed(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    spark.sql("select id, 'sunday' as day from range(200)").write.format("logbrook_table").mode("append").save(
        str(table)
    )
    files = sorted(table.rglob("*.parquet"))
    wrong = spark.sql("select string(id) as id, 'monday' as day from range(5)")
    message = f"table '{table}': column 'id' is string in the frame and is bigint in the table"
    with pytest.raises(PySparkException, match=message):
        wrong.write.format("logbrook_table").mode("append").save(str(table))
    wider = spark.sql("select id, 'monday' as day, 0.5D as price from range(200, 203)")
    with pytest.raises(PySparkException, match="column 'price' is double in the frame and is not in the table"):
        wider.write.format("logbrook_table").mode("append").save(str(table))
    assert sorted(table.rglob("*.parquet")) == files

    wider.write.format("logbrook_table").option("schema.evolution", "add").mode("append").save(str(table))
    for frame in (read(spark, table), history(spark, str(table))):
        assert [row.price for row in frame.orderBy("id").tail(4)] == [None, 0.5, 0.5, 0.5]
        assert frame.count() == 203


def test_an_unknown_option_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match=r"'partition\.bye': there is no such option; did you mean"):
        spark.range(1).write.format("logbrook_table").option("partition.bye", "x").mode("append").save(str(tmp_path))
    with pytest.raises(PySparkException, match="there is no such table"):
        spark.read.format("logbrook_table").load(str(tmp_path / "nothing"))
