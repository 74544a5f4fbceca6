"""Pipelines in Python files."""

import pytest

from logbrook.pipelines.report import RunState, SourceReport
from tests.spark.pipeline_bench import Bench, Errors

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
    assert bench.run(checks_only=True) == 0
    assert capsys.readouterr().out == f"pipeline {bench.file}: 1 query, copying-1\n"
    for _ in range(2):
        assert bench.run(once=True, checkpoint=str(bench.directory / "checkpoint")) == 0
    assert [row.value for row in bench.records("out")] == [b"a", b"b"]
    assert "copying: batch 0, 2 rows in " in capsys.readouterr().out
    said = [report for report in bench.reports()["copying"] if report.state is RunState.STOPPED]
    assert [sum(sink.rows for sink in report.sinks) for report in said] == [2, 0]
    assert said[0].sources == (SourceReport(f"{bench.prefix}-in", 0),)


@pytest.mark.parametrize(
    ("text", "expected"),
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
def test_an_invalid_python_file_is_reported_with_its_line(
    bench: Bench, errors: Errors, text: str, expected: str
) -> None:
    bench.file = bench.directory / "p.py"
    bench.file.write_text(text)
    assert bench.run(once=True) == 2
    assert errors() == [f"error: {bench.file}{expected}"]
    assert bench.spark.streams.active == []


def test_options_that_only_a_toml_file_takes_are_refused_for_python(bench: Bench, errors: Errors) -> None:
    bench.file = bench.directory / "p.py"
    assert bench.run(start="-1h") == 2
    assert errors() == ["error: command line: --from is for a pipeline in a TOML file"]
