"""A broker in its own process, with its CPU time and memory."""

import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

from confluent_kafka import Producer

TOPIC = "bench"
# ApiVersions request, version 0, without a client id: the smallest request.
API_VERSIONS_REQUEST = struct.pack(">ihhih", 10, 18, 0, 1, -1)
_START_S_MAX = 60.0
# A disk: /tmp can be an in-memory file system.
_DISK = "/var/tmp"
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class BrokerProcess:
    """`logbrook serve` on a free port; `start_s` is the time from start to the first response."""

    def __init__(self, data: str, *flags: str) -> None:
        self.port = _free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.data = data
        command = [sys.executable, "-m", "logbrook", "serve", "--data", data, "--listen", self.address]
        # With bytecode caching, as an installed broker has it.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        started = time.perf_counter()
        self._process = subprocess.Popen(
            [*command, "--metrics", "", *flags], stderr=subprocess.DEVNULL, env=environment
        )
        self._wait(started + _START_S_MAX)
        self.start_s = time.perf_counter() - started

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu_s(self) -> float:
        """Return user and system time so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S

    def rss_mib(self) -> float:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE_BYTES / (1 << 20)

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _wait(self, until: float) -> None:
        pause = Event()
        while time.perf_counter() < until:
            if self._process.poll() is not None:
                raise RuntimeError(f"the broker stopped with exit code {self._process.returncode}")
            try:
                with socket.create_connection(("127.0.0.1", self.port), 1.0) as connection:
                    connection.sendall(API_VERSIONS_REQUEST)
                    if connection.recv(4):
                        return
            except OSError:
                pause.wait(0.002)
        self.stop()
        raise RuntimeError(f"the broker did not answer within {_START_S_MAX:.0f} s")


@contextmanager
def serving(*flags: str) -> Iterator[BrokerProcess]:
    """Run a broker with an empty data directory, which is deleted at the end."""
    data = tempfile.mkdtemp(prefix="logbrook-bench-")
    try:
        broker = BrokerProcess(data, "--auto-create-topics", *flags)
        try:
            yield broker
        finally:
            broker.stop()
    finally:
        shutil.rmtree(data, ignore_errors=True)


def producer(broker: BrokerProcess, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": broker.address, "acks": "all", "log_level": 2, **settings})


def warm_page_cache(size: int) -> None:
    """Touch as much page cache as the broker will fill.

    On a virtual machine the first use of a page costs system time, many times that of writing to it, and would be
    charged to whichever process is first.
    """
    block = bytes(1 << 20)
    with tempfile.TemporaryFile(dir=_DISK) as file:
        for _ in range(size >> 20):
            file.write(block)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
