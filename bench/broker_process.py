"""A broker in a process of its own, and what it costs."""

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
# ApiVersions, version 0, from nobody: the smallest question there is.
_QUESTION = struct.pack(">ihhih", 10, 18, 0, 1, -1)
_START_S_MAX = 60.0
# Where /tmp is in memory, it would be touched for another use.
_DISK = "/var/tmp"
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class BrokerProcess:
    """`logbrook serve` on a free port; `start_s` is the time until its first answer."""

    def __init__(self, data: str, *flags: str) -> None:
        self.port = _free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.data = data
        command = [sys.executable, "-m", "logbrook", "serve", "--data", data, "--listen", self.address]
        # As it is installed: with the bytecode that the first start has left.
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
        """User and system time so far."""
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
                    connection.sendall(_QUESTION)
                    if connection.recv(4):
                        return
            except OSError:
                pause.wait(0.002)
        self.stop()
        raise RuntimeError("the broker did not answer in time")


@contextmanager
def serving(*flags: str) -> Iterator[BrokerProcess]:
    """A broker with an empty data directory, which goes with it."""
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
    """Touch as much memory as the broker is about to fill with files.

    On a virtual machine the first use of a page is paid for in system time, many times what writing to it costs, and
    by whoever happens to be first.
    """
    block = bytes(1 << 20)
    with tempfile.TemporaryFile(dir=_DISK) as file:
        for _ in range(size >> 20):
            file.write(block)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
