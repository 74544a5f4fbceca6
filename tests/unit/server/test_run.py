"""`logbrook serve` as a process: signals, exit codes, and error messages of a failed start."""

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from logbrook.client import Client
from logbrook.ports import OsFiles
from logbrook.protocol.messages.api_versions import ApiVersionsRequest
from tests.unit.server.shell_kit import (
    FETCH_VERSION,
    MIB,
    batch_of,
    correlation_id_of,
    fetch_request,
    receive_frame,
    request_frame,
)

SECONDS = 20.0


class Served:
    """A broker process."""

    def __init__(self, data: Path, *flags: str, listen: str = "127.0.0.1:0") -> None:
        command = [sys.executable, "-m", "logbrook", "serve", "--data", str(data), "--listen", listen, "--metrics", ""]
        self.process = subprocess.Popen(
            [*command, "--log-format", "human", *flags], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        self._said: list[str] = []
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self._said.extend(self.process.stderr)

    @property
    def said(self) -> str:
        return "".join(self._said)

    def wait_for(self, words: str) -> str:
        """Wait for a log line with these words and return it."""
        give_up_s = time.monotonic() + SECONDS
        a_moment = threading.Event()
        while words not in self.said:
            assert time.monotonic() < give_up_s, self.said
            a_moment.wait(0.01)
        return next(line for line in self.said.splitlines() if words in line)

    @property
    def address(self) -> str:
        return self.wait_for("broker started").split(" listen=")[1].split()[0]

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """Wait for the process to end by itself, and return its exit code."""
        code = self.process.wait(SECONDS)
        self._reading.join(SECONDS)
        return code


@contextmanager
def serving(data: Path, *flags: str, listen: str = "127.0.0.1:0") -> Iterator[Served]:
    served = Served(data, *flags, listen=listen)
    try:
        yield served
    finally:
        served.process.kill()
        served.end()
        assert served.process.stderr is not None
        served.process.stderr.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_properly(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path) as served:
        host, port = served.address.split(":")
        with Client(served.address) as client:
            client.create_topic("t")
            client.produce("t", 0, batch_of())
        with socket.create_connection((host, int(port)), SECONDS) as waiting:
            poll = request_frame(fetch_request("t", 1, wait_ms=600_000), FETCH_VERSION, 2)
            # Both arrive at once, so the second was handled before the first is answered.
            waiting.sendall(request_frame(ApiVersionsRequest(), 3, 1) + poll)
            assert correlation_id_of(receive_frame(waiting)) == 1
            served.signal(number)
            assert correlation_id_of(receive_frame(waiting)) == 2
            assert waiting.recv(1) == b""
        assert served.end() == 0
        assert f"broker stopping signal={number.name}" in served.said
        assert served.said.rstrip().endswith("broker stopped")
    # No recovery is needed, and the lock is released.
    OsFiles(str(tmp_path)).lock("lock").release()


def test_a_second_signal_stops_it_at_once(tmp_path: Path) -> None:
    with serving(tmp_path, "--network-stop-ms", "600000") as served:
        host, port = served.address.split(":")
        with Client(served.address) as client:
            client.create_topic("t")
            for _ in range(12):
                client.produce("t", 0, batch_of(MIB - 100))
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect((host, int(port)))
            slow.sendall(request_frame(fetch_request("t"), FETCH_VERSION))
            assert slow.recv(4)
            served.signal(signal.SIGTERM)
            served.wait_for("broker stopping signal=SIGTERM")
            served.signal(signal.SIGTERM)
            assert served.end() == 128 + signal.SIGTERM
        assert "broker killed by second signal" in served.said
    with serving(tmp_path) as again, Client(again.address) as client:
        assert client.list_offset("t", 0) == 12


def test_an_address_in_use_is_reported(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with serving(tmp_path, listen=listen) as served:
            assert served.end() == 1
            assert f'start failed error="{listen} is in use' in served.said
            assert "Traceback" not in served.said


def test_a_directory_that_is_in_use_or_cannot_be_created_is_reported(tmp_path: Path) -> None:
    lock = OsFiles(str(tmp_path)).lock("lock")
    (tmp_path / "file").touch()
    with serving(tmp_path) as locked, serving(tmp_path / "file") as no_directory:
        assert (locked.end(), no_directory.end()) == (1, 1)
        assert 'start failed error="the data directory is in use by another process' in locked.said
        assert f'start failed error="{tmp_path}/file is not a directory; --data takes the' in no_directory.said
        assert "Traceback" not in locked.said + no_directory.said
    lock.release()


def test_an_address_of_another_machine_is_reported(tmp_path: Path) -> None:
    # An address of RFC 5737, which no machine has.
    with serving(tmp_path, listen="192.0.2.1:9092") as served:
        assert served.end() == 1
        assert 'start failed error="192.0.2.1:9092 is not an address of this machine; listen on' in served.said
        assert "Errno" not in served.said
