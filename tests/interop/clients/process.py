"""A child process of a test: its output is collected as it arrives, and it never outlives its owner."""

import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import IO

from tests.interop.waiting import WITHIN_S

_STOP_S_MAX = 30.0
_ROOT = Path(__file__).parent.parent.parent.parent


class Process:
    """A process that runs until it ends by itself or is stopped."""

    def __init__(self, command: Sequence[str | bytes]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=_ROOT
        )
        self.output = bytearray()
        self.errors = bytearray()
        streams = ((self._process.stdout, self.output), (self._process.stderr, self.errors))
        self._collectors = [Thread(target=_collect, args=stream, daemon=True) for stream in streams]
        for collector in self._collectors:
            collector.start()

    @property
    def return_code(self) -> int | None:
        """Exit code; None while the process runs."""
        return self._process.poll()

    def write(self, data: bytes) -> None:
        # A process that has failed reports the reason in `finish`.
        with suppress(BrokenPipeError):
            self._stdin.write(data)
            self._stdin.flush()

    def finish(self, within_s: float = WITHIN_S) -> None:
        """Close its standard input and wait for its end. Raises TimeoutExpired."""
        with suppress(BrokenPipeError):
            self._stdin.close()
        try:
            self._process.wait(within_s)
        finally:
            self.stop()

    def stop(self) -> None:
        """Terminate the process, and kill it if it does not end."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_S_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._clean_up()

    def kill(self) -> None:
        """Kill the process without a chance to clean up."""
        self._process.kill()
        self._clean_up()

    @property
    def _stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    def _clean_up(self) -> None:
        self._process.wait(_STOP_S_MAX)
        for collector in self._collectors:
            collector.join(_STOP_S_MAX)
            assert not collector.is_alive(), "a process that it started still has its output open"
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()


def _collect(stream: IO[bytes], into: bytearray) -> None:
    while chunk := stream.read1(65_536):  # type: ignore[attr-defined]
        into += chunk
