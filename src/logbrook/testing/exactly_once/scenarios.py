"""The scenarios whose driver is killed at random moments: the input of each, its Spark job, and an oracle.

A scenario object exists on both sides. The campaign writes `records`, reads `actual` and compares it with `expected`,
which is computed from the input without Spark. The driver calls `start`, and `finish` where nobody kills it.

Streams read what arrives while they run. Event time is one second per record, so the oracles of windows and joins
follow from the number of records.
"""

import json
import os
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar, NamedTuple

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from logbrook.spark.pipeline.command import RunRequest, run
from logbrook.testing.copy.topics import read_topic
from logbrook.testing.processes import pause

# The rows of a table or the values of a topic, with their number.
RowCounts = Counter[Any]

PARALLELISM = 2
# The jobs must not keep the processor busy while others start.
_TRIGGER_MS = 2_000
_START_POLL_S = 0.1
_RECORDS_PER_BATCH = 500
_ROWS_PER_WRITE = 40
_KEYS = 37
_START_S = 1_767_225_600
_WINDOW_S = 10
_FAR_FUTURE_S = _START_S * 2
_READ_S_MAX = 120.0
_QUERY_S_MAX = 300
_SCHEMA = "id BIGINT, at TIMESTAMP"


class InputRecord(NamedTuple):
    topic: str
    partition: int
    value: bytes


class KillScenario(ABC):
    """A job with exactly-once outputs below `directory` and in `topics`.

    `parallelism` is the largest number of partitions of a topic, and of tasks of a batch write.
    """

    name: ClassVar[str]
    # Names without the scenario's prefix, with their numbers of partitions.
    topics: ClassVar[Mapping[str, int]]
    tables: ClassVar[tuple[str, ...]]
    # Checkpoints of its queries, below the directory `checkpoint`.
    checkpoints: ClassVar[tuple[str, ...]] = (".",)

    def __init__(self, servers: str, directory: Path, parallelism: int = PARALLELISM) -> None:
        self.servers = servers
        self.parallelism = parallelism
        self.directory = directory / self.name
        self.directory.mkdir(exist_ok=True)

    @property
    def outputs(self) -> list[str]:
        """The topics that the job writes, without prefix."""
        return [name for name in self.topics if not name.startswith("input")]

    @property
    def targets(self) -> list[str]:
        """The tables and topics that the job writes, by the names that `stops` has for them."""
        return [self.topic(name) for name in (*self.tables, *self.outputs)]

    @property
    def partitions(self) -> dict[str, int]:
        """The number of partitions of each topic."""
        return {self.topic(name): min(count, self.parallelism) for name, count in self.topics.items()}

    def topic(self, name: str) -> str:
        return f"{self.name}-{name}"

    def table(self, name: str) -> Path:
        return self.directory / "tables" / name

    def progress(self) -> dict[str, int]:
        """Return the newest completed batch of each query, by checkpoint; -1 if there is none."""
        return {name: _newest_batch(self.directory / "checkpoint" / name / "commits") for name in self.checkpoints}

    def has_progressed(self, since: Mapping[str, int]) -> bool:
        """Return True if every query has completed a batch since `progress` returned `since`."""
        return all(batch_id > since[name] for name, batch_id in self.progress().items())

    @abstractmethod
    def records(self, number: int) -> Iterator[InputRecord]:
        """Yield the input that belongs to `number`; numbers count from 0."""

    def last_records(self) -> Iterator[InputRecord]:
        """Yield the input that makes the job emit what it holds back."""
        yield from ()

    @abstractmethod
    def expected(self, count: int) -> dict[str, RowCounts]:
        """Return the rows of each table and topic after the records of `count` numbers and `last_records`."""

    @abstractmethod
    def start(self, spark: SparkSession) -> None:
        """Run until the driver is killed; return as soon as the job has begun."""

    @abstractmethod
    def finish(self, spark: SparkSession) -> None:
        """Process everything that is available and return."""

    def actual(self) -> dict[str, RowCounts]:
        """Return the rows of each table and topic as other programs read them: delta-rs and librdkafka."""
        rows = {name: self._table_rows(name) for name in self.tables}
        return rows | {name: self._values(name) for name in self.outputs}

    def _table_rows(self, name: str) -> RowCounts:
        if not DeltaTable.is_deltatable(str(self.table(name))):
            return Counter()
        rows = DeltaTable(str(self.table(name))).to_pyarrow_table().to_pylist()
        return Counter(tuple(row.values()) for row in rows)

    def _values(self, name: str) -> RowCounts:
        topic = self.topic(name)
        partitions = read_topic(self.servers, topic, self.partitions[topic], "read_committed", _READ_S_MAX)
        return Counter(value.decode() for records in partitions.values() for _, value in records)

    def _read(self, spark: SparkSession, name: str, *metadata: str, is_limited: bool) -> DataFrame:
        """Return the rows of an input topic, with the given columns of its records."""
        reader = spark.readStream.format("logbrook").option("kafka.bootstrap.servers", self.servers)
        reader = reader.option("subscribe", self.topic(name)).option("startingOffsets", "earliest")
        if is_limited:
            reader = reader.option("maxOffsetsPerTrigger", _RECORDS_PER_BATCH)
        row = f.from_json(f.col("value").cast("string"), _SCHEMA).alias("row")
        return reader.load().select(row, *metadata).select("row.*", *metadata)

    def _topic_options(self, name: str) -> dict[str, str]:
        servers = {"kafka.bootstrap.servers": self.servers}
        return servers | {"topic": self.topic(name), "delivery": "exactly-once"}


class StreamScenario(KillScenario):
    """A scenario of one streaming query."""

    @abstractmethod
    def writer(self, spark: SparkSession, *, is_limited: bool) -> DataStreamWriter: ...

    def start(self, spark: SparkSession) -> None:
        writer = self._checkpointed(self.writer(spark, is_limited=True))
        query = writer.trigger(processingTime=f"{_TRIGGER_MS} milliseconds").start()
        # Until it has started its Python processes, for which Spark waits 10 s at most.
        while query.isActive and "nitializing" in query.status["message"]:
            pause(_START_POLL_S)

    def finish(self, spark: SparkSession) -> None:
        query = self._checkpointed(self.writer(spark, is_limited=False)).trigger(availableNow=True).start()
        if not query.awaitTermination(_QUERY_S_MAX):
            _fail_unfinished(query)

    def _checkpointed(self, writer: DataStreamWriter) -> DataStreamWriter:
        return writer.option("checkpointLocation", str(self.directory / "checkpoint")).queryName(self.name)


class WindowScenario(StreamScenario):
    """Windows of event time into a table, in append mode."""

    name = "windows"
    topics: ClassVar[Mapping[str, int]] = {"input": 1}
    tables = ("windows",)

    def records(self, number: int) -> Iterator[InputRecord]:
        yield InputRecord(self.topic("input"), 0, _row(number, _START_S + number))

    def last_records(self) -> Iterator[InputRecord]:
        yield InputRecord(self.topic("input"), 0, _row(-1, _FAR_FUTURE_S))

    def expected(self, count: int) -> dict[str, RowCounts]:
        windows: dict[tuple[int, int], list[int]] = {}
        for number in range(count):
            start_s = _START_S + number // _WINDOW_S * _WINDOW_S
            windows.setdefault((start_s, number % 2), []).append(number)
        return {"windows": Counter((*key, len(numbers), sum(numbers)) for key, numbers in windows.items())}

    def writer(self, spark: SparkSession, *, is_limited: bool) -> DataStreamWriter:
        rows = self._read(spark, "input", is_limited=is_limited).withWatermark("at", f"{_WINDOW_S} seconds")
        window, parity = f.window("at", f"{_WINDOW_S} seconds"), (f.col("id") % 2).alias("parity")
        totals = rows.groupBy(window, parity).agg(f.count("*").alias("records"), f.sum("id").alias("total"))
        frame = totals.selectExpr("unix_timestamp(window.start) AS start", "parity", "records", "total")
        return frame.writeStream.format("logbrook_table").option("path", str(self.table("windows")))


class JoinScenario(StreamScenario):
    """A stream-stream join, written through `foreachBatch` to a table and a topic.

    Left has every number. Right has those not divisible by 3, and every second of them is too late to be joined.
    """

    name = "join"
    topics: ClassVar[Mapping[str, int]] = {"input-left": 1, "input-right": 1, "sent": 2}
    tables = ("joined",)

    def records(self, number: int) -> Iterator[InputRecord]:
        at_s = _START_S + number
        yield InputRecord(self.topic("input-left"), 0, _row(number, at_s))
        if number % 3:
            yield InputRecord(self.topic("input-right"), 0, _row(number, at_s + (1 if number % 3 == 1 else 60)))

    def expected(self, count: int) -> dict[str, RowCounts]:
        joined = range(1, count, 3)
        return {"joined": Counter((number,) for number in joined), "sent": Counter(map(str, joined))}

    def writer(self, spark: SparkSession, *, is_limited: bool) -> DataStreamWriter:
        left, right = (
            self._read(spark, f"input-{side}", is_limited=is_limited)
            .withWatermark("at", "1 hour")
            .withColumnsRenamed({"id": f"{side}_id", "at": f"{side}_at"})
            for side in ("left", "right")
        )
        is_pair = "left_id = right_id AND right_at BETWEEN left_at AND left_at + INTERVAL 10 SECONDS"
        joined = left.join(right, f.expr(is_pair)).selectExpr("left_id AS id")
        return joined.writeStream.foreachBatch(self._write_batch)

    def _write_batch(self, rows: DataFrame, _: int) -> None:
        rows.write.format("logbrook_table").mode("append").save(str(self.table("joined")))
        values = rows.selectExpr("string(id) AS value")
        values.write.format("logbrook").options(**self._topic_options("sent")).mode("append").save()


class UpsertScenario(StreamScenario):
    """Changes of a few keys into a table with a row per key; every fifth change is a delete."""

    name = "upserts"
    topics: ClassVar[Mapping[str, int]] = {"input": 2}
    tables = ("current",)

    def records(self, number: int) -> Iterator[InputRecord]:
        # All changes of a key are in one partition.
        yield InputRecord(self.topic("input"), number % _KEYS % self.parallelism, _row(number, _START_S + number))

    def expected(self, count: int) -> dict[str, RowCounts]:
        newest = {number % _KEYS: number for number in range(count)}
        return {"current": Counter(pair for pair in newest.items() if pair[1] % 5)}

    def writer(self, spark: SparkSession, *, is_limited: bool) -> DataStreamWriter:
        rows = self._read(spark, "input", "partition", "offset", is_limited=is_limited)
        changes = rows.selectExpr(f"id % {_KEYS} AS key", "id", "id % 5 = 0 AS is_deleted", "partition", "offset")
        rules = {"write.mode": "upsert", "upsert.keys": "key", "upsert.delete": "is_deleted"}
        writer = changes.writeStream.format("logbrook_table").options(**rules)
        return writer.option("path", str(self.table("current")))

    def _table_rows(self, name: str) -> RowCounts:
        # Without partition and offset.
        return Counter(row[:2] for row in super()._table_rows(name).elements())


class PipelineScenario(KillScenario):
    """A pipeline in a TOML file: a table, an exactly-once topic and dead letters."""

    name = "pipeline"
    topics: ClassVar[Mapping[str, int]] = {"input": 2, "copies": 2, "dead": 1}
    tables = ("orders",)
    checkpoints = ("sinks/orders", "sinks/copies", "dead_letters/orders")

    def records(self, number: int) -> Iterator[InputRecord]:
        value = b"bad %d" % number if number % 5 == 0 else _row(number, _START_S + number)
        yield InputRecord(self.topic("input"), number % self.parallelism, value)

    def expected(self, count: int) -> dict[str, RowCounts]:
        good = [number for number in range(count) if number % 5]
        return {
            "orders": Counter((number,) for number in good),
            "copies": Counter(json.dumps({"id": number}, separators=(",", ":")) for number in good),
            "dead": Counter(f"bad {number}" for number in range(0, count, 5)),
        }

    def start(self, spark: SparkSession) -> None:
        file = self._write_file(f"options = {{ maxOffsetsPerTrigger = {_RECORDS_PER_BATCH} }}", f"{_TRIGGER_MS}ms")
        _start_thread(spark, lambda: run(RunRequest(file, reports=""), spark))

    def finish(self, spark: SparkSession) -> None:
        code = run(RunRequest(self._write_file("", "once"), reports=""), spark)
        assert code == 0, f"the pipeline ended with exit code {code}"

    def _write_file(self, source_options: str, trigger: str) -> str:
        file = self.directory / "pipeline.toml"
        file.write_text(
            f"""\
name = "{self.name}"
bootstrap_servers = "{self.servers}"
trigger = "{trigger}"
[sources.orders]
topic = "{self.topic("input")}"
schema = "{_SCHEMA}"
{source_options}
[[views]]
name = "ids"
sql = "SELECT id FROM orders"
[sinks.orders]
view = "ids"
table = "tables/orders"
[sinks.copies]
view = "ids"
topic = "{self.topic("copies")}"
options = {{ delivery = "exactly-once" }}
[dead_letters]
topic = "{self.topic("dead")}"
"""
        )
        return str(file)


class BatchScenario(KillScenario):
    """Batch writes to a table and a topic, each of which is repeated if the driver dies before it has noted its end."""

    name = "batch"
    topics: ClassVar[Mapping[str, int]] = {"sent": 2}
    tables = ("written",)

    def __init__(self, servers: str, directory: Path, parallelism: int = PARALLELISM) -> None:
        super().__init__(servers, directory, parallelism)
        self._done = self.directory / "done"

    def progress(self) -> dict[str, int]:
        return {"done": int(self._done.read_text()) if self._done.exists() else 0}

    def records(self, number: int) -> Iterator[InputRecord]:  # noqa: ARG002 - it has no input
        yield from ()

    def expected(self, count: int) -> dict[str, RowCounts]:  # noqa: ARG002 - it has no input
        ids = range(self.progress()["done"] * _ROWS_PER_WRITE)
        return {"written": Counter((number,) for number in ids), "sent": Counter(map(str, ids))}

    def start(self, spark: SparkSession) -> None:
        _start_thread(spark, lambda: self._write_all(spark))

    def finish(self, spark: SparkSession) -> None:
        self._write_next(spark)

    def _write_all(self, spark: SparkSession) -> None:
        while True:
            self._write_next(spark)
            pause(_TRIGGER_MS / 1000)

    def _write_next(self, spark: SparkSession) -> None:
        number = self.progress()["done"]
        rows = spark.range(number * _ROWS_PER_WRITE, (number + 1) * _ROWS_PER_WRITE, numPartitions=self.parallelism)
        identity = {"app.id": self.name, "batch.id": str(number)}
        rows.write.format("logbrook_table").options(**identity).mode("append").save(str(self.table("written")))
        values = rows.selectExpr("string(id) AS value")
        options = self._topic_options("sent") | identity
        values.write.format("logbrook").options(**options).mode("append").save()
        draft = self._done.with_suffix(".draft")
        draft.write_text(str(number + 1))
        os.replace(draft, self._done)


# In the order of their start. The queries of the pipeline start in a thread, at the same time as the others.
SCENARIOS: dict[str, type[KillScenario]] = {
    scenario.name: scenario
    for scenario in (PipelineScenario, WindowScenario, JoinScenario, UpsertScenario, BatchScenario)
}


def _start_thread(spark: SparkSession, job: Callable[[], object]) -> None:
    """Start a job that should run until the driver is killed; if it ends, the driver ends too."""

    def run_job() -> None:
        try:
            # Spark looks data sources up in the active session of the thread.
            SparkSession._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)
            job()
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(1)

    Thread(target=run_job, daemon=True).start()


def _newest_batch(commits: Path) -> int:
    try:
        return max((int(name) for name in os.listdir(commits) if name.isdecimal()), default=-1)
    except FileNotFoundError:
        return -1


def _row(number: int, at_s: int) -> bytes:
    return json.dumps({"id": number, "at": at_s}).encode()


def _fail_unfinished(query: StreamingQuery) -> None:
    status = query.status
    query.stop()
    raise TimeoutError(f"query {query.name} did not end within {_QUERY_S_MAX} s: {status}")
