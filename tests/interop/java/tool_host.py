"""A JVM in which Java programs run one after the other; `host/ToolHost.java` is its other half."""

import os
import select
import struct
import subprocess
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

from tests.interop.java.tool_run import ToolRun

TOOL_S_MAX = 40.0
# Additional time for the JVM to report that a program has timed out.
_ANSWER_S = 10.0
_STOP_S_MAX = 10.0
JVM_OPTIONS = (
    # Programs that run for a second gain nothing from the optimising compiler.
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
    "-Xmx512m",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


class ToolHost:
    """The JVM. `run` starts it if it does not run: at first, and after a program that did not end."""

    def __init__(self, classpath: str, main_class: str = "ToolHost") -> None:
        self._command = ["java", *JVM_OPTIONS, "-cp", classpath, main_class]
        self._jvm: subprocess.Popen[bytes] | None = None

    def run(self, main_class: str, *arguments: str, stdin: str = "", timeout_s: float = TOOL_S_MAX) -> ToolRun:
        """Run a program. Raises TimeoutError if the JVM itself hangs, and EOFError if it ends."""
        jvm = self._started()
        command = " ".join([main_class, *arguments])
        request = [_text(main_class), _number(len(arguments)), *map(_text, arguments), _text(stdin)]
        assert jvm.stdin is not None
        deadline = time.monotonic() + timeout_s + _ANSWER_S
        try:
            jvm.stdin.write(b"".join([*request, _number(int(timeout_s * 1000))]))
            jvm.stdin.flush()
            code = self._read_number(deadline, command)
            run = ToolRun(command, code, self._read_text(deadline, command), self._read_text(deadline, command))
        except BaseException:
            self.stop()
            raise
        if code < 0:
            self.stop()
        return run

    def stop(self) -> None:
        """End the JVM. No effect if it does not run."""
        jvm, self._jvm = self._jvm, None
        if jvm is None:
            return
        jvm.kill()
        jvm.wait(_STOP_S_MAX)
        assert jvm.stdin is not None
        assert jvm.stdout is not None
        jvm.stdout.close()
        with suppress(BrokenPipeError):
            jvm.stdin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._jvm is None:
            self._jvm = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self._jvm

    def _read_text(self, deadline: float, command: str) -> str:
        return self._read(self._read_number(deadline, command), deadline, command).decode()

    def _read_number(self, deadline: float, command: str) -> int:
        return int.from_bytes(self._read(4, deadline, command), "big", signed=True)

    def _read(self, length: int, deadline: float, command: str) -> bytes:
        assert self._jvm is not None
        assert self._jvm.stdout is not None
        descriptor = self._jvm.stdout.fileno()
        # Not select, which supports no descriptor above 1023: a test run may have more files open.
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        data = bytearray()
        while len(data) < length:
            if not poll.poll(1000 * max(0.0, deadline - time.monotonic())):
                raise TimeoutError(f"the JVM did not answer in time while it ran {command}")
            chunk = os.read(descriptor, length - len(data))
            if not chunk:
                raise EOFError(f"the JVM ended while it ran {command}")
            data += chunk
        return bytes(data)


def run_alone(classpath: str, main_class: str, *arguments: str, timeout_s: float = TOOL_S_MAX) -> ToolRun:
    """Run a program in its own JVM, which ends with it. Raises subprocess.TimeoutExpired."""
    command = ["java", *JVM_OPTIONS, "-cp", classpath, main_class, *arguments]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    return ToolRun(" ".join([main_class, *arguments]), done.returncode, done.stdout, done.stderr)


def _text(text: str) -> bytes:
    data = text.encode()
    return _number(len(data)) + data


def _number(number: int) -> bytes:
    return struct.pack(">i", number)
