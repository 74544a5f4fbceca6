"""The Go program beside this file, built into the user's cache with the modules of its go.sum."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.interop.java.download_cache import MissingToolError, cache_directory, fetch, key_of, locked

HERE = Path(__file__).parent
# More than the time limit of a scenario, after which it says what it waited for.
RUN_S_MAX = 60.0


def build_scenarios() -> Path:
    """Return the path of the program. Raises MissingToolError without Go, or without its modules."""
    if shutil.which("go") is None:
        raise MissingToolError("there is no go on this machine")
    sources = sorted(path for path in HERE.iterdir() if path.suffix in (".go", ".mod", ".sum"))
    directory = cache_directory("go")
    program = directory / f"scenarios-{key_of(*(path.read_text() for path in sources))}"
    with locked(directory):
        if not program.exists():
            new = Path(f"{program}.new")
            fetch(["go", "build", "-buildvcs=false", "-o", str(new), "."], HERE)
            new.rename(program)
    return program


def run_scenario(program: Path, name: str, servers: str, environment: Mapping[str, str] | None = None) -> None:
    """Raises AssertionError with the program's output if the scenario fails."""
    done = subprocess.run(
        [str(program), name, servers],
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert done.returncode == 0, f"{name} ended with {done.returncode}\n{done.stdout}"
