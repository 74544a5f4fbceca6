"""The `logbrook` command in the process of the test, with its own arguments, environment and standard streams.

The streams are files with descriptors, or a terminal, as in a shell. Tests of the start itself (`test_main`), of
signals and of commands that fork or run on beside the test start the installed command.
"""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from threading import Thread
from types import FrameType
from typing import TextIO
from unittest.mock import patch

from logbrook.cli.main import app

SECONDS_MAX = 120
_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def invoke(
    *arguments: str, environment: Mapping[str, str] | None = None, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Run `logbrook` with these arguments. Raises TimeoutError after `SECONDS_MAX`."""
    with ExitStack() as stack:
        given, out, err = (stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(3))
        given.buffer.write(stdin)
        given.seek(0)
        code = _call(arguments, environment, given, out, err)
        out.flush()
        err.flush()
        out_bytes, err_bytes = (os.pread(stream.fileno(), 1 << 30, 0) for stream in (out, err))
        return subprocess.CompletedProcess(arguments, code, out_bytes, err_bytes)


def invoke_on_terminal(
    *arguments: str, environment: Mapping[str, str] | None = None, width: int, typed: str
) -> tuple[int, str]:
    """Return the exit code and the text on the terminal, without colours. Raises TimeoutError after `SECONDS_MAX`."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    os.write(leader, typed.encode())
    seen: list[bytes] = []

    def read() -> None:
        # Reading fails once no descriptor of the other side is open.
        with suppress(OSError):
            while data := os.read(leader, 65536):
                seen.append(data)

    reader = Thread(target=read)
    reader.start()
    try:
        with _standard_descriptors(follower):
            stdin, stdout, stderr = open(0, closefd=False), open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
            code = _call(arguments, environment, stdin, stdout, stderr)
            stdout.flush()
            stderr.flush()
    finally:
        os.close(follower)
        reader.join(SECONDS_MAX)
        os.close(leader)
    return code, _STYLE.sub("", b"".join(seen).decode()).replace("\r\n", "\n")


def _call(
    arguments: tuple[str, ...], environment: Mapping[str, str] | None, stdin: TextIO, stdout: TextIO, stderr: TextIO
) -> int:
    """Return the exit code of the command."""

    def give_up(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"logbrook {' '.join(arguments)} still runs after {SECONDS_MAX} s")

    with (
        patch.object(sys, "stdin", stdin),
        patch.object(sys, "argv", ["logbrook", *arguments]),
        redirect_stdout(stdout),
        redirect_stderr(stderr),
        patch.dict(os.environ, environment or {}, clear=environment is not None),
        _alarm_handler(give_up),
    ):
        try:
            app(prog_name="logbrook")
        except SystemExit as stopped:
            return stopped.code if isinstance(stopped.code, int) else int(stopped.code is not None)
    return 0


@contextmanager
def _alarm_handler(handler: "signal._HANDLER") -> Iterator[None]:
    previous = signal.signal(signal.SIGALRM, handler)
    signal.alarm(SECONDS_MAX)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


@contextmanager
def _standard_descriptors(descriptor: int) -> Iterator[None]:
    """Libraries ask the descriptors 0 to 2 for the size of the terminal, whatever the streams are."""
    saved = [os.dup(number) for number in range(3)]
    for number in range(3):
        os.dup2(descriptor, number)
    try:
        yield
    finally:
        for number, copy in enumerate(saved):
            os.dup2(copy, number)
            os.close(copy)
