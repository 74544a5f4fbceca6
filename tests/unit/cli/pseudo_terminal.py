"""A command on a pseudo-terminal, as in an interactive session."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Self

from tests.processes import is_readable

LOGBROOK = Path(sys.executable).parent / "logbrook"

_PATIENCE_S = 60.0
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\r")


class PseudoTerminal:
    """Runs `logbrook` with `arguments`; leaving `with` ends it in any case."""

    def __init__(
        self, *arguments: str, rows: int = 24, columns: int = 80, environment: Mapping[str, str] | None = None
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._written = ""
        # Variables that override the size of the terminal must not be set.
        inherited = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
        script = (
            "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
        )
        # Only a controlling terminal delivers Ctrl-C as a signal.
        self._process = subprocess.Popen(
            [sys.executable, "-c", script, str(LOGBROOK), *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env={**inherited, "TERM": "xterm-256color", **(environment or {})},
        )
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(_PATIENCE_S)
        os.close(self._ours)

    @property
    def raw(self) -> str:
        """All output so far."""
        return self._written

    @property
    def text(self) -> str:
        """All output so far, without colours and cursor movements."""
        return _CONTROL.sub("", self._written)

    @property
    def frames(self) -> list[list[str]]:
        """The complete screens drawn so far, as lines, split where the cursor moves to the top."""
        drawn = self._written.split("\x1b[H")[1:-1]
        return [_CONTROL.sub("", frame).split("\n") for frame in drawn]

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def forget(self) -> None:
        """Ignore the output so far."""
        self._written = ""

    def wait_for(self, pattern: str) -> None:
        """Wait until the output contains the text."""
        until_s = monotonic() + _PATIENCE_S
        while not re.search(pattern, self.text):
            assert monotonic() < until_s, f"{pattern!r} did not come: {self.text[-2000:]}"
            assert self._read(), f"it ended without {pattern!r}: {self.text[-2000:]}"

    def end(self) -> int:
        """Read the output to its end. Returns the exit code."""
        until_s = monotonic() + _PATIENCE_S
        while self._read():
            assert monotonic() < until_s, f"it has not ended: {self.text[-2000:]}"
        return self._process.wait(_PATIENCE_S)

    def _read(self) -> bool:
        """Read the next output. Returns False at the end."""
        if not is_readable(self._ours, _PATIENCE_S):
            raise AssertionError(f"nothing came: {self.text[-2000:]}")
        try:
            data = os.read(self._ours, 65_536)
        except OSError:
            # The other side is closed.
            return False
        self._written += data.decode("utf-8", "replace")
        return bool(data)
