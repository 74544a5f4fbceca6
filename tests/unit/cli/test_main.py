"""The `logbrook` command, as a shell sees it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from logbrook import __version__
from logbrook.cli.main import app
from tests.unit.cli.invocation import SECONDS_MAX, invoke

LOGBROOK = Path(sys.executable).parent / "logbrook"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([LOGBROOK, *arguments], capture_output=True, text=True, timeout=SECONDS_MAX, check=False)


def test_version_is_printed() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"logbrook {__version__}\n")


def test_without_arguments_it_shows_its_help() -> None:
    assert b"Usage: logbrook" in invoke().stdout


def test_an_unknown_command_is_refused_by_name() -> None:
    done = invoke("nonsense")
    assert done.returncode == 2
    assert b"nonsense" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (
            ["--version"],
            ["rich", "asyncio", "numpy", "numba", "pyarrow", "logbrook.config", "logbrook.server", "logbrook.spark"],
        ),
        (
            ["produce", "t", "-b", "127.0.0.1:1", "--whole", "--delimiter", ";"],
            ["rich", "asyncio", "numpy", "numba", "pyarrow", "logbrook.config", "logbrook.server", "logbrook.spark"],
        ),
        (["config", "show"], ["rich", "asyncio", "logbrook.server", "logbrook.spark"]),
        (["serve", "--partitions", "0"], ["rich", "asyncio", "logbrook.server", "logbrook.spark"]),
    ],
)
def test_a_command_loads_only_what_it_needs(arguments: list[str], unwanted: list[str]) -> None:
    script = (
        "import sys\nfrom logbrook.cli.main import app\n"
        f"try:\n    app({arguments!r})\nexcept SystemExit:\n    pass\n"
        f"sys.exit(repr([name for name in {unwanted!r} if name in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.stderr.splitlines()[-1] == "[]"


def test_the_help_lists_the_commands() -> None:
    shown = invoke("--help").stdout
    assert b"serve" in shown
    assert b"config" in shown


def test_invalid_settings_end_with_2_and_no_traceback() -> None:
    done = run("serve", "--durability", "maybe")
    message = 'error: command line: --durability = "maybe", but it must be fsync or interval\n'
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)


def test_the_line_of_a_command_in_the_help_is_that_of_its_own_help() -> None:
    root: Any = typer.main.get_command(app)
    lines = {name: command.help for name, command in root.commands.items()}
    for name, line in lines.items():
        own = root.resolve_command(None, [name])[1].help
        assert own.startswith(line.removesuffix(".").removesuffix(" (on Spark)")), name
