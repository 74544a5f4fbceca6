"""A program that a test runs: its output is collected as it comes, and it never outlives its owner."""

import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import IO

from tests.interop.waiting import WITHIN_S

_STOP_S_MAX = 5.0
_ROOT = Path(__file__).parent.parent.parent.parent


class Process:
    """Runs until it ends by itself or is stopped."""

    def __init__(self, command: Sequence[str | bytes]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=_ROOT
        )
        self.output = bytearray()
        self.errors = bytearray()
        streams = ((self._process.stdout, self.output), (self._process.stderr, self.errors))
        self._collectors = [Thread(target=_collect, args=each, daemon=True) for each in streams]
        for collector in self._collectors:
            collector.start()

    @property
    def return_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def write(self, data: bytes) -> None:
        # One that has given up says why when it is asked for its outcome.
        with suppress(BrokenPipeError):
            self._stdin.write(data)
            self._stdin.flush()

    def finish(self, within_s: float = WITHIN_S) -> None:
        """Tell it that there is no more to come, and wait for its end. Raises TimeoutExpired."""
        with suppress(BrokenPipeError):
            self._stdin.close()
        try:
            self._process.wait(within_s)
        finally:
            self.stop()

    def stop(self) -> None:
        """Ask it to end, and see that it does."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_S_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._clean_up()

    def kill(self) -> None:
        """End it as a power cut would."""
        self._process.kill()
        self._clean_up()

    @property
    def _stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    def _clean_up(self) -> None:
        self._process.wait()
        for collector in self._collectors:
            collector.join()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()


def _collect(stream: IO[bytes], into: bytearray) -> None:
    while chunk := stream.read1(65_536):  # type: ignore[attr-defined]
        into += chunk
