"""A broker in a process of its own that is to be mistreated, and what shows afterwards whether it minded.

It is what `logbrook serve` runs. Its log is read as it is written: an error there is a bug of ours, whatever was sent,
because what a stranger sends is never more than a warning.
"""

import json
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from types import TracebackType
from typing import Any

from logbrook.client import Client
from logbrook.records.builder import build_batch
from logbrook.records.record import Record

HONEST = "honest"
MIB = 1 << 20
_START_S_MAX = 30.0
_STOP_S_MAX = 30.0
_SOCKET_S_MAX = 20.0


class Victim:
    """`flags` are those of `logbrook serve`; `descriptors` is how many files it may have open."""

    def __init__(self, data: str, *flags: str, descriptors: int | None = None) -> None:
        self._data = data
        self._flags = flags
        self._descriptors = descriptors
        self._lines: list[dict[str, Any]] = []
        self._said = threading.Condition()
        self.host, self.port = "", 0
        # Of the listener for the JSON protocol, with `--json-port`.
        self.json_port = 0

    def __enter__(self) -> "Victim":
        command = [sys.executable, "-m", "logbrook", "serve", "--data", self._data, "--listen", "127.0.0.1:0"]
        command += ["--metrics", "", "--log-format", "json", "--durability", "interval", *self._flags]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        if self._descriptors is not None:
            resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE, (self._descriptors, self._descriptors))
        self._reading = threading.Thread(target=self._read_log, daemon=True)
        self._reading.start()
        assert self.wait_until(lambda: self.port > 0, _START_S_MAX), self._lines
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
            self._process.wait()
            raise
        finally:
            self._reading.join()
            assert self._process.stderr is not None
            self._process.stderr.close()
        assert code == 0, self._lines[-5:]

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def errors(self) -> list[dict[str, Any]]:
        return [line for line in self._lines if line["level"] not in ("debug", "info", "warning")]

    @property
    def reaped(self) -> int:
        """How many connections it has hung up on because they were too slow."""
        return sum("which is stalled" in line["message"] for line in self._lines)

    @property
    def memory_bytes(self) -> int:
        """What the process has taken for itself; the segments that it has mapped are the page cache's."""
        with open(f"/proc/{self._process.pid}/status") as status:
            fields = dict(line.split(":", 1) for line in status)
        return int(fields["RssAnon"].split()[0]) * 1024

    @property
    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self._process.pid}/fd"))

    @property
    def cpu_s(self) -> float:
        """The processor time that it has taken so far."""
        with open(f"/proc/{self._process.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def wait_until(self, is_so: Callable[[], bool], timeout_s: float) -> bool:
        """Look again at everything that the broker says, until it is so."""
        with self._said:
            return self._said.wait_for(is_so, timeout_s)

    def forget_errors(self) -> None:
        """Let the next test be judged by its own."""
        self._lines.clear()

    def connect(
        self, timeout_s: float = _SOCKET_S_MAX, *, unread_bytes_max: int | None = None, port: int | None = None
    ) -> socket.socket:
        """`unread_bytes_max` is about what the system takes for a client that does not read."""
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
        """What the broker takes meanwhile, looked at again and again, stays below this."""
        before, peak = self.memory_bytes, 0
        is_over = threading.Event()

        def watch() -> None:
            nonlocal peak
            while not is_over.wait(0.002):
                peak = max(peak, self.memory_bytes)

        watching = threading.Thread(target=watch, daemon=True)
        watching.start()
        try:
            yield
        finally:
            is_over.set()
            watching.join()
        assert peak - before < bytes_max, f"{(peak - before) / MIB:.0f} MiB"

    def check(self, timeout_s: float = 10.0) -> None:
        """It runs, it has found no bug in itself, and it serves whoever behaves."""
        assert self._process.poll() is None
        assert self.errors == []
        batch = build_batch([Record(key=b"k", value=b"v" * 100)])
        with closing(Client(self.address, timeout_s=timeout_s)) as client:
            offset = client.produce(HONEST, 0, batch)
            (fetched,) = client.fetch(HONEST, 0, offset).batches
        assert fetched[16:] == batch[16:]
        assert self.errors == []

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        for text in self._process.stderr:
            try:
                line = json.loads(text)
            except ValueError:
                line = {"level": "unreadable", "message": text}
            with self._said:
                self._lines.append(line)
                if not self.port and " listens on " in line["message"]:
                    said = line["message"].split(" listens on ", 1)[1].split(",", 1)[0]
                    self.host, port = said.rsplit(":", 1)
                    self.port = int(port)
                if " JSON protocol is spoken on " in line["message"]:
                    self.json_port = int(line["message"].rsplit(":", 1)[1])
                self._said.notify_all()
