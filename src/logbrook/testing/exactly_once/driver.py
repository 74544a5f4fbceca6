"""The query of a campaign: `python -m logbrook.testing.exactly_once.driver SERVERS DIRECTORY`.

It copies the committed records of `input` to `output` and exits, unless it is killed before. Its workers record when
they begin to write, and kill themselves at the points that the campaign orders.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from logbrook.client import TransactionalProducer
from logbrook.protocol.messages.end_txn import EndTxnResponse
from logbrook.spark import session
from logbrook.spark.source import LogbrookDataSource
from logbrook.spark.writer import TopicCommitMessage, TopicStreamArrowWriter, stream_writer
from logbrook.testing.exactly_once.control_files import VARIABLE, ControlFiles, KillPoint, TaskWrite

# Options for a JVM that runs for seconds: no optimising compiler, no class verification.
QUICK_JAVA = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)
INPUT = "input"
OUTPUT = "output"
# Small micro-batches while processes are killed, large ones otherwise.
RECORDS_PER_BATCH = 60
_RECORDS_PER_QUIET_BATCH = 100_000
# Two threads; a task may fail up to 8 times before the query does.
MASTER = "local[2,8]"


class KillableProducer(TransactionalProducer):
    """Kills its process at the ordered points."""

    def _request_end(self, is_commit: bool) -> EndTxnResponse:
        _kill_if_ordered(KillPoint.BEFORE_END)
        answer = super()._request_end(is_commit)
        _kill_if_ordered(KillPoint.AFTER_END)
        return answer


class KillableWriter(TopicStreamArrowWriter):
    """The sink's writer with a `KillableProducer`."""

    def write(self, iterator: Iterator[Any]) -> TopicCommitMessage:
        from logbrook.spark import exactly_once  # noqa: PLC0415 - imported in tasks only, as the sink does

        part = exactly_once.current_task_batch(self.options)
        ControlFiles.of_worker().record_write(TaskWrite(os.getpid(), part.batch_id, part.task))
        exactly_once.PRODUCER = KillableProducer
        return super().write(iterator)


class KillableSink(LogbrookDataSource):
    """The format `killable`: `logbrook` with `KillableWriter`s."""

    @classmethod
    def name(cls) -> str:
        return "killable"

    def streamWriter(self, schema: StructType, overwrite: bool) -> KillableWriter:  # noqa: N802 - Spark's name
        return KillableWriter(stream_writer(dict(self.options), schema, overwrite).options)


def start_copy(
    spark: SparkSession, servers: str, control: ControlFiles, *, is_killable: bool = False
) -> StreamingQuery:
    """Copy the available records per partition and in order, starting at the checkpoint."""
    sink, records = (KillableSink.name(), RECORDS_PER_BATCH) if is_killable else ("logbrook", _RECORDS_PER_QUIET_BATCH)
    reader = spark.readStream.format("logbrook").option("kafka.bootstrap.servers", servers).option("subscribe", INPUT)
    reader = reader.option("startingOffsets", "earliest").option("isolation.level", "read_committed")
    frame = reader.option("maxOffsetsPerTrigger", records).load().select("key", "value", "partition")
    writer = frame.writeStream.format(sink).option("kafka.bootstrap.servers", servers).option("topic", OUTPUT)
    writer = writer.option("delivery", "exactly-once").option("checkpointLocation", str(control.checkpoint))
    return writer.trigger(availableNow=True).start()


def _kill_if_ordered(point: KillPoint) -> None:
    if ControlFiles.of_worker().take_order(point):
        os.kill(os.getpid(), SIGKILL)


def quick_settings(temporary: str) -> dict[str, str]:
    """Settings of a local Spark that starts quickly and writes below `temporary`."""
    return {
        "spark.driver.extraJavaOptions": " ".join((*QUICK_JAVA, f"-Djava.io.tmpdir={temporary}")),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": f"{temporary}/local",
        "spark.sql.warehouse.dir": f"{temporary}/warehouse",
    }


def stop(spark: SparkSession) -> None:
    """Stop Spark, and wait for its JVM so that the process group is empty."""
    gateway = SparkContext._gateway
    spark.stop()
    assert gateway is not None
    gateway.shutdown()
    # The JVM exits at the end of its standard input.
    gateway.proc.stdin.close()
    gateway.proc.wait()


def main() -> int:
    servers, directory = sys.argv[1:]
    os.environ[VARIABLE] = directory
    spark = session("exactly-once", master=MASTER, conf=quick_settings(os.environ["TMPDIR"]))
    spark.dataSource.register(KillableSink)
    start_copy(spark, servers, ControlFiles(Path(directory)), is_killable=True).awaitTermination()
    stop(spark)
    return 0


if __name__ == "__main__":
    sys.exit(main())
