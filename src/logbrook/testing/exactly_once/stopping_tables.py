"""The format `logbrook_table` with writers that stop at their commits as ordered; see `stops`.

Before the commit, all data files are written, those of an upsert are merged, and only the entry in the table's log is
missing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from logbrook.spark.tables import commits
from logbrook.spark.tables.format import TableChange, TableFormat, TableVersion
from logbrook.spark.tables.source import BatchTableWriter, StreamTableWriter, TableDataSource
from logbrook.testing.exactly_once.stops import StopOrders, StopPoint


def table_target(path: str) -> str:
    """Return the target of the table at SCENARIO/tables/NAME."""
    table = Path(path)
    return f"{table.parent.parent.name}-{table.name}"


@contextmanager
def stopping_commits(path: str) -> Iterator[None]:
    """Stop before and after each commit of the table at `path` during the block."""
    commit_change, target = commits.commit_change, table_target(path)

    def stop_and_commit(table: TableFormat, version: TableVersion, change: TableChange) -> None:
        orders = StopOrders.of_process()
        orders.wait_at(target, StopPoint.BEFORE_COMMIT)
        commit_change(table, version, change)
        orders.wait_at(target, StopPoint.AFTER_COMMIT)

    commits.commit_change = stop_and_commit
    try:
        yield
    finally:
        commits.commit_change = commit_change


class StoppingBatchTableWriter(BatchTableWriter):
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with stopping_commits(self._options.path):
            super().commit(messages)


class StoppingStreamTableWriter(StreamTableWriter):
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        with stopping_commits(self._options.path):
            super().commit(messages, batchId)


class StoppingTables(TableDataSource):
    """The data source that drivers of scenarios register instead of `TableDataSource`."""

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return StoppingBatchTableWriter(self._parsed(), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        return StoppingStreamTableWriter(self._parsed(), schema, overwrite)
