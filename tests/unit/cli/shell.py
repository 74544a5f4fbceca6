"""The `logbrook` command as a shell runs it: its output in a pipe, or on a terminal."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any, NamedTuple

from tests.unit.cli.invocation import SECONDS_MAX, invoke, invoke_on_terminal

LOGBROOK = str(Path(sys.executable).parent / "logbrook")


class Done(NamedTuple):
    code: int
    out: str
    err: str


class Shell:
    """Runs commands against one cluster, with a configuration directory of its own."""

    def __init__(self, bootstrap: str | None, home: Path) -> None:
        others = {name: value for name, value in os.environ.items() if not name.startswith(("LOGBROOK_", "XDG_"))}
        # Variables of the caller's environment that would change the type or colours of the terminal.
        others = {name: value for name, value in others.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
        self.environment = others | {"XDG_CONFIG_HOME": str(home), "HOME": str(home), "TERM": "xterm"}
        if bootstrap is not None:
            self.environment["LOGBROOK_BOOTSTRAP"] = bootstrap

    def run(self, *arguments: str, stdin: str | bytes = b"") -> Done:
        given = stdin.encode() if isinstance(stdin, str) else stdin
        done = invoke(*arguments, environment=self.environment, stdin=given)
        assert b"Traceback" not in done.stderr, done.stderr.decode()
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    def ok(self, *arguments: str, stdin: str | bytes = b"") -> str:
        """Run a command that must succeed and return its standard output."""
        done = self.run(*arguments, stdin=stdin)
        assert done.code == 0, done
        return done.out

    def json(self, *arguments: str, stdin: str | bytes = b"") -> Any:
        return json.loads(self.ok(*arguments, "--json", stdin=stdin))

    def lines(self, *arguments: str) -> list[Any]:
        return [json.loads(line) for line in self.ok(*arguments, "--json").splitlines()]

    def refused(self, *arguments: str, code: int = 1, stdin: str | bytes = b"") -> str:
        """Run a command that must fail, and return its error message."""
        done = self.run(*arguments, stdin=stdin)
        assert done.code == code, done
        assert done.out == ""
        assert done.err.startswith("error: ")
        assert done.err.count("\n") == 1
        return done.err.removeprefix("error: ").rstrip("\n")

    @contextmanager
    def start(self, *arguments: str, prelude: str | None = None) -> Iterator[subprocess.Popen[bytes]]:
        """A process whose streams are pipes. It is killed after `SECONDS_MAX`, so that reads end, or on leaving.

        `prelude` is Python that is run before the command, for example to shorten intervals.
        """
        pipe = subprocess.PIPE
        script = f"{prelude}\nfrom logbrook.cli.main import app\napp(prog_name='logbrook')"
        command = [LOGBROOK] if prelude is None else [sys.executable, "-c", script]
        with subprocess.Popen(
            [*command, *arguments], stdin=pipe, stdout=pipe, stderr=pipe, env=self.environment
        ) as process:
            watchdog = Timer(SECONDS_MAX, process.kill)
            watchdog.start()
            try:
                yield process
            finally:
                watchdog.cancel()
                process.kill()

    def on_terminal(self, *arguments: str, width: int = 100, typed: str = "") -> tuple[int, str]:
        """Return the exit code, and the output on a terminal without colours."""
        return invoke_on_terminal(*arguments, environment=self.environment, width=width, typed=typed)
