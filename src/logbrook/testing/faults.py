"""A `Files` wrapper that fails the n-th call, so that a test can fail every call in turn.

    counted = FaultyFiles(MemoryFiles())
    run_workload(counted)                                    # once without a fault
    for n in range(1, counted.calls + 1):
        run_workload(FaultyFiles(MemoryFiles(), fail_at=n))  # and again, failing at each call in turn

The rules:

- Every call that reaches the disk counts: see `forwarding.CALLS`. `close` and `advise` do not, as nothing depends on
  them.
- With `only` and `matching`, just the calls of those names on those paths count. A rename is matched by its source.
- Calls are numbered from 1. `fail_at` may be set while running; None refuses nothing.
- A refused call does nothing to the disk, with two exceptions, as on real disks: with `partial_writes`, a refused
  write leaves the first half of its bytes; with `forget_unsynced`, a refused fsync makes everything unsynced in that
  file impossible to make durable, which is what the kernel does when it marks the pages clean (fsyncgate).
- `sticky` refuses every counted call from the n-th on: a disk that stays broken, or stays full.
"""

import errno
import os
import threading
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from logbrook.ports import Bytes, File, Files
from logbrook.testing.forwarding import CALLS, ForwardingFile, ForwardingFiles
from logbrook.testing.recording_files import RecordingFile, RecordingFiles


class Call(NamedTuple):
    """One counted call, for failure messages."""

    n: int
    op: str
    path: str


class FaultyFiles(ForwardingFiles):
    """`inner`, with the n-th counted call refused. `log` has every counted call, the refused ones included."""

    def __init__(
        self,
        inner: Files,
        fail_at: int | None = None,
        error: int = errno.EIO,
        *,
        only: Collection[str] = CALLS,
        matching: Callable[[str], bool] | None = None,
        sticky: bool = False,
        partial_writes: bool = False,
        forget_unsynced: bool = False,
    ) -> None:
        super().__init__(inner)
        if unknown := set(only) - CALLS:
            raise ValueError(f"no such calls: {sorted(unknown)}")
        if forget_unsynced and not isinstance(inner, RecordingFiles):
            raise ValueError("forget_unsynced needs RecordingFiles, which tracks unsynced bytes")
        self.fail_at = fail_at
        self.error = error
        self.sticky = sticky
        self.partial_writes = partial_writes
        self.forget_unsynced = forget_unsynced
        self.log: list[Call] = []
        self.refused: list[Call] = []
        self._only = frozenset(only)
        self._matching = matching
        self._mutex = threading.Lock()

    @property
    def calls(self) -> int:
        """Number of calls so far."""
        return len(self.log)

    def before(self, call: str, path: str) -> None:
        """Count a call, and raise OSError if it is one to refuse."""
        if call not in self._only or (self._matching is not None and not self._matching(path)):
            return
        with self._mutex:
            counted = Call(len(self.log) + 1, call, path)
            self.log.append(counted)
            n, fail_at = counted.n, self.fail_at
            if fail_at is None or not (n == fail_at or (self.sticky and n > fail_at)):
                return
            self.refused.append(counted)
        raise OSError(self.error, f"{os.strerror(self.error)} (injected at call {n}, {call})", path)

    def _wrap(self, file: File) -> File:
        return _FaultyFile(self, file)


class _FaultyFile(ForwardingFile):
    def __init__(self, files: FaultyFiles, inner: File) -> None:
        super().__init__(inner, files.before)
        self._files = files

    def pwrite(self, data: Bytes, position: int) -> None:
        try:
            self._files.before("pwrite", self.path)
        except OSError:
            self._write_half(bytes(data), position)
            raise
        self.inner.pwrite(data, position)

    def pwritev(self, buffers: Sequence[Bytes], position: int) -> None:
        try:
            self._files.before("pwritev", self.path)
        except OSError:
            self._write_half(b"".join(buffers), position)
            raise
        self.inner.pwritev(buffers, position)

    def fsync(self) -> None:
        try:
            self._files.before("fsync", self.path)
        except OSError:
            if self._files.forget_unsynced and isinstance(self.inner, RecordingFile):
                self.inner.forget_unsynced()
            raise
        self.inner.fsync()

    def _write_half(self, data: bytes, position: int) -> None:
        if self._files.partial_writes:
            self.inner.pwrite(data[: len(data) // 2], position)
