"""The compaction worker, a child process with compiled code, seen from the broker.

Compaction in pure Python takes 13 to 80 ms of the interpreter lock per megabyte. Where numba is installed, the broker
starts `logbrook.compactor` for large compactions instead, with a low priority. The worker reads the segments and sends
the bytes to keep through a pipe; only the broker writes, syncs and replaces files, so the rules of durability have one
place.

A worker that exits, reports an error or makes no progress is killed, and `CleanerFailedError` ends the pass. The caller
then repeats it in pure Python, which finds and reports damage of a log in the usual way.

All methods run in the maintenance thread, which lives as long as the broker: the kernel kills the worker if the thread
that started it ends.
"""

import json
import os
import secrets
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from fcntl import F_SETPIPE_SZ, fcntl
from importlib.util import find_spec
from select import POLLIN, poll
from typing import Any

from logbrook.model.event_log import event_logger
from logbrook.model.identifiers import Offset
from logbrook.ports import Bytes, Files, OsFiles
from logbrook.storage.cleaner import CleaningJob
from logbrook.storage.errors import CleanerFailedError

# A compaction of fewer bytes takes less time in pure Python than a worker takes to start.
BYTES_MIN = 16 << 20

_FRAME = struct.Struct(">cI")
_PIPE_BYTES = 1 << 20
_BUFFER_BYTES = 1 << 20
# A worker reports progress after each window of 4 MiB, which a very slow disk reads in seconds. Its first start
# compiles the code, for half a minute on an idle core.
_SILENCE_S_MAX = 600.0
_STOP_S_MAX = 5.0

_logger = event_logger(__name__)


class CompactionWorker:
    """Starts the worker process when a job needs it, and stops it. Owned by the maintenance."""

    def __init__(self, bytes_min: int = BYTES_MIN) -> None:
        self._bytes_min = bytes_min
        self._is_available = find_spec("numba") is not None and sys.platform == "linux"
        self._process: subprocess.Popen[bytes] | None = None
        self._was_used = False

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def cleaner(self, files: Files, job: CleaningJob) -> "WorkerCleaner | None":
        """Return the cleaner for a job; None if pure Python is faster, or the only way."""
        if not self._is_available or job.size < self._bytes_min or not isinstance(files, OsFiles):
            return None
        return WorkerCleaner(self, files.root, job)

    def ask(self, command: dict[str, Any], write: Callable[[Bytes], None] | None = None) -> dict[str, Any]:
        """Send a command and return its result, after passing the bytes to keep to `write`.

        Raises CleanerFailedError, or what `write` raises. The worker is killed then.
        """
        self._was_used = True
        try:
            return self._ask(command, write)
        except BaseException:
            self._kill()
            raise

    def stop_unless_used(self) -> None:
        """Stop the worker if it had nothing to do since the last call."""
        if not self._was_used:
            self.stop()
        self._was_used = False

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        try:
            process.wait(_STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    close = stop

    def _ask(self, command: dict[str, Any], write: Callable[[Bytes], None] | None) -> dict[str, Any]:
        process = self._process or self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(command).encode() + b"\n")
            process.stdin.flush()
        except OSError as error:
            raise CleanerFailedError(f"it takes no commands: {error}") from error
        for kind, payload in self._frames(process):
            if kind == b"R":
                result: dict[str, Any] = json.loads(bytes(payload))
                return result
            if kind == b"E":
                raise CleanerFailedError(json.loads(bytes(payload))["reason"])
            if kind == b"D" and write is not None:
                write(payload)
            elif kind != b"P":
                raise CleanerFailedError(f"it sent an unexpected frame of kind {kind!r}")
        raise AssertionError("frames end with an error")

    def _start(self) -> subprocess.Popen[bytes]:
        # In its own session, so that Ctrl-C reaches only the broker.
        command = [sys.executable, "-m", "logbrook.compactor", str(os.getpid())]
        try:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        except OSError as error:
            raise CleanerFailedError(f"it cannot be started: {error}") from error
        assert process.stdout is not None
        with suppress(OSError):
            # Not allowed if the user has too many pipes; it works with the default size, too.
            fcntl(process.stdout, F_SETPIPE_SZ, _PIPE_BYTES)
        _logger.info("compaction worker started", pid=process.pid)
        self._process = process
        return process

    def _frames(self, process: subprocess.Popen[bytes]) -> Iterator[tuple[bytes, memoryview]]:
        """Yield kinds and payloads. Bytes to keep come in parts, whose memory is reused."""
        buffer = memoryview(bytearray(_BUFFER_BYTES))
        while True:
            kind, remaining = _FRAME.unpack(self._read(process, buffer[: _FRAME.size]))
            if kind != b"D":
                yield kind, self._read(process, memoryview(bytearray(remaining)))
                continue
            while remaining:
                part = self._read(process, buffer[: min(remaining, len(buffer))])
                remaining -= len(part)
                yield kind, part

    def _read(self, process: subprocess.Popen[bytes], buffer: memoryview) -> memoryview:
        """Fill `buffer`. Raises CleanerFailedError."""
        assert process.stdout is not None
        descriptor = process.stdout.fileno()
        readable = poll()
        readable.register(descriptor, POLLIN)
        filled = 0
        while filled < len(buffer):
            if not readable.poll(_SILENCE_S_MAX * 1000):
                raise CleanerFailedError(f"it made no progress for {_SILENCE_S_MAX:.0f} s")
            count = os.readv(descriptor, [buffer[filled:]])
            if not count:
                raise CleanerFailedError(f"it exited with code {process.wait()}")
            filled += count
        return buffer

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self.stop()


class WorkerCleaner:
    """The `Cleaner` of one pass in the worker process."""

    def __init__(self, worker: CompactionWorker, root: str, job: CleaningJob) -> None:
        self._worker = worker
        self._root = root
        self._job = job
        self._pid: int | None = None
        self._keeps_markers = False
        self.emptied: set[int] = set()

    def build_map(self) -> Offset:
        job = self._job._replace(producer_ids=sorted(self._job.producer_ids))._asdict()
        begin = {"root": self._root, "digest_key": secrets.token_hex(16), "job": job}
        result = self._worker.ask({"begin": begin})
        self._pid = self._worker.pid
        return Offset(result["end_offset"])

    def clean(self, paths: Sequence[str], write: Callable[[Bytes], None]) -> bool:
        if self._pid != self._worker.pid:
            raise CleanerFailedError("it has been restarted and has no map")
        result = self._worker.ask({"clean": {"paths": list(paths), "keeps_markers": self._keeps_markers}}, write)
        self._keeps_markers = False
        self.emptied = set(result["emptied"])
        return bool(result["is_same"])

    def keep_markers(self) -> None:
        self._keeps_markers = True
        self.emptied.clear()
