"""The query of a campaign: `python -m logbrook.testing.exactly_once.driver SERVERS DIRECTORY`.

It copies what is committed in `input` to `output` and ends, unless somebody ends it before. Its workers say when they
begin to write, and die where they are told to.
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
from logbrook.spark.writer import TopicStreamArrowWriter, Written, stream_writer
from logbrook.testing.exactly_once.java import QUICK_JAVA
from logbrook.testing.exactly_once.scene import VARIABLE, Scene, Step, Writing

INPUT = "input"
OUTPUT = "output"
# Few, so that there are many micro-batches to be killed in; and more when nobody is.
RECORDS_PER_BATCH = 60
_RECORDS_PER_QUIET_BATCH = 100_000
# A task may fail often before the query does.
MASTER = "local[2,8]"


class MortalProducer(TransactionalProducer):
    """Dies with its process at the steps that the scene orders."""

    def _request_end(self, is_commit: bool) -> EndTxnResponse:
        _die_if_ordered(Step.BEFORE_END)
        answer = super()._request_end(is_commit)
        _die_if_ordered(Step.AFTER_END)
        return answer


class MortalWriter(TopicStreamArrowWriter):
    """The sink's, with a producer that dies when it is told to."""

    def write(self, iterator: Iterator[Any]) -> Written:
        from logbrook.spark import exactly_once  # noqa: PLC0415 - as the sink's own, where tasks run and nowhere else

        part = exactly_once.current_part(self.options)
        Scene.of_worker().note_begin(Writing(os.getpid(), part.batch_id, part.task))
        exactly_once.PRODUCER = MortalProducer
        return super().write(iterator)


class MortalSink(LogbrookDataSource):
    """The format `mortal`: `logbrook` with mortal writers."""

    @classmethod
    def name(cls) -> str:
        return "mortal"

    def streamWriter(self, schema: StructType, overwrite: bool) -> MortalWriter:  # noqa: N802 - Spark's name
        return MortalWriter(stream_writer(dict(self.options), schema, overwrite).options)


def start_copy(spark: SparkSession, servers: str, scene: Scene, *, is_mortal: bool = False) -> StreamingQuery:
    """Copy what there is now, partition by partition and in order, from where the checkpoint has got to."""
    sink, records = (MortalSink.name(), RECORDS_PER_BATCH) if is_mortal else ("logbrook", _RECORDS_PER_QUIET_BATCH)
    reader = spark.readStream.format("logbrook").option("kafka.bootstrap.servers", servers).option("subscribe", INPUT)
    reader = reader.option("startingOffsets", "earliest").option("isolation.level", "read_committed")
    frame = reader.option("maxOffsetsPerTrigger", records).load().select("key", "value", "partition")
    writer = frame.writeStream.format(sink).option("kafka.bootstrap.servers", servers).option("topic", OUTPUT)
    writer = writer.option("delivery", "exactly-once").option("checkpointLocation", str(scene.checkpoint))
    return writer.trigger(availableNow=True).start()


def _die_if_ordered(step: Step) -> None:
    if Scene.of_worker().take_order(step):
        os.kill(os.getpid(), SIGKILL)


def main() -> int:
    servers, directory = sys.argv[1:]
    os.environ[VARIABLE] = directory
    conf = {
        "spark.driver.extraJavaOptions": " ".join((*QUICK_JAVA, f"-Djava.io.tmpdir={os.environ['TMPDIR']}")),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": f"{os.environ['TMPDIR']}/local",
        "spark.sql.warehouse.dir": f"{os.environ['TMPDIR']}/warehouse",
    }
    spark = session("exactly-once", master=MASTER, conf=conf)
    spark.dataSource.register(MortalSink)
    start_copy(spark, servers, Scene(Path(directory)), is_mortal=True).awaitTermination()
    gateway = SparkContext._gateway
    spark.stop()
    assert gateway is not None
    gateway.shutdown()
    # Its JVM ends when its standard input does, and is waited for, so that nothing is left of this process group.
    gateway.proc.stdin.close()
    gateway.proc.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
