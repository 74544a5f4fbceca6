"""Pipelines in files, run in one Spark against one broker: what comes out, and what is said of what is wrong."""

import json
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import Row, SparkSession

from logbrook import Broker
from logbrook.client import Client
from logbrook.pipelines.reading import Seen, read_on
from logbrook.pipelines.report import REPORTS_TOPIC, Report, RunState, SourceReport
from logbrook.spark.pipeline.command import Request, run
from logbrook.spark.tables.formats import format_at
from logbrook.spark.tables.options import TABLE_FORMATS

ORDERS = """
[sources.orders]
topic = "@-orders"
schema = "id BIGINT, amount DOUBLE, at TIMESTAMP"
watermark = { column = "at", delay = "1 minute" }
"""
PER_MINUTE = """
[[views]]
name = "per_minute"
sql = '''
SELECT window.start AS minute, count(*) AS orders, sum(amount) AS total
FROM (SELECT window(at, '1 minute') AS window, amount FROM orders)
GROUP BY window
'''
[sinks.totals]
view = "per_minute"
topic = "@-totals"
key = "minute"
mode = "update"
"""
COPY = """
[sinks.copy]
view = "orders"
topic = "@-copy"
"""


class Bench:
    """Topics whose names begin with the test's, and a file in which `@` stands for that beginning."""

    def __init__(self, spark: SparkSession, broker: Broker, prefix: str, directory: Path) -> None:
        self.spark = spark
        self.broker = broker
        self.prefix = prefix
        self.directory = directory
        self.file = directory / "p.toml"
        self._producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

    def create(self, *names: str, partitions: int = 1) -> None:
        for name in names:
            self.broker.create_topic(f"{self.prefix}-{name}", partitions)

    def write(self, text: str, head: str = 'trigger = "once"') -> None:
        servers = f'name = "p"\nbootstrap_servers = "{self.broker.bootstrap_servers}"\n{head}\n'
        self.file.write_text((servers + text).replace("@", self.prefix))

    def send(self, name: str, *values: bytes | None, **fields: Any) -> None:
        for value in values:
            self._producer.produce(f"{self.prefix}-{name}", value, **fields)
        assert self._producer.flush(30) == 0

    def run(self, **request: Any) -> int:
        return run(Request(str(self.file), **request), self.spark)

    def records(self, name: str) -> list[Row]:
        options = {"kafka.bootstrap.servers": self.broker.bootstrap_servers, "subscribe": f"{self.prefix}-{name}"}
        frame = self.spark.read.format("logbrook").options(**options).option("includeHeaders", "true").load()
        return frame.orderBy("partition", "offset").collect()

    def values(self, name: str) -> list[Any]:
        return [json.loads(row.value) for row in self.records(name)]

    def table(self, name: str) -> list[Row]:
        return self.spark.read.format("logbrook_table").load(str(self.directory / name)).collect()

    def reports(self) -> Mapping[str, tuple[Report, ...]]:
        with Client(self.broker.bootstrap_servers) as client:
            return read_on(client, REPORTS_TOPIC, Seen()).reports

    def committed(self, group: str, name: str) -> int:
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap_servers, "group.id": group})
        try:
            return int(consumer.committed([TopicPartition(f"{self.prefix}-{name}", 0)], timeout=30)[0].offset)
        finally:
            consumer.close()


Errors = Callable[[], list[str]]


@pytest.fixture
def bench(spark: SparkSession, broker: Broker, topic: str, tmp_path: Path) -> Bench:
    return Bench(spark, broker, topic, tmp_path)


@pytest.fixture
def errors(capsys: pytest.CaptureFixture[str]) -> Errors:
    def told() -> list[str]:
        return capsys.readouterr().err.splitlines()

    return told


def order(number: int, amount: float, second: int) -> bytes:
    at = f"2026-01-01T00:{second // 60:02}:{second % 60:02}Z"
    return json.dumps({"id": number, "amount": amount, "at": at}).encode()


def test_windows_into_a_topic_and_rows_into_a_table_with_dead_letters_beside(bench: Bench, errors: Errors) -> None:
    bench.create("orders", "totals", "dead")
    archive = '[sinks.archive]\nview = "orders"\ntable = "tables/orders"\n[dead_letters]\ntopic = "@-dead"\n'
    bench.write(ORDERS + PER_MINUTE + archive)
    bench.send("orders", order(1, 2.5, 0), order(2, 1.5, 59), order(3, 4.0, 60), key=b"k")
    bench.send("orders", b"nope", None, b'{"id": "x"}', key=b"k", headers=[("trace", b"7")])
    assert bench.run() == 0, errors()
    assert sorted((row.key, json.loads(row.value)["orders"]) for row in bench.records("totals")) == [
        (b"2026-01-01 00:00:00", 2),
        (b"2026-01-01 00:01:00", 1),
    ]
    kept = sorted((row.id, row.amount, row.at, row._key, row._offset) for row in bench.table("tables/orders"))
    assert kept == [
        (1, 2.5, datetime(2026, 1, 1), b"k", 0),
        (2, 1.5, datetime(2026, 1, 1, 0, 0, 59), b"k", 1),
        (3, 4.0, datetime(2026, 1, 1, 0, 1), b"k", 2),
    ]
    source = f"{bench.prefix}-orders".encode()
    letters = [(row.key, row.value, [tuple(header) for header in row.headers]) for row in bench.records("dead")]
    assert letters == [
        (
            b"k",
            value,
            [("trace", b"7"), ("error", error), ("topic", source), ("partition", b"0"), ("offset", offset)],
        )
        for value, error, offset in (
            (b"nope", b"the value is not JSON", b"3"),
            (None, b"the value is null", b"4"),
            (b'{"id": "x"}', b"id is not bigint", b"5"),
        )
    ]
    groups = ("p-totals", "p-archive", "p-dead-letters-orders")
    assert [bench.committed(group, "orders") for group in groups] == [6, 6, 6]

    bench.send("orders", order(4, 1.0, 30))
    assert bench.run(once=True) == 0
    assert bench.values("totals")[2:] == [{"minute": "2026-01-01T00:00:00.000Z", "orders": 3, "total": 5.0}]
    assert len(bench.table("tables/orders")) == 4
    assert len(bench.records("dead")) == 3


def test_tables_of_every_format_get_each_row_once(bench: Bench, errors: Errors) -> None:
    bench.create("orders")
    sinks = "".join(
        f'[sinks.{name}]\nview = "orders"\ntable = "tables/{name}"\nformat = "{name}"\npartition_by = ["_partition"]\n'
        for name in TABLE_FORMATS
    )
    bench.write(ORDERS + sinks)
    numbers: list[int] = []
    for first in (0, 3):
        bench.send("orders", *(order(number, 1.5, number) for number in range(first, first + 3)))
        numbers += range(first, first + 3)
        assert bench.run() == 0, errors()
        for name in TABLE_FORMATS:
            assert sorted((row.id, row._offset) for row in bench.table(f"tables/{name}")) == [(n, n) for n in numbers]
    found = {name: format_at(str(bench.directory / "tables" / name)) for name in TABLE_FORMATS}
    assert found == {name: name for name in TABLE_FORMATS}


def test_streams_are_joined_and_doubles_dropped(bench: Bench, errors: Errors) -> None:
    bench.create("orders", "payments", "paid", "firsts")
    bench.write(
        ORDERS
        + """unique = ["id"]
[sources.payments]
topic = "@-payments"
schema = "order_id BIGINT, method STRING, paid_at TIMESTAMP"
watermark = { column = "paid_at", delay = "1 minute" }
[[views]]
name = "paid"
sql = '''
SELECT id, amount, method FROM orders JOIN payments
ON id = order_id AND paid_at BETWEEN at AND at + INTERVAL 5 MINUTES
'''
[[views]]
name = "firsts"
sql = "SELECT CAST(id AS STRING) AS key, concat('order ', id) AS value FROM orders"
[sinks.paid]
view = "paid"
topic = "@-paid"
[sinks.firsts]
view = "firsts"
topic = "@-firsts"
"""
    )
    bench.send("orders", order(1, 2.5, 0), order(2, 1.5, 5), order(1, 2.5, 0))
    for number, second in ((1, 10), (3, 10)):
        paid = {"order_id": number, "method": "card", "paid_at": f"2026-01-01T00:00:{second}Z"}
        bench.send("payments", json.dumps(paid).encode())
    assert bench.run() == 0, errors()
    assert bench.values("paid") == [{"id": 1, "amount": 2.5, "method": "card"}]
    assert sorted((row.key, row.value) for row in bench.records("firsts")) == [(b"1", b"order 1"), (b"2", b"order 2")]


def test_without_dead_letters_a_record_that_does_not_parse_stops_the_pipeline(bench: Bench, errors: Errors) -> None:
    bench.create("orders", "copy")
    filtered = "[[views]]\nname = 'large'\nsql = 'SELECT id FROM orders WHERE amount > 1'\n"
    bench.write(ORDERS + filtered + COPY.replace('"orders"', '"large"'))
    bench.send("orders", order(1, 2.5, 0), None)
    assert bench.run() == 4
    reason = f"the record at offset 1 of {bench.prefix}-orders-0 does not parse: the value is null"
    hint = "with [dead_letters] in the file such records go to a topic instead"
    assert errors() == [f"error: query 'p-copy' failed: {reason}; {hint}"]
    assert bench.records("copy") == []
    report = bench.reports()["p"][-1]
    assert (report.state, report.error) == (RunState.FAILED, f"query 'p-copy' failed: {reason}; {hint}")


def test_a_start_in_the_past_is_for_the_first_run_only(bench: Bench, errors: Errors) -> None:
    bench.create("lines", "copy")
    bench.write(
        '[sources.orders]\ntopic = "@-lines"\nformat = "string"\n[[views]]\nname = "v"\n'
        'sql = "SELECT value FROM orders"\n' + COPY.replace('"orders"', '"v"')
    )
    now_ms = round(time.time() * 1000)
    bench.send("lines", b"old", timestamp=now_ms - 7_200_000)
    bench.send("lines", b"new", timestamp=now_ms)
    before = bench.reports()
    assert bench.run(start="-1h", reports="") == 0
    assert bench.reports() == before
    assert [row.value for row in bench.records("copy")] == [b"new"]
    assert bench.run(start="-3h") == 2
    checkpoint = bench.directory / "checkpoint"
    assert errors() == [
        f"error: --from -3h is for a pipeline that has not started yet, and {checkpoint} has its progress; "
        "to read again give an empty directory with --checkpoint, and mind that its rows are added to those there"
    ]
    assert bench.run(start="-3h", checkpoint=str(bench.directory / "again")) == 0
    assert [row.value for row in bench.records("copy")] == [b"new", b"old", b"new"]


def test_a_dry_run_prints_the_plan_and_writes_nothing(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.create("orders", "totals")
    bench.write(ORDERS + PER_MINUTE + '[sinks.archive]\nview = "orders"\ntable = "tables/orders"\n', 'trigger = "5s"')
    bench.send("orders", order(1, 2.5, 0))
    assert bench.run(dry_run=True) == 0
    prefix, directory = bench.prefix, bench.directory
    assert (
        capsys.readouterr().out
        == f"""\
pipeline p at {bench.broker.bootstrap_servers}
  checkpoint {directory}/checkpoint
  trigger    every 5 s
source orders: topic {prefix}-orders, json, from earliest
  id         bigint
  amount     double
  at         timestamp
  _key       binary
  _topic     string
  _partition int
  _offset    bigint
  _timestamp timestamp
  watermark at, 1 minute
view per_minute
  minute timestamp
  orders bigint
  total  double
sink totals: per_minute -> topic {prefix}-totals by minute, mode update, group p-totals
sink archive: orders -> delta table {directory}/tables/orders, mode append, group p-archive
dead letters: none, a record that does not parse stops the pipeline
"""
    )
    assert [path.name for path in directory.iterdir()] == ["p.toml"]
    assert bench.records("totals") == []


def test_a_dry_run_tells_all_that_spark_finds_wrong(bench: Bench, errors: Errors) -> None:
    bench.create("orders", "copy")
    bench.write(
        ORDERS
        + '[sources.odd]\ntopic = "@-orders"\nschema = "id NUMBER"\n'
        + '[sources.own]\ntopic = "@-orders"\nschema = "_key INT"\n'
        + '[[views]]\nname = "a"\nsql = "SELECT\\n idd FROM orders"\n'
        + '[[views]]\nname = "b"\nsql = "SELECT * FROM a"\n'
        + '[[views]]\nname = "c"\nsql = "DROP TABLE x"\n'
        + '[[views]]\nname = "d"\nsql = "SELECT 1 AS value"\n'
        + '[sinks.d]\nview = "d"\ntopic = "@-copy"\n'
        + '[sinks.e]\nview = "orders"\ntopic = "@-copy"\nkey = "idd"\n'
        + '[sinks.f]\nview = "orders"\ntable = "t"\npartition_by = ["dayy"]\n'
        + '[[views]]\nname = "g"\nsql = "SELECT id, count(*) AS n FROM orders GROUP BY id"\n'
        + '[sinks.g]\nview = "g"\ntopic = "@-copy"\n'
    )
    assert bench.run(dry_run=True) == 2
    there = "id, amount, at, _key, _topic, _partition, _offset, _timestamp"
    assert [line.removeprefix(f"error: {bench.file}:") for line in errors()] == [
        '9: sources.odd: Unsupported data type "NUMBER"',
        "12: sources.own: the schema has _key, which every source has already",
        "17: view a: A column, variable, or function parameter with name `idd` cannot be resolved. "
        "Did you mean one of the following? [`id`, `at`, `_key`, `_topic`, `amount`] (line 2 of it, column 2)",
        "23: view c: Syntax error at or near 'DROP' (line 1 of it, column 1)",
        "27: sinks.d: view 'd' reads no source, so it never has anything new",
        f"30: sinks.e: there is no column 'idd' for the key; there are {there}",
        f"34: sinks.f: table '{bench.directory}/t': it cannot be partitioned by 'dayy', "
        "because the frame has no such column",
        "41: sinks.g: Invalid streaming output mode: append. This output mode is not supported for streaming "
        "aggregations without watermark on streaming DataFrames/DataSets",
    ]
    assert [path.name for path in bench.directory.iterdir()] == ["p.toml"]


def test_topics_that_are_missing_are_named(bench: Bench, errors: Errors) -> None:
    bench.create("orders")
    bench.write(ORDERS + COPY + '[dead_letters]\ntopic = "@-dead"\n')
    assert bench.run(dry_run=True) == 3
    names = f"topic '{bench.prefix}-copy' and no topic '{bench.prefix}-dead'"
    servers = bench.broker.bootstrap_servers
    assert errors() == [f"error: there is no {names} at {servers}; create it first, or correct the name"]


def test_a_cluster_that_does_not_answer_is_named(bench: Bench, errors: Errors) -> None:
    bench.write(ORDERS + COPY)
    assert bench.run(bootstrap_servers="127.0.0.1:1") == 3
    (told,) = errors()
    assert told.startswith("error: the cluster at 127.0.0.1:1 cannot be asked: cannot connect to 127.0.0.1:1")


def test_wrong_options_of_a_source_are_told_before_spark_is_asked(bench: Bench, errors: Errors) -> None:
    bench.write(ORDERS.replace("watermark", "options = { 'group.id' = 'x' }\nwatermark") + COPY)
    assert bench.run() == 2
    bench.write(ORDERS.replace("watermark", "options = { maxOfsetsPerTrigger = 1 }\nwatermark") + COPY)
    assert bench.run() == 2
    bench.write(ORDERS + COPY)
    assert bench.run(start="soon") == 2
    assert errors() == [
        f"error: {bench.file}:5: sources.orders: option 'group.id': the pipeline sets it itself, from name",
        f"error: {bench.file}:5: sources.orders: option 'maxOfsetsPerTrigger': there is no such option; "
        "did you mean 'maxOffsetsPerTrigger'?",
        "error: command line: --from: it must be earliest, latest, JSON or a time from now such as '-1h', not 'soon'",
    ]


PYTHON = """
def pipeline(spark):
    options = {"kafka.bootstrap.servers": "%s", "subscribe": "@-in", "startingOffsets": "earliest"}
    rows = spark.readStream.format("logbrook").options(**options).load()
    options = {"kafka.bootstrap.servers": "%s", "topic": "@-out"}
    return rows.select("value").writeStream.format("logbrook").options(**options).queryName("copying")
"""


def test_a_python_file_is_a_pipeline_too(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.create("in", "out")
    bench.send("in", b"a", b"b")
    bench.file = bench.directory / "copying.py"
    servers = bench.broker.bootstrap_servers
    bench.file.write_text(PYTHON.replace("@", bench.prefix) % (servers, servers))
    assert bench.run(dry_run=True) == 0
    assert capsys.readouterr().out == f"pipeline {bench.file}: 1 query, copying-1\n"
    for _ in range(2):
        assert bench.run(once=True, checkpoint=str(bench.directory / "checkpoint")) == 0
    assert [row.value for row in bench.records("out")] == [b"a", b"b"]
    assert "copying: batch 0, 2 rows in " in capsys.readouterr().out
    said = [report for report in bench.reports()["copying"] if report.state is RunState.STOPPED]
    assert [sum(sink.rows for sink in report.sinks) for report in said] == [2, 0]
    assert said[0].sources == (SourceReport(f"{bench.prefix}-in", 0),)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def pipeline(spark:\n", ":1: this is not Python: '(' was never closed"),
        ("x = 1\n", ": it has no function pipeline(spark)"),
        ("def pipeline(spark):\n    return 1 / 0\n", ":2: ZeroDivisionError: division by zero"),
        (
            "def pipeline(spark):\n    return []\n",
            ": pipeline(spark) must return a DataStreamWriter or a list of them, and returned an empty list",
        ),
        (
            "def pipeline(spark):\n    rate = spark.readStream.format('rate').load()\n"
            "    return rate.writeStream.format('noop').start()\n",
            ": pipeline(spark) has started its queries; return the writers, without .start()",
        ),
        (
            "def pipeline(spark):\n    return spark.sql('SELECT x')\n",
            ":2: AnalysisException: A column, variable, or function parameter with name `x` cannot be resolved",
        ),
    ],
)
def test_a_python_file_that_is_wrong_is_told_with_its_line(bench: Bench, errors: Errors, text: str, told: str) -> None:
    bench.file = bench.directory / "p.py"
    bench.file.write_text(text)
    assert bench.run(once=True) == 2
    assert errors() == [f"error: {bench.file}{told}"]
    assert bench.spark.streams.active == []


def test_options_that_only_a_toml_file_takes_are_refused_for_python(bench: Bench, errors: Errors) -> None:
    bench.file = bench.directory / "p.py"
    assert bench.run(start="-1h") == 2
    assert errors() == ["error: command line: --from is for a pipeline in a TOML file"]
