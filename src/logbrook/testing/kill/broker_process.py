"""A broker in a process of its own, which can be killed like one.

It keeps its port and its data directory over all of its lives, and one log file takes what they say.
"""

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from time import monotonic

from logbrook.testing.kill.errors import BrokerFailedError
from logbrook.testing.kill.guardian import Guardian
from logbrook.testing.kill.waiting import wait_until

_HOST = "127.0.0.1"
_TAIL_BYTES = 4096
_GONE_TIMEOUT_S = 10
_ANSWER_TIMEOUT_S = 2
# ApiVersions, version 0, correlation id 1, no client id: what every client asks first.
_API_VERSIONS = struct.pack(">hhih", 18, 0, 1, -1)


class BrokerProcess:
    """Not running at first. `flags` are what `logbrook serve` gets besides its data and its address."""

    def __init__(self, data: str, port: int, log_path: str, flags: Sequence[str], guardian: Guardian) -> None:
        self.data = data
        self.address = f"{_HOST}:{port}"
        self.lives = 0
        self._port = port
        self._log_path = log_path
        self._flags = tuple(flags)
        self._guardian = guardian
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        assert self._process is None, "it is started once per life"
        self.lives += 1
        command = [sys.executable, "-m", "logbrook", "serve", "--data", self.data, "--listen", self.address]
        with open(self._log_path, "ab") as log:
            log.write(f"--- life {self.lives}\n".encode())
            log.flush()
            self._process = subprocess.Popen(
                [*command, *self._flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._guardian.watch_group(self._process.pid)

    def wait_until_it_answers(self, timeout_s: float) -> float:
        """How long it took. Raises BrokerFailedError if it ends, or if the time does."""
        begun = monotonic()
        answered = wait_until(lambda: not self.is_running or self._answers(), timeout_s)
        if not self.is_running:
            raise self._failed("the broker ended while it was starting")
        if not answered:
            raise self._failed(f"the broker did not answer within {timeout_s:.0f} s of its start")
        return monotonic() - begun

    def kill(self) -> None:
        """SIGKILL. When this returns the process is gone. Raises BrokerFailedError if it had ended by itself."""
        self.check_running()
        self._signal_group(signal.SIGKILL)
        self._reap(_GONE_TIMEOUT_S)

    def stop(self, timeout_s: float) -> None:
        """SIGTERM. Raises BrokerFailedError if it does not end in time, or ends with anything but 0."""
        self.check_running()
        self._signal_group(signal.SIGTERM)
        try:
            code = self._reap(timeout_s)
        except subprocess.TimeoutExpired:
            raise self._failed(f"the broker did not stop within {timeout_s:.0f} s") from None
        if code != 0:
            raise self._failed(f"the broker was asked to stop and ended with {code}")

    def check_running(self) -> None:
        """Raises BrokerFailedError if it ended by itself."""
        if not self.is_running:
            raise self._failed("the broker ended by itself")

    def end(self) -> None:
        """Whatever state it is in: afterwards it is not running."""
        if self._process is not None:
            self._signal_group(signal.SIGKILL)
            self._reap(_GONE_TIMEOUT_S)

    def log_tail(self) -> str:
        try:
            with open(self._log_path, "rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - _TAIL_BYTES))
                return log.read().decode(errors="replace").strip()
        except FileNotFoundError:
            return ""

    def _answers(self) -> bool:
        try:
            with socket.create_connection((_HOST, self._port), timeout=_ANSWER_TIMEOUT_S) as connection:
                connection.sendall(struct.pack(">i", len(_API_VERSIONS)) + _API_VERSIONS)
                return len(connection.recv(4)) > 0
        except OSError:
            return False

    def _signal_group(self, number: signal.Signals) -> None:
        assert self._process is not None, "there is a process"
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _reap(self, timeout_s: float) -> int:
        assert self._process is not None, "there is a process"
        code = self._process.wait(timeout_s)
        self._guardian.forget_group(self._process.pid)
        self._process = None
        return code

    def _failed(self, what: str) -> BrokerFailedError:
        code = None if self._process is None else self._process.poll()
        return BrokerFailedError(f"{what} (code {code})" if code is not None else what, self.log_tail())
