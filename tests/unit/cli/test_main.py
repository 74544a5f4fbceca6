"""The `logbrook` command, as a shell sees it."""

import subprocess
import sys
from pathlib import Path

from logbrook import __version__

LOGBROOK = Path(sys.executable).parent / "logbrook"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([LOGBROOK, *arguments], capture_output=True, text=True, check=False)


def test_it_tells_its_version() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"logbrook {__version__}\n")


def test_without_arguments_it_shows_its_help() -> None:
    assert "Usage: logbrook" in run().stdout


def test_a_command_that_is_not_there_is_refused_by_name() -> None:
    done = run("nonsense")
    assert done.returncode == 2
    assert "nonsense" in done.stderr


def test_it_starts_without_numpy_numba_and_pyarrow() -> None:
    script = "import sys, logbrook.cli.main; print([m for m in ('numpy', 'numba', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
