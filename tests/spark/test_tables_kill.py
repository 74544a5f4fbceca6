"""A driver that is killed for real at each step of a micro-batch of a table.

Run as a script, this file is that driver. It has a query for each case in one Spark. The second batch of
each stops at its step, and when all have stopped, the JVM and the driver are killed.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum
from functools import reduce
from pathlib import Path
from signal import SIGKILL
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import SparkContext, TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.functions import lit
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from logbrook.spark import session
from logbrook.spark.tables.commits import load_existing
from logbrook.spark.tables.format import TableOptions, TableVersion, open_format
from logbrook.spark.tables.maintenance import vacuum
from logbrook.spark.tables.source import StreamTableWriter, TableDataSource
from logbrook.spark.tables.union import history
from tests.interop.waiting import wait_until
from tests.spark.limits import finish
from tests.spark.settings import settings

ROOT = Path(__file__).parents[2]
BATCH_ID_PROPERTY = "streaming.sql.batchId"
KILLED_BATCH = 1
BATCHES = 2
ROWS = 10
TIMEOUT_S = 200.0


class Step(StrEnum):
    """The step of a batch at which the driver is killed."""

    WRITING = "while-a-task-writes"
    WITHIN = "within-the-commit"
    AFTER = "after-the-commit"


# Until its commit a write is the same in every format, and a driver that is killed within the commit has left all that
# one killed before it leaves. Within the commit of Delta is one call of delta-rs, so it cannot be stopped there. After
# the commit each format's record of the batch counts. `test_tables.py` crashes before and after the commit as well.
CASES = [
    ("parquet", Step.WRITING),
    ("iceberg", Step.WITHIN),
    ("parquet", Step.WITHIN),
    ("delta", Step.AFTER),
]


class Case:
    """A query: its table, its checkpoint, and the file that reports that it has stopped."""

    def __init__(self, directory: Path, table_format: str, step: Step) -> None:
        self.table_format = table_format
        self.step = step
        self._directory = directory
        place = directory / f"{table_format}-{step}"
        self.table, self.checkpoint, self.stopped = place / "table", place / "checkpoint", place / "stopped"

    @classmethod
    def of_table(cls, table: str) -> "Case":
        place = Path(table).parent
        table_format, _, step = place.name.partition("-")
        return cls(place.parent, table_format, Step(step))

    def start(self, spark: SparkSession, name: str) -> StreamingQuery:
        source = str(self._directory / "source")
        frame = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(source)
        options = {"table.format": self.table_format, "checkpointLocation": str(self.checkpoint)}
        writer = frame.writeStream.format(name).options(**options)
        return writer.trigger(availableNow=True).start(str(self.table))

    def run_until_stopped(self, spark: SparkSession) -> None:
        query = self.start(spark, StoppingTable.name())
        wait_until(lambda: self.stopped.exists() or not query.isActive, f"that {self.table} waits", TIMEOUT_S)

    def stop_here(self) -> NoReturn:
        """Report the stop, and wait to be killed."""
        self.stopped.touch()
        with open(self._directory / "killed", "rb") as killed:
            killed.read()
        os._exit(1)

    def version(self) -> TableVersion:
        return load_existing(open_format(TableOptions.parse({"path": str(self.table)})))


@pytest.mark.long
def test_a_driver_killed_at_any_step_leaves_every_row_to_be_written_once(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    for number in range(BATCHES):
        ids = range(number * ROWS, (number + 1) * ROWS)
        pq.write_table(pa.table({"id": ids}), tmp_path / "source" / f"{number}.parquet")
    cases = [Case(tmp_path, table_format, step) for table_format, step in CASES]
    kill_when_all_have_stopped(tmp_path, cases)
    for case in cases:
        # Spark has recorded the first batch only, and the table has the second only if its commit was complete.
        noted = [path.name for path in (case.checkpoint / "commits").iterdir() if path.name.isdecimal()]
        assert noted == ["0"], case.table
        expected = ROWS * 2 if case.step is Step.AFTER else ROWS
        assert sum(file.rows for file in case.version().data_files()) == expected, case.table
    for case in cases:
        query = case.start(spark, "logbrook_table")
        finish(query)
        assert case.version().batch_id_of(str(query.id)) == BATCHES - 1, case.table
    everything = {str(case.table): list(range(BATCHES * ROWS)) for case in cases}
    assert ids_by_table(spark, cases) == everything
    for case in cases:
        # Files of the killed driver are not part of the table, and are removed.
        vacuum(str(case.table), timedelta(0), dry_run=False)
        assert {str(path) for path in case.table.rglob("*.parquet")} == {
            file.path for file in case.version().data_files()
        }
        assert not list(case.table.rglob("*.draft"))
    assert ids_by_table(spark, cases) == everything


def ids_by_table(spark: SparkSession, cases: list[Case]) -> dict[str, list[int]]:
    """Return the ids in each table, read in one job."""
    frames = [history(spark, str(case.table)).select("id", lit(str(case.table)).alias("table")) for case in cases]
    ids_of: dict[str, list[int]] = {}
    for row in reduce(DataFrame.unionByName, frames).collect():
        ids_of.setdefault(row.table, []).append(row.id)
    return {table: sorted(ids) for table, ids in ids_of.items()}


def kill_when_all_have_stopped(directory: Path, cases: list[Case]) -> None:
    os.mkfifo(directory / "killed")
    # Readers wait as long as another process may write there.
    never_written = os.open(directory / "killed", os.O_RDWR)
    command = [sys.executable, "-m", "tests.spark.test_tables_kill", str(directory)]
    with TemporaryDirectory(prefix="logbrook-spark-") as temporary:
        environment = os.environ | {"TMPDIR": temporary}
        with open(directory / "log", "wb") as log:
            driver = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stderr=log)
        try:
            wait_until(
                lambda: driver.poll() is not None or all(case.stopped.exists() for case in cases),
                f"that all of {len(cases)} queries stop at their steps",
                TIMEOUT_S,
            )
            driver.communicate(b"now", timeout=TIMEOUT_S)
        finally:
            driver.kill()
            driver.wait(TIMEOUT_S)
            os.close(never_written)
    assert driver.returncode == -SIGKILL, (directory / "log").read_text()
    assert all(case.stopped.exists() for case in cases)


def run_until_killed(directory: Path) -> None:
    """Run all cases in one Spark session until the process is killed; does not return."""
    # A stopped task occupies a slot.
    conf = settings(os.environ["TMPDIR"])
    spark = session("killed", master=f"local[{2 + len(CASES)}]", conf=conf)
    spark.dataSource.register(StoppingTable)
    # One after the other, so that Spark uses its Python processes again, which take longer to start than to work.
    for table_format, step in CASES:
        Case(directory, table_format, step).run_until_stopped(spark)
    sys.stdin.read()
    assert SparkContext._gateway is not None
    java = SparkContext._gateway.proc
    java.kill()
    java.wait(TIMEOUT_S)
    os.kill(os.getpid(), SIGKILL)


class StoppingWriter(StreamTableWriter):
    """Stops in the second batch, at the step that is part of the table's path."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        case = Case.of_table(self._options.path)
        if context.getLocalProperty(BATCH_ID_PROPERTY) == str(KILLED_BATCH) and case.step is Step.WRITING:
            return super().write(_first_of(iterator, case))
        return super().write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        case = Case.of_table(self._options.path)
        if batchId != KILLED_BATCH:
            super().commit(messages, batchId)
            return
        if case.step is Step.WITHIN:
            _stop_at_the_last_step(case)
        super().commit(messages, batchId)
        case.stop_here()


class StoppingTable(TableDataSource):
    @classmethod
    def name(cls) -> str:
        return "stopping_table"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return StoppingWriter(self._parsed(), schema, overwrite)


def _first_of(iterator: Iterator[pa.RecordBatch], case: Case) -> Iterator[pa.RecordBatch]:
    yield next(iterator)
    case.stop_here()


def _stop_at_the_last_step(case: Case) -> None:
    """Stop when all files of the commit are on disk, before the operation that publishes them."""

    def stop(*_: Any) -> NoReturn:
        case.stop_here()

    if case.table_format == "parquet":
        os.link = stop  # type: ignore[assignment]
        return
    from sqlalchemy import Engine, event  # noqa: PLC0415 - only where Iceberg is

    event.listen(Engine, "commit", stop)


if __name__ == "__main__":
    run_until_killed(Path(sys.argv[1]))
