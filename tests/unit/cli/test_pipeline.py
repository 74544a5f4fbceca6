"""`logbrook pipeline`, as a shell sees it, as far as it goes without Spark."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from time import time
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from logbrook import Broker
from logbrook.cli import pipeline as command
from logbrook.cli.main import app
from logbrook.client import Client
from logbrook.pipelines.report import REPORTS_TOPIC, PipelineReport, RunState, SinkReport, SourceReport
from logbrook.pipelines.reporter import write_report
from tests.unit.cli.shell import Shell


class FakeCommand(ModuleType):
    """Replaces `logbrook.spark.pipeline.command`."""

    def __init__(self) -> None:
        super().__init__("logbrook.spark.pipeline.command")
        self.requests: list[dict[str, Any]] = []

    def RunRequest(self, **fields: Any) -> dict[str, Any]:  # noqa: N802 - a class there
        return fields

    def run(self, request: dict[str, Any]) -> int:
        self.requests.append(request)
        return 4


def pipeline(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["pipeline", *arguments], env={"COLUMNS": "100"})


def test_the_options_reach_the_pipeline_and_its_exit_code_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCommand()
    monkeypatch.setitem(sys.modules, fake.__name__, fake)
    options = ["--once", "--from", "-1h", "--bootstrap-servers", "h:1"]
    options += ["--reports", "told"]
    security = ("-X", "security.protocol=SSL")
    done = pipeline("run", "o.toml", *options, "--checkpoint", "c", "--master", "local[1]", "--verbose", *security)
    assert done.exit_code == 4
    assert fake.requests == [
        {
            "file": "o.toml",
            "once": True,
            "start": "-1h",
            "bootstrap_servers": "h:1",
            "checkpoint": "c",
            "master": "local[1]",
            "reports": "told",
            "verbose": True,
            "client": {"kafka.security.protocol": "SSL"},
        }
    ]
    assert pipeline("check", "o.toml", "--explain", "--bootstrap-servers", "h:1").exit_code == 4
    checked = {"file": "o.toml", "checks_only": True, "explain": True, "bootstrap_servers": "h:1", "verbose": False}
    checked["client"] = {}
    assert fake.requests[-1] == checked
    assert pipeline("run", "o.toml", "--no-reports").exit_code == 4
    assert fake.requests[-1]["reports"] == ""
    done = pipeline("run", "o.toml", "--no-reports", "--reports", "told")
    assert (done.exit_code, done.stderr) == (2, "error: --reports / --no-reports: they cannot be combined\n")


def test_without_spark_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    done = pipeline("run", "o.toml")
    message = "error: pipelines need Spark, which is not installed: pip install '.[spark]' in a clone of Logbrook\n"
    assert (done.exit_code, done.stdout, done.stderr) == (5, "", message)


def test_an_example_is_written_once(tmp_path: Path) -> None:
    done = pipeline("init", str(tmp_path))
    assert (done.exit_code, done.stdout) == (0, f"{tmp_path}/README.md\n{tmp_path}/orders.toml\n")
    again = pipeline("init", str(tmp_path))
    assert again.exit_code == 2
    assert "nothing was written" in again.stderr


def test_pipelines_are_listed_and_forgotten(tmp_path: Path) -> None:
    with Broker() as broker, Client(broker.bootstrap_servers) as client:
        shell = Shell(broker.bootstrap_servers, tmp_path)
        assert shell.json("pipeline", "list") == []
        assert shell.run("pipeline", "list").err == "no pipeline has run yet; `logbrook pipeline run FILE` starts one\n"
        now_ms = round(time() * 1000)
        running = PipelineReport(
            pipeline="orders",
            state=RunState.RUNNING,
            since_ms=now_ms - 60_000,
            said_ms=now_ms + 60_000,
            interval_ms=5_000,
            host="here",
            pid=7,
            version="1",
            sinks=(SinkReport("orders-totals", 1_000, 12.5, 3, 0.25, now_ms),),
            sources=(SourceReport("orders", 42),),
        )
        failed = replace(running, pipeline="broken", state=RunState.FAILED, error="offset 3 is gone\nand more")
        lost = replace(running, pipeline="gone", said_ms=now_ms - 60_000)
        for report in (running, failed, lost):
            write_report(client, REPORTS_TOPIC, report.pipeline, report.to_json())
        listed = shell.json("pipeline", "list")
        assert [(row["pipeline"], row["state"]) for row in listed] == [
            ("broken", "failed"),
            ("gone", "lost"),
            ("orders", "running"),
        ]
        assert (listed[2]["rows_per_s"], listed[2]["lag"], listed[2]["batch_s"]) == (12.5, 42, 0.25)
        assert listed[2]["sinks"][0]["name"] == "orders-totals"
        table = shell.ok("pipeline", "list").splitlines()
        assert " ".join(table[0].split()) == "PIPELINE STATE ROWS/S LAG BATCH TIME RESTARTS SINCE HOST ERROR"
        assert "offset 3 is gone" in table[1]
        assert len(table) == 4
        assert "lost" in shell.on_terminal("pipeline", "list")[1]
        assert shell.ok("pipeline", "forget", "gone") == "forgot gone\n"
        assert [row["pipeline"] for row in shell.json("pipeline", "list")] == ["broken", "orders"]
        message = shell.refused("pipeline", "forget", "gone")
        assert message == "there is no pipeline gone; `logbrook pipeline list` shows the pipelines"
        assert shell.json("pipeline", "list", "--reports", "elsewhere") == []


def test_the_help_lists_the_exit_codes() -> None:
    shown = pipeline("run", "--help").stdout
    for line in ("0  done", "2  the file", "3  the cluster", "4  a query failed", "5  Spark", "130, 143"):
        assert line in shown


def test_the_help_loads_nothing_of_spark() -> None:
    unwanted = ("pyspark", "numpy", "pyarrow", "logbrook.spark.sessions")
    script = (
        "import sys\nfrom logbrook.cli.main import app\n"
        "try:\n    app(['pipeline', 'run', '--help'])\nexcept SystemExit:\n    pass\n"
        f"sys.exit(repr([name for name in {unwanted!r} if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.stderr.splitlines()[-1] == "[]"
