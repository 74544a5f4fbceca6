"""A copier in a process of its own, again and again under one name: it can be killed, held up and started anew."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from threading import Thread
from typing import IO

from logbrook.testing.copy.copier import BEGAN, COPIED, GAVE_UP, WROTE
from logbrook.testing.kill.guardian import Guardian

_GONE_TIMEOUT_S = 10


class CopierProcess:
    """Not running at first. `flags` are what the copier gets besides its name."""

    def __init__(self, name: str, flags: Sequence[str], log_path: str, guardian: Guardian) -> None:
        self.name = name
        self.copied = 0
        """How many records it has said to have copied, in all of its lives."""
        self.has_begun = False
        """Whether the transaction of its life before is over, and it listens to signals."""
        self.is_inside = False
        """Whether a transaction of it is open and has records."""
        self.gave_up: list[str] = []
        """Why it ended by itself, each time."""
        self._flags = tuple(flags)
        self._log_path = log_path
        self._guardian = guardian
        self._process: subprocess.Popen[str] | None = None
        self._listener: Thread | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        assert self._process is None, "it is started once per life"
        self.has_begun = self.is_inside = False
        command = [sys.executable, "-m", "logbrook.testing.copy.copier", "--name", self.name, *self._flags]
        with open(self._log_path, "ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._guardian.watch_group(self._process.pid)
        assert self._process.stdout is not None, "it was opened with a pipe"
        self._listener = Thread(target=self._listen, args=(self._process.stdout,), name=f"{self.name} listener")
        self._listener.start()

    def kill(self) -> None:
        """SIGKILL, in whatever state it is. When this returns the process is gone."""
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._reap(_GONE_TIMEOUT_S)

    def hold_up(self) -> None:
        self._signal(signal.SIGSTOP)

    def let_go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def stop(self, timeout_s: float) -> int:
        """SIGTERM. What it ended with. Raises subprocess.TimeoutExpired if it does not end."""
        self._signal(signal.SIGTERM)
        return self._reap(timeout_s)

    def revive(self) -> bool:
        """Start it anew if it has ended by itself. Whether it had."""
        if self._process is None or self._process.poll() is None:
            return False
        code = self._reap(_GONE_TIMEOUT_S)
        self.gave_up.append(f"{self.name} ended by itself with {code}")
        self.start()
        return True

    def _listen(self, output: IO[str]) -> None:
        for line in output:
            if line.startswith(BEGAN):
                self.has_begun = True
            elif line.startswith(WROTE):
                self.is_inside = True
            elif line.startswith(COPIED):
                self.is_inside = False
                self.copied += int(line.removeprefix(COPIED))
            elif line.startswith(GAVE_UP):
                self.gave_up.append(f"{self.name} {line.strip()}")

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "there is a process"
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _reap(self, timeout_s: float) -> int:
        assert self._process is not None, "there is a process"
        assert self._process.stdout is not None, "it was opened with a pipe"
        assert self._listener is not None, "it is there as long as the process is"
        code = self._process.wait(timeout_s)
        self._listener.join()
        self._process.stdout.close()
        self._guardian.forget_group(self._process.pid)
        self._process = self._listener = None
        return code
