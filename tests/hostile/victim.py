"""A broker process under attack, and checks that it still works afterwards.

It runs `logbrook serve`. Its log is read as it is written: an error in it is a bug of the broker, whatever was sent,
because invalid input is never logged above warning.
"""

import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from types import TracebackType
from typing import Any, Self
from urllib.request import urlopen

from logbrook.client import Client
from logbrook.model.identifiers import Offset
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.testing.processes import free_port

HONEST = "honest"
MIB = 1 << 20
_START_S_MAX = 30.0
_STOP_S_MAX = 30.0
_SOCKET_S_MAX = 20.0
_LOOK_S = 0.05
# A broker under attack serves others within seconds, and the machine may be busy.
_SERVED_S_MAX = 60.0


class Victim:
    """A broker process. `flags` are those of `logbrook serve`; `descriptors` limits its open files.

    With `is_new=False` the data directory is that of an earlier broker.
    """

    def __init__(self, data: str, *flags: str, descriptors: int | None = None, is_new: bool = True) -> None:
        self._data = data
        self._flags = flags
        self._descriptors = descriptors
        self._is_new = is_new
        self._lines: list[dict[str, Any]] = []
        self._said = threading.Condition()
        self._reaped_before = 0
        self._is_killed = False
        self.host, self.port = "", 0
        self.metrics_address = f"127.0.0.1:{free_port()}"
        # Port of the listener for the JSON protocol, with `--json-port`.
        self.json_port = 0

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "logbrook", "serve", "--data", self._data, "--listen", "127.0.0.1:0"]
        command += ["--metrics", self.metrics_address, "--log-format", "json", "--durability", "interval", *self._flags]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        if self._descriptors is not None:
            resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE, (self._descriptors, self._descriptors))
        self._reading = threading.Thread(target=self._read_log, daemon=True)
        self._reading.start()
        assert self.wait_until(lambda: self.port > 0, _START_S_MAX), self._lines
        if self._is_new:
            with Client(self.address) as client:
                client.create_topic(HONEST)
            self.check()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.terminate()
        try:
            code = self._process.wait(_STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_STOP_S_MAX)
            raise
        finally:
            self._reading.join(_STOP_S_MAX)
            assert self._process.stderr is not None
            self._process.stderr.close()
        assert code == (-signal.SIGKILL if self._is_killed else 0), self._lines[-5:]

    def kill(self) -> None:
        """Send SIGKILL and wait for the process to end."""
        self._is_killed = True
        self._process.kill()
        self._process.wait(_STOP_S_MAX)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def errors(self) -> list[dict[str, Any]]:
        return [line for line in self._lines if line["level"] not in ("debug", "info", "warning")]

    @property
    def reaped(self) -> int:
        """Number of connections that the broker closed as silent, idle or stalled since `forget_errors`."""
        return self.metric("logbrook_connections_reaped_total") - self._reaped_before

    @property
    def memory_bytes(self) -> int:
        """Anonymous memory of the process; mapped segments belong to the page cache."""
        with open(f"/proc/{self._process.pid}/status") as status:
            fields = dict(line.split(":", 1) for line in status)
        return int(fields["RssAnon"].split()[0]) * 1024

    @property
    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self._process.pid}/fd"))

    @property
    def cpu_s(self) -> float:
        """CPU time of the process so far."""
        with open(f"/proc/{self._process.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def wait_until(self, is_so: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until a condition is true, for at most `timeout_s`."""
        give_up_s = time.monotonic() + timeout_s
        while not is_so():
            if time.monotonic() >= give_up_s:
                return False
            with self._said:
                self._said.wait(_LOOK_S)
        return True

    def metric(self, name: str) -> int:
        """Return the value of a metric without labels."""
        with urlopen(f"http://{self.metrics_address}/metrics", timeout=_SOCKET_S_MAX) as page:
            match = re.search(rf"^{name} (\S+)", page.read().decode(), re.MULTILINE)
        assert match is not None, name
        return int(float(match[1]))

    def forget_errors(self) -> None:
        """Ignore the errors logged so far."""
        self._lines.clear()
        self._reaped_before = 0
        self._reaped_before = self.reaped

    def connect(
        self, timeout_s: float = _SOCKET_S_MAX, *, unread_bytes_max: int | None = None, port: int | None = None
    ) -> socket.socket:
        """Connect. `unread_bytes_max` is about how much the kernel buffers for a client that does not read."""
        connected = socket.socket()
        connected.settimeout(timeout_s)
        if unread_bytes_max is not None:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, unread_bytes_max)
        try:
            connected.connect((self.host, port or self.port))
        except OSError:
            connected.close()
            raise
        return connected

    @contextmanager
    def peak_below(self, bytes_max: int) -> Iterator[None]:
        """Assert that the broker's memory stays below this bound."""
        before = self.memory_bytes
        with sampled(lambda: self.memory_bytes) as samples:
            yield
        growth = max(samples, default=0) - before
        assert growth < bytes_max, f"{growth / MIB:.0f} MiB"

    def check(self) -> None:
        """Check that the broker runs, has logged no error, and serves valid requests."""
        assert self._process.poll() is None
        assert self.errors == [], self.errors
        batch = build_batch([Record(key=b"k", value=b"v" * 100)])
        with closing(Client(self.address, timeout_s=_SERVED_S_MAX)) as client:
            offset = client.produce(HONEST, 0, batch)
            give_up_s = time.monotonic() + _SERVED_S_MAX
            # A fetch gets nothing while unread responses hold all memory.
            while not (batches := client.fetch(HONEST, 0, Offset(offset)).batches):
                assert time.monotonic() < give_up_s, "an honest consumer gets no records"
            # Other connections may be producing to the same partition: their batches follow this one.
            fetched, *_ = batches
        assert fetched[16:] == batch[16:]
        assert self.errors == []

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        for text in self._process.stderr:
            try:
                line = json.loads(text)
            except ValueError:
                line = {"level": "unreadable", "event": text}
            with self._said:
                self._lines.append(line)
                if line["event"] == "broker started":
                    self.host, port = line["listen"].rsplit(":", 1)
                    self.port = int(port)
                if line["event"] == "json listener started":
                    self.json_port = int(line["listen"].rsplit(":", 1)[1])
                self._said.notify_all()


@contextmanager
def sampled(measure: Callable[[], int]) -> Iterator[list[int]]:
    """Measure every 2 ms for the duration of the block, in another thread. Yields the list of the samples."""
    samples: list[int] = []
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(0.002):
            samples.append(measure())

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield samples
    finally:
        is_over.set()
        watching.join(_SERVED_S_MAX)
