"""The `logbrook` command as a shell runs it: its output in a pipe, or on a terminal."""

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any, NamedTuple

LOGBROOK = str(Path(sys.executable).parent / "logbrook")
SECONDS_MAX = 120
_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Done(NamedTuple):
    code: int
    out: str
    err: str


class Shell:
    """Runs commands against one cluster, with a configuration directory of its own."""

    def __init__(self, bootstrap: str | None, home: Path) -> None:
        others = {name: value for name, value in os.environ.items() if not name.startswith(("LOGBROOK_", "XDG_"))}
        # A terminal would be taken for one that shows nothing but text, or colours, by what the tests are run from.
        others = {name: value for name, value in others.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
        self.environment = others | {"XDG_CONFIG_HOME": str(home), "HOME": str(home), "TERM": "xterm"}
        if bootstrap is not None:
            self.environment["LOGBROOK_BOOTSTRAP"] = bootstrap

    def run(self, *arguments: str, stdin: str | bytes = b"") -> Done:
        given = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            [LOGBROOK, *arguments],
            input=given,
            capture_output=True,
            env=self.environment,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert b"Traceback" not in done.stderr, done.stderr.decode()
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    def ok(self, *arguments: str, stdin: str | bytes = b"") -> str:
        """What it prints, and it has to succeed."""
        done = self.run(*arguments, stdin=stdin)
        assert done.code == 0, done
        return done.out

    def json(self, *arguments: str, stdin: str | bytes = b"") -> Any:
        return json.loads(self.ok(*arguments, "--json", stdin=stdin))

    def lines(self, *arguments: str) -> list[Any]:
        return [json.loads(line) for line in self.ok(*arguments, "--json").splitlines()]

    def refused(self, *arguments: str, code: int = 1, stdin: str | bytes = b"") -> str:
        """The one sentence that it says when it cannot do what it should."""
        done = self.run(*arguments, stdin=stdin)
        assert done.code == code, done
        assert done.out == ""
        assert done.err.startswith("error: ")
        assert done.err.count("\n") == 1
        return done.err.removeprefix("error: ").rstrip("\n")

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """It runs on; what it prints can be read. For `with`."""
        pipe = subprocess.PIPE
        return subprocess.Popen([LOGBROOK, *arguments], stdin=pipe, stdout=pipe, stderr=pipe, env=self.environment)

    def on_terminal(self, *arguments: str, width: int = 100, typed: str = "") -> tuple[int, str]:
        """Its exit code, and what a person sees, without colours."""
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
        process = subprocess.Popen(
            [LOGBROOK, *arguments], stdin=follower, stdout=follower, stderr=follower, env=self.environment
        )
        os.close(follower)
        os.write(leader, typed.encode())
        seen = b""
        try:
            while select.select([leader], [], [], SECONDS_MAX)[0]:
                seen += os.read(leader, 65536)
        except OSError:
            # That is how a terminal says that nobody has it open any more.
            pass
        finally:
            os.close(leader)
        return process.wait(SECONDS_MAX), _STYLE.sub("", seen.decode()).replace("\r\n", "\n")
