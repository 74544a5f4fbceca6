"""A copier's process, which can be killed, paused and restarted under the same transactional id."""

import subprocess
import sys
from collections.abc import Sequence
from signal import SIGCONT, SIGSTOP, SIGTERM
from threading import Thread
from typing import IO

from logbrook.testing.copy.copier import BEGAN, COPIED, GAVE_UP, WROTE
from logbrook.testing.processes import ChildProcess
from logbrook.testing.reaper import Reaper

_EXIT_TIMEOUT_S = 10


class CopierProcess(ChildProcess):
    """`flags` are the copier's arguments besides its name."""

    def __init__(self, name: str, flags: Sequence[str], log_path: str, reaper: Reaper) -> None:
        super().__init__(log_path, reaper)
        self.name = name
        self.copied = 0
        """Records it has reported as copied, over all restarts."""
        self.has_begun = False
        """True once its predecessor's transaction has ended and it handles signals."""
        self.is_in_transaction = False
        """True while it has an open transaction with records."""
        self.gave_up: list[str] = []
        """The reasons of its unplanned exits."""
        self._flags = tuple(flags)
        self._output_reader: Thread | None = None

    def start(self) -> None:
        self.has_begun = self.is_in_transaction = False
        command = [sys.executable, "-m", "logbrook.testing.copy.copier", "--name", self.name, *self._flags]
        output = self.launch(command, stdout=subprocess.PIPE).stdout
        self._output_reader = Thread(target=self._read_output, args=(output,), name=f"{self.name} output")
        self._output_reader.start()

    def pause(self) -> None:
        self.signal(SIGSTOP)

    def resume(self) -> None:
        self.signal(SIGCONT)

    def stop(self, timeout_s: float) -> int:
        """Send SIGTERM and return the exit code. Raises subprocess.TimeoutExpired."""
        self.signal(SIGTERM)
        return self.wait(timeout_s)

    def wait(self, timeout_s: float) -> int:
        code = super().wait(timeout_s)
        assert self._output_reader is not None, "it lives as long as the process"
        self._output_reader.join()
        return code

    def revive(self) -> None:
        """Restart it if it has exited by itself."""
        if self.exit_code is not None:
            code = self.wait(_EXIT_TIMEOUT_S)
            self.gave_up.append(f"{self.name} exited by itself with {code}")
            self.start()

    def _read_output(self, output: IO[bytes]) -> None:
        with output:
            for line in map(bytes.decode, output):
                if line.startswith(BEGAN):
                    self.has_begun = True
                elif line.startswith(WROTE):
                    self.is_in_transaction = True
                elif line.startswith(COPIED):
                    self.is_in_transaction = False
                    self.copied += int(line.removeprefix(COPIED))
                elif line.startswith(GAVE_UP):
                    self.gave_up.append(f"{self.name} {line.strip()}")
