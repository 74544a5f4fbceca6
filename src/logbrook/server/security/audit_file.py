"""The audit file: events as JSON lines, appended by a thread of its own.

The queue is bounded: while the disk is slow or full, further events are dropped and counted, and the broker goes on.
Nothing is synced: a crash of the machine may lose the last lines, a crash of the broker those in the queue. `reopen` is
for logrotate. The file is for its owner only.
"""

import os
import threading
from collections import deque

from logbrook.model.event_log import event_logger

_QUEUE_MAX = 10_000
_OWNER_ONLY = 0o600
_STOP_S_MAX = 5.0
# Pause after a failure, so that a full disk does not cost a core.
_RETRY_S = 1.0

_logger = event_logger(__name__)


class AuditFile:
    """Lines are taken from any thread. `start` opens the file, `stop` writes what is queued and closes it."""

    def __init__(self, path: str) -> None:
        self.dropped = 0
        self._path = path
        self._lines: deque[bytes] = deque()
        self._condition = threading.Condition()
        self._is_stopping = False
        self._is_reopening = False
        self._descriptor = -1
        # The last write was cut off in the middle of a line.
        self._is_torn = False
        self._is_failing = False
        self._thread = threading.Thread(target=self._run, name="logbrook-audit", daemon=True)

    def start(self) -> None:
        """Raises OSError if the file cannot be opened."""
        self._open()
        self._thread.start()

    def write(self, line: bytes) -> None:
        """Queue a line, which ends with a line feed; drop it if the queue is full."""
        with self._condition:
            if len(self._lines) >= _QUEUE_MAX:
                self.dropped += 1
                return
            self._lines.append(line)
            self._condition.notify()

    def reopen(self) -> None:
        """Open the path again before the next line: the file may have been moved away."""
        with self._condition:
            self._is_reopening = True
            self._condition.notify()

    def stop(self) -> None:
        with self._condition:
            self._is_stopping = True
            self._condition.notify()
        if self._thread.ident is not None:
            self._thread.join(_STOP_S_MAX)

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._lines or self._is_reopening or self._is_stopping)
                is_reopening, self._is_reopening = self._is_reopening, False
                lines = list(self._lines)
            try:
                if is_reopening or self._descriptor < 0:
                    self._open()
                self._append(lines)
            except OSError as error:
                self._report(error)
                if not self._pause():
                    return
                continue
            self._is_failing = False
            with self._condition:
                for _ in lines:
                    self._lines.popleft()
                if self._is_stopping and not self._lines:
                    os.close(self._descriptor)
                    return

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, _OWNER_ONLY)
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._is_torn = descriptor, False

    def _append(self, lines: list[bytes]) -> None:
        """Raises OSError. Lines that were written before it are written again: an event twice is better than none."""
        data = memoryview((b"\n" if self._is_torn else b"") + b"".join(lines))
        while data:
            self._is_torn = True
            data = data[os.write(self._descriptor, data) :]
        self._is_torn = False

    def _report(self, error: OSError) -> None:
        if not self._is_failing:
            _logger.error("audit file not written", path=self._path, error=error)
        self._is_failing = True

    def _pause(self) -> bool:
        """Wait before the next attempt. Returns False if the broker stops: what is queued is dropped."""
        with self._condition:
            if self._condition.wait_for(lambda: self._is_stopping, _RETRY_S):
                self.dropped += len(self._lines)
                return False
        return True
