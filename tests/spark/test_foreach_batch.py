"""Writes inside `foreachBatch` to tables and topics, repeated after a failure."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.readwriter import DataFrameWriter

from logbrook import Broker
from logbrook.spark.tables.union import history
from tests.spark.limits import finish

ROWS_PER_BATCH = 50
IDS = list(range(2 * ROWS_PER_BATCH))
WriteBatch = Callable[[DataFrame, int], None]


class BatchTarget:
    """Two micro-batches of files, and a table and a topic to write them to."""

    def __init__(self, spark: SparkSession, broker: Broker, topic: str, directory: Path) -> None:
        self._spark = spark
        self._servers = broker.bootstrap_servers
        self.topic = topic
        self._directory = directory
        broker.create_topic(topic, 1)
        (directory / "source").mkdir()
        for number in range(2):
            ids = range(number * ROWS_PER_BATCH, (number + 1) * ROWS_PER_BATCH)
            pq.write_table(pa.table({"id": ids}), directory / "source" / f"{number}.parquet")

    def run(self, write_batch: WriteBatch) -> None:
        frame = self._spark.readStream.schema("id long").option("maxFilesPerTrigger", 1)
        rows = frame.parquet(str(self._directory / "source"))
        writer = rows.writeStream.foreachBatch(write_batch)
        writer = writer.option("checkpointLocation", str(self._directory / "checkpoint"))
        finish(writer.trigger(availableNow=True).start())

    def append(self, rows: DataFrame, table: str = "table", **options: str) -> None:
        self._writer(rows, "logbrook_table", options).save(str(self._directory / table))

    def send(self, rows: DataFrame, **options: str) -> None:
        servers = {"kafka.bootstrap.servers": self._servers, "topic": self.topic, "delivery": "exactly-once"}
        self._writer(rows.selectExpr("string(id) AS value"), "logbrook", options).options(**servers).save()

    def ids(self, table: str = "table") -> list[int]:
        return sorted(row.id for row in history(self._spark, str(self._directory / table)).collect())

    def sent(self) -> list[int]:
        options = {"kafka.bootstrap.servers": self._servers, "subscribe": self.topic}
        reader = self._spark.read.format("logbrook").options(**options).option("isolation.level", "read_committed")
        return sorted(int(row.value) for row in reader.load().collect())

    def _writer(self, rows: DataFrame, name: str, options: dict[str, str]) -> DataFrameWriter:
        named = {option.replace("_", "."): text for option, text in options.items()}
        return rows.write.format(name).options(**named).mode("append")


@pytest.fixture
def target(spark: SparkSession, broker: Broker, topic: str, tmp_path: Path) -> BatchTarget:
    return BatchTarget(spark, broker, topic, tmp_path)


def test_a_batch_that_fails_after_its_writes_is_written_once(target: BatchTarget) -> None:
    failures = [0, 1]

    def write_batch(rows: DataFrame, batch_id: int) -> None:
        target.append(rows)
        target.append(rows, "explicit", app_id="app", batch_id=str(batch_id))
        target.send(rows)
        if batch_id in failures:
            failures.remove(batch_id)
            raise RuntimeError("failed after the writes")

    for _ in range(2):
        with pytest.raises(PySparkException, match="failed after the writes"):
            target.run(write_batch)
    target.run(write_batch)
    assert target.ids() == IDS
    assert target.ids("explicit") == IDS
    assert target.sent() == IDS


def test_a_second_write_of_a_batch_needs_its_own_app_id(target: BatchTarget) -> None:
    def write_twice(rows: DataFrame, _: int) -> None:
        target.append(rows.where("id % 2 = 0"))
        target.append(rows.where("id % 2 = 1"))

    def send_twice(rows: DataFrame, _: int) -> None:
        target.send(rows.where("id % 2 = 0"))
        target.send(rows.where("id % 2 = 1"))

    # A restart does not take the second write for a repetition of the first either.
    for write_batch in (write_twice, write_twice, send_twice):
        with pytest.raises(PySparkException, match="already written"):
            target.run(write_batch)

    def write_under_own_ids(rows: DataFrame, _: int) -> None:
        target.append(rows.where("id % 2 = 0"))
        target.append(rows.where("id % 2 = 1"), app_id="odd")
        target.send(rows.where("id % 2 = 0"))
        target.send(rows.where("id % 2 = 1"), app_id=f"{target.topic}-odd")

    target.run(write_under_own_ids)
    assert target.ids() == IDS
    assert target.sent() == IDS
