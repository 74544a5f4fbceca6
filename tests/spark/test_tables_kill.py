"""A driver that is killed for real between the table's commit and Spark's own.

Run as a script, this file is that driver.
"""

import os
import subprocess
import sys
from pathlib import Path
from signal import SIGKILL

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from logbrook.spark import session
from logbrook.spark.tables.source import TableDataSource
from logbrook.spark.tables.union import history
from logbrook.spark.tables.writer import StreamTableWriter

KILLED_BATCH = 1
TIMEOUT_S = 300


def test_a_driver_killed_after_the_tables_commit_writes_no_row_twice(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    for number in range(3):
        ids = range(number * 10, number * 10 + 10)
        pq.write_table(pa.table({"id": ids}), tmp_path / "source" / f"{number}.parquet")
    driver = subprocess.run([sys.executable, __file__, str(tmp_path)], timeout=TIMEOUT_S, check=False)
    assert driver.returncode == -SIGKILL
    # Spark has not noted the batch that is in the table.
    noted = [path.name for path in (tmp_path / "checkpoint" / "commits").iterdir() if path.name.isdecimal()]
    assert noted == ["0"]
    assert history(spark, str(tmp_path / "table")).count() == 20
    start(spark, tmp_path, "logbrook_table").awaitTermination()
    assert sorted(row.id for row in history(spark, str(tmp_path / "table")).collect()) == list(range(30))


def start(spark: SparkSession, directory: Path, name: str) -> StreamingQuery:
    frame = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(str(directory / "source"))
    writer = frame.writeStream.format(name).option("checkpointLocation", str(directory / "checkpoint"))
    return writer.trigger(availableNow=True).start(str(directory / "table"))


def run_until_killed(directory: Path) -> None:
    """Start the stream in a Spark of its own; does not return."""
    java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
    spark = session("killed", master="local[2]", conf={"spark.driver.extraJavaOptions": java})
    assert SparkContext._gateway is not None
    processes = (SparkContext._gateway.proc.pid, os.getpid())

    class KillingWriter(StreamTableWriter):
        def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
            super().commit(messages, batchId)
            if batchId == KILLED_BATCH:
                for process in processes:
                    os.kill(process, SIGKILL)

    class KillingTable(TableDataSource):
        @classmethod
        def name(cls) -> str:
            return "killing_table"

        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
            return KillingWriter(self._parsed(), schema, overwrite)

    spark.dataSource.register(KillingTable)
    start(spark, directory, "killing_table").awaitTermination()


if __name__ == "__main__":
    run_until_killed(Path(sys.argv[1]))
