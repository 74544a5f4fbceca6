"""A broker in its own process, for tests that kill it.

It keeps its port and data directory across restarts; the output of all its processes goes to one log file.
"""

import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from signal import SIGTERM
from time import monotonic

from logbrook.testing.processes import ChildProcess, wait_until
from logbrook.testing.reaper import Reaper

_HOST = "127.0.0.1"
_ANSWER_TIMEOUT_S = 2
# ApiVersions, version 0, correlation id 1, no client id.
_API_VERSIONS = struct.pack(">hhih", 18, 0, 1, -1)


class BrokerProcess(ChildProcess):
    """`flags` are passed to `logbrook serve` besides data directory and address."""

    def __init__(self, data: str, port: int, log_path: str, flags: Sequence[str], reaper: Reaper) -> None:
        super().__init__(log_path, reaper)
        self.data = data
        self.address = f"{_HOST}:{port}"
        self.lives = 0
        self._port = port
        self._flags = tuple(flags)

    def start(self) -> None:
        self.lives += 1
        with open(self._log_path, "ab") as log:
            log.write(f"--- life {self.lives}\n".encode())
        command = [sys.executable, "-m", "logbrook", "serve", "--data", self.data, "--listen", self.address]
        self.launch([*command, *self._flags])

    def wait_until_ready(self, timeout_s: float) -> float:
        """Return the seconds until it answered a request. Raises BrokerFailedError if it exits or the time is up."""
        begun = monotonic()
        answered = wait_until(lambda: not self.is_running or self._answers(), timeout_s)
        if not self.is_running:
            raise self._failed("the broker exited while starting")
        if not answered:
            raise self._failed(f"the broker did not answer within {timeout_s:.0f} s of its start")
        return monotonic() - begun

    def kill(self) -> None:
        """Send SIGKILL and wait for the exit. Raises BrokerFailedError if it had exited by itself."""
        self.check_running()
        self.end()

    def stop(self, timeout_s: float) -> None:
        """Send SIGTERM. Raises BrokerFailedError if it does not exit in time or with a code other than 0."""
        self.begin_stop()
        self.finish_stop(timeout_s)

    def begin_stop(self) -> None:
        """Send SIGTERM. Raises BrokerFailedError if it had exited by itself."""
        self.check_running()
        self.signal(SIGTERM)

    def finish_stop(self, timeout_s: float) -> None:
        """Wait for the exit after `begin_stop`. Raises as `stop` does."""
        try:
            code = self.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise self._failed(f"the broker did not stop within {timeout_s:.0f} s") from None
        if code != 0:
            raise self._failed(f"the broker exited with {code} on SIGTERM")

    def check_running(self) -> None:
        """Raises BrokerFailedError if it exited by itself."""
        if not self.is_running:
            raise self._failed("the broker exited by itself")

    def _answers(self) -> bool:
        try:
            with socket.create_connection((_HOST, self._port), timeout=_ANSWER_TIMEOUT_S) as connection:
                connection.sendall(struct.pack(">i", len(_API_VERSIONS)) + _API_VERSIONS)
                return len(connection.recv(4)) > 0
        except OSError:
            return False

    def _failed(self, problem: str) -> "BrokerFailedError":
        code = self.exit_code
        return BrokerFailedError(f"{problem} (exit code {code})" if code is not None else problem, self.log_tail())


class BrokerFailedError(Exception):
    """The broker failed outside of the test's plan. Carries the end of its log."""

    def __init__(self, problem: str, log_tail: str) -> None:
        self.problem = problem
        self.log_tail = log_tail
        super().__init__(f"{problem}. The end of its log:\n{log_tail or '(empty)'}")
