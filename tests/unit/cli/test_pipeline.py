"""`logbrook pipeline`, as a shell sees it, as far as it goes without Spark."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from logbrook.cli import pipeline as command
from logbrook.cli.main import app


class FakeCommand(ModuleType):
    """Takes the place of `logbrook.spark.pipeline.command`."""

    def __init__(self) -> None:
        super().__init__("logbrook.spark.pipeline.command")
        self.requests: list[dict[str, Any]] = []

    def Request(self, **fields: Any) -> dict[str, Any]:  # noqa: N802 - a class there
        return fields

    def run(self, request: dict[str, Any]) -> int:
        self.requests.append(request)
        return 4


def pipeline(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["pipeline", *arguments], env={"COLUMNS": "100"})


def test_the_options_reach_the_pipeline_and_its_exit_code_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCommand()
    monkeypatch.setitem(sys.modules, fake.__name__, fake)
    options = ["--dry-run", "--once", "--from", "-1h", "--bootstrap-servers", "h:1"]
    done = pipeline("run", "o.toml", *options, "--checkpoint", "c", "--master", "local[1]", "--verbose")
    assert done.exit_code == 4
    assert fake.requests == [
        {
            "file": "o.toml",
            "dry_run": True,
            "once": True,
            "start": "-1h",
            "bootstrap_servers": "h:1",
            "checkpoint": "c",
            "master": "local[1]",
            "verbose": True,
        }
    ]


def test_without_spark_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    done = pipeline("run", "o.toml")
    told = "error: pipelines run on Spark, which is not here: pip install 'logbrook[spark]'\n"
    assert (done.exit_code, done.stdout, done.stderr) == (5, "", told)


def test_an_example_is_written_once(tmp_path: Path) -> None:
    done = pipeline("init", str(tmp_path))
    assert (done.exit_code, done.stdout) == (0, f"{tmp_path}/README.md\n{tmp_path}/orders.toml\n")
    again = pipeline("init", str(tmp_path))
    assert again.exit_code == 2
    assert "nothing is overwritten" in again.stderr


def test_the_help_tells_the_exit_codes() -> None:
    shown = pipeline("run", "--help").stdout
    for line in ("0  it is done", "2  the file", "3  the cluster", "4  a query failed", "5  Spark", "130, 143"):
        assert line in shown


def test_the_help_loads_nothing_of_spark() -> None:
    unwanted = ("pyspark", "numpy", "pyarrow", "logbrook.spark.sessions")
    script = (
        "import sys\nfrom logbrook.cli.main import app\n"
        "try:\n    app(['pipeline', 'run', '--help'])\nexcept SystemExit:\n    pass\n"
        f"sys.exit(repr([name for name in {unwanted!r} if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == "[]"
