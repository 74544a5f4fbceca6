"""Pipelines in files, run in one Spark against one broker: their results."""

import json
import time
from datetime import datetime

import pytest

from logbrook.pipelines.report import RunState
from logbrook.spark.tables.format import TABLE_FORMATS, format_at
from tests.spark.pipeline_bench import COPY, ORDERS, PER_MINUTE, Bench, Errors, order


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


# test_driver_kills.py kills a pipeline with dead letters before its commits, and after one that Spark has not recorded.
@pytest.mark.long
def test_a_repeated_batch_is_written_once_to_dead_letters_and_to_an_exactly_once_update_sink(
    bench: Bench, errors: Errors
) -> None:
    bench.create("orders", "totals", "dead")
    delivery = "options = { delivery = 'exactly-once' }\n"
    bench.write(ORDERS + PER_MINUTE + delivery + '[dead_letters]\ntopic = "@-dead"\n')
    bench.send("orders", order(1, 2.5, 0), order(2, 1.5, 59), b"nope", b"neither")
    for _ in range(2):
        assert bench.run(reports="") == 0, errors()
        assert [row.value for row in bench.records("dead")] == [b"nope", b"neither"]
        assert [total["orders"] for total in bench.values("totals")] == [2]
        # As if the driver had been killed before Spark noted the end of the batch.
        for commit in (bench.directory / "checkpoint").rglob("commits/*"):
            commit.unlink()


@pytest.mark.long
def test_tables_of_other_formats_get_each_row_once(bench: Bench, errors: Errors) -> None:
    """The default, Delta, is what the first test has."""
    other_formats = [name for name in TABLE_FORMATS if name != "delta"]
    bench.create("orders")
    sinks = "".join(
        f'[sinks.{name}]\nview = "orders"\ntable = "tables/{name}"\nformat = "{name}"\npartition_by = ["_partition"]\n'
        for name in other_formats
    )
    bench.write(ORDERS + sinks)
    bench.send("orders", *(order(number, 1.5, number) for number in range(3)))
    assert bench.run() == 0, errors()
    for name in other_formats:
        assert sorted((row.id, row._offset) for row in bench.table(f"tables/{name}")) == [(n, n) for n in range(3)]
    formats = {name: format_at(str(bench.directory / "tables" / name)) for name in other_formats}
    assert formats == {name: name for name in other_formats}


def test_changes_and_changing_totals_become_tables_with_a_row_per_key(
    bench: Bench, errors: Errors, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.create("orders")
    bench.write(
        ORDERS
        + """options = { maxOffsetsPerTrigger = 4 }
[sinks.current]
view = "orders"
table = "tables/current"
mode = "upsert"
keys = ["id"]
delete = "amount < 0"
maintenance = { optimize = "1h", vacuum = "1d" }
[[views]]
name = "totals"
sql = "SELECT id % 2 = 1 AS is_odd, sum(amount) AS total FROM orders GROUP BY 1"
[sinks.totals]
view = "totals"
table = "tables/totals"
format = "iceberg"
mode = "upsert"
keys = ["is_odd"]
"""
    )
    # In two batches.
    bench.send("orders", order(1, 2.5, 0), order(2, 1.5, 5), order(1, 3.0, 6), order(3, 1.0, 7))
    bench.send("orders", order(2, -1.0, 8), order(4, 4.0, 9), order(1, 7.0, 10))
    assert bench.run() == 0, errors()
    current = bench.table("tables/current")
    assert sorted((row.id, row.amount) for row in current) == [(1, 7.0), (3, 1.0), (4, 4.0)]
    assert current[0].__fields__ == ["id", "amount", "at", "_key", "_topic", "_partition", "_offset", "_timestamp"]
    assert sorted((row.is_odd, row.total) for row in bench.table("tables/totals")) == [(False, 4.5), (True, 13.5)]
    assert "failed" not in capsys.readouterr().out


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


@pytest.mark.long
def test_a_start_time_applies_to_the_first_run_only(bench: Bench, errors: Errors) -> None:
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
    bench.send("lines", b"newer")
    assert bench.run(once=True, reports="") == 0
    assert [row.value for row in bench.records("copy")] == [b"new", b"newer"]
    assert bench.run(start="-3h") == 2
    checkpoint = bench.directory / "checkpoint"
    assert errors() == [
        f"error: --from -3h is only for a pipeline that has not started yet, and {checkpoint} already "
        "holds its offsets; "
        "to read again, give an empty directory with --checkpoint; its rows are added to those already written"
    ]
    assert bench.run(start="-3h", checkpoint=str(bench.directory / "again")) == 0
    assert [row.value for row in bench.records("copy")] == [b"new", b"newer", b"old", b"new", b"newer"]


def test_static_tables_and_files_enrich_a_stream_and_are_read_anew_for_each_batch(
    bench: Bench, errors: Errors, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.create("orders", "named")
    (bench.directory / "shops.csv").write_text("id,shop\n1,north\n2,south\n")
    people = bench.directory / "tables/people"

    def write_people(*rows: tuple[int, str]) -> None:
        bench.spark.createDataFrame(rows, "person BIGINT, name STRING").write.format("logbrook_table").mode(
            "overwrite"
        ).save(str(people))

    write_people((1, "Ann"), (2, "Bob"))
    bench.write(
        ORDERS
        + """
[sources.shops]
files = "*.csv"
format = "csv"
schema = "id BIGINT, shop STRING"
options = { header = true }
[sources.people]
table = "tables/people"
[[views]]
name = "named"
sql = "SELECT o.id, shop, name FROM orders o LEFT JOIN shops s ON o.id = s.id LEFT JOIN people ON person = o.id"
[sinks.named]
view = "named"
topic = "@-named"
"""
    )
    assert bench.run(checks_only=True, explain=True) == 0, errors()
    printed = capsys.readouterr().out
    assert f"source shops: csv files {bench.directory}/*.csv, static\n  id   bigint\n  shop string\n" in printed
    assert f"source people: table {people}, static\n  person bigint\n  name   string\n" in printed
    assert "plan of sink named" in printed
    bench.send("orders", order(1, 1.0, 0))
    assert bench.run() == 0, errors()
    write_people((1, "Ann"), (2, "Bill"))
    bench.send("orders", order(2, 1.0, 1))
    assert bench.run() == 0, errors()
    assert bench.values("named") == [
        {"id": 1, "shop": "north", "name": "Ann"},
        {"id": 2, "shop": "south", "name": "Bill"},
    ]


def test_a_query_that_fails_is_restarted_from_its_checkpoint(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """The view raises an error as long as a property of the JVM is set, and clears it."""
    bench.create("orders", "copy")
    flaky = f"flaky-{bench.prefix}"
    cleared = f"reflect('java.lang.System', 'clearProperty', '{flaky}')"
    sql = f"SELECT id, if({cleared} = 'null', id, raise_error('not yet')) AS x"
    view = f'[[views]]\nname = "flaky"\nsql = """{sql} FROM orders"""\n[restart]\ndelay = "100ms"\n'
    bench.write(ORDERS + view + COPY.replace('"orders"', '"flaky"'))
    bench.send("orders", order(1, 2.5, 0))
    jvm = bench.spark.sparkContext._jvm
    assert jvm is not None
    jvm.System.setProperty(flaky, "set")
    assert bench.run() == 0
    assert bench.values("copy") == [{"id": 1, "x": 1}]
    expected = capsys.readouterr().out
    assert "query 'p-copy' failed: not yet; restart 1 of 5 in 0.1 s" in expected
    assert "1 in all, restarts 1" in expected
    report = bench.reports()["p"][-1]
    assert (report.state, report.restarts, report.error) == (RunState.STOPPED, 1, None)
