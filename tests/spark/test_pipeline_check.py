"""`logbrook pipeline check`, and the errors that end a pipeline before its queries start."""

import pytest

from tests.spark.pipeline_bench import COPY, ORDERS, PER_MINUTE, Bench, Errors, order


def test_a_check_prints_the_plan_and_writes_nothing(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.create("orders", "totals")
    bench.write(ORDERS + PER_MINUTE + '[sinks.archive]\nview = "orders"\ntable = "tables/orders"\n', 'trigger = "5s"')
    bench.send("orders", order(1, 2.5, 0))
    assert bench.run(checks_only=True) == 0
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
  key   string
  value string
sink archive: orders -> delta table {directory}/tables/orders, mode append, group p-archive
  id         bigint
  amount     double
  at         timestamp
  _key       binary
  _topic     string
  _partition int
  _offset    bigint
  _timestamp timestamp
dead letters: none, a record that does not parse stops the pipeline
"""
    )
    assert [path.name for path in directory.iterdir()] == ["p.toml"]
    assert bench.records("totals") == []


def test_a_check_reports_all_errors_of_spark(bench: Bench, errors: Errors) -> None:
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
    assert bench.run(checks_only=True) == 2
    there = "id, amount, at, _key, _topic, _partition, _offset, _timestamp"
    assert [line.removeprefix(f"error: {bench.file}:") for line in errors()] == [
        '9: sources.odd: Unsupported data type "NUMBER"',
        "12: sources.own: the schema has _key, which every source has already",
        "17: view a: A column, variable, or function parameter with name `idd` cannot be resolved. "
        "Did you mean one of the following? [`id`, `at`, `_key`, `_topic`, `amount`] (line 2 of it, column 2)",
        "23: view c: Syntax error at or near 'DROP' (line 1 of it, column 1)",
        "27: sinks.d: view 'd' reads no source, so it cannot be streamed",
        f"30: sinks.e: there is no column 'idd' for the key; there are {there}",
        f"34: sinks.f: table '{bench.directory}/t': it cannot be partitioned by 'dayy', "
        "which is not a column of the frame",
        "41: sinks.g: Invalid streaming output mode: append. This output mode is not supported for streaming "
        "aggregations without watermark on streaming DataFrames/DataSets",
    ]
    assert [path.name for path in bench.directory.iterdir()] == ["p.toml"]


def test_topics_that_are_missing_are_named(bench: Bench, errors: Errors) -> None:
    bench.create("orders")
    bench.write(ORDERS + COPY + '[dead_letters]\ntopic = "@-dead"\n')
    assert bench.run(checks_only=True) == 3
    names = f"topic '{bench.prefix}-copy' and no topic '{bench.prefix}-dead'"
    servers = bench.broker.bootstrap_servers
    assert errors() == [f"error: there is no {names} at {servers}; create it first, or correct the name"]


def test_a_cluster_that_does_not_answer_is_named(bench: Bench, errors: Errors) -> None:
    bench.write(ORDERS + COPY)
    assert bench.run(bootstrap_servers="127.0.0.1:1") == 3
    (expected,) = errors()
    assert expected.startswith("error: the cluster at 127.0.0.1:1 cannot be asked: cannot connect to 127.0.0.1:1")


def test_invalid_options_of_a_source_are_reported_before_spark_runs(bench: Bench, errors: Errors) -> None:
    bench.write(ORDERS.replace("watermark", "options = { 'group.id' = 'x' }\nwatermark") + COPY)
    assert bench.run() == 2
    bench.write(ORDERS.replace("watermark", "options = { maxOfsetsPerTrigger = 1 }\nwatermark") + COPY)
    assert bench.run() == 2
    bench.write(ORDERS + COPY)
    assert bench.run(start="soon") == 2
    assert errors() == [
        f"error: {bench.file}:5: sources.orders: option 'group.id': the pipeline sets it, from name",
        f"error: {bench.file}:5: sources.orders: option 'maxOfsetsPerTrigger': there is no such option; "
        "did you mean 'maxOffsetsPerTrigger'?",
        "error: command line: --from: it must be earliest, latest, JSON or a time from now such as '-1h', not 'soon'",
    ]
