"""Processes of a test: free ports, bounded waits, and a temporary directory whose processes cannot outlive the test."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from random import SystemRandom
from threading import Event
from time import monotonic

from logbrook.testing.reaper import Reaper

_PORT_RANGE_FILE = "/proc/sys/net/ipv4/ip_local_port_range"
_EPHEMERAL_PORT_FIRST = 32_768
_PORT_FIRST = 20_000
_TRIES = 200
_POLL_S = 0.002
_EXIT_TIMEOUT_S = 10
_TAIL_BYTES = 4096


class ChildProcess:
    """A process that can be killed and started again; not running initially.

    It has a session of its own, so that signals reach its children too. `reaper` kills it if the test process dies. The
    output of all its lives is appended to one log file.
    """

    def __init__(self, log_path: str, reaper: Reaper) -> None:
        self._log_path = log_path
        self._reaper = reaper
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The exit code, until `wait` has returned it."""
        return None if self._process is None else self._process.poll()

    def launch(
        self,
        command: Sequence[str],
        *,
        stdin: int = subprocess.DEVNULL,
        stdout: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> "subprocess.Popen[bytes]":
        """Start it. Standard output goes to the log unless `stdout` is given."""
        assert self._process is None, "it is running already"
        with open(self._log_path, "ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=stdin,
                stdout=log if stdout is None else stdout,
                stderr=log,
                start_new_session=True,
                env=env,
            )
        self._reaper.watch_group(self._process.pid)
        return self._process

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "it is running"
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def wait(self, timeout_s: float) -> int:
        """Wait for the exit and return the exit code. Raises subprocess.TimeoutExpired."""
        assert self._process is not None, "it is running"
        code = self._process.wait(timeout_s)
        self._reaper.forget_group(self._process.pid)
        self._process = None
        return code

    def end(self) -> None:
        """Send SIGKILL if it is running, and wait for the exit."""
        if self._process is not None:
            self.signal(signal.SIGKILL)
            self.wait(_EXIT_TIMEOUT_S)

    def log_tail(self) -> str:
        try:
            with open(self._log_path, "rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - _TAIL_BYTES))
                return log.read().decode(errors="replace").strip()
        except FileNotFoundError:
            return ""


def free_port() -> int:
    """Return a free port of 127.0.0.1 below the kernel's ephemeral range. Raises OSError if there is none.

    No other call returns it while this process lives, in any process: a socket stays bound to it, without listening.
    Servers can bind it too, because they set SO_REUSEADDR.

    A client that keeps reconnecting to a dead broker on an ephemeral port could be given that port as its own source
    port: it would then be connected to itself, and the broker could not bind the port again.
    """
    rng = SystemRandom()
    end = max(_PORT_FIRST + 1, _ephemeral_port_first())
    for _ in range(_TRIES):
        port = rng.randrange(_PORT_FIRST, end)
        if _reserve(port):
            return port
    raise OSError(f"no free port from {_PORT_FIRST} to {end - 1} in {_TRIES} tries")


def _reserve(port: int) -> bool:
    """Bind a socket to the port until the process ends. False if another socket is bound to it."""
    with socket.socket() as holder:
        try:
            # Without SO_REUSEADDR, which would allow two processes to reserve the port.
            holder.bind(("127.0.0.1", port))
        except OSError:
            return False
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # From here on only the end of the process closes it.
        holder.detach()
    return True


def _ephemeral_port_first() -> int:
    try:
        with open(_PORT_RANGE_FILE) as file:
            return int(file.read().split()[0])
    except (OSError, ValueError):
        return _EPHEMERAL_PORT_FIRST


def wait_until(condition: Callable[[], bool], timeout_s: float, poll_s: float = _POLL_S) -> bool:
    """Poll until `condition()` is true or the time is up. Returns its last value."""
    never = Event()
    deadline = monotonic() + timeout_s
    while not condition():
        if monotonic() >= deadline:
            return condition()
        never.wait(poll_s)
    return True


def pause(seconds: float) -> None:
    """Let time pass where the delay itself is part of the test, such as the moment of a kill."""
    Event().wait(seconds)


@contextmanager
def working_directory(name: str) -> Iterator[tuple[str, Reaper]]:
    """A temporary directory and a `Reaper` for it. Afterwards the directory and all watched processes are gone."""
    directory = tempfile.mkdtemp(prefix=f"logbrook-{name}-")
    try:
        with Reaper() as reaper:
            reaper.watch_directory(directory)
            yield directory, reaper
    finally:
        shutil.rmtree(directory, ignore_errors=True)
