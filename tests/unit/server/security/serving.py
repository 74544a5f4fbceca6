"""A broker in a process of its own, as `logbrook serve` runs it."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.processes import running


@contextmanager
def serving(settings: Path, log: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """Run a real broker whose log goes to a file."""
    command = [sys.executable, "-m", "logbrook", "serve", "--config", str(settings), "--data", str(log.parent / "data")]
    with running(command, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "broker started" in line:
                break
        assert process.poll() is None, "".join(lines)
        yield
        process.terminate()
        log.write_text("".join([*lines, *process.stderr]))
        process.wait(30)
