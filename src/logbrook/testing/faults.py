"""A door that refuses the n-th call, so that a test can refuse every call in turn.

    counted = FaultyFiles(MemoryFiles())
    run_workload(counted)                                    # once without a fault
    for n in range(1, counted.calls + 1):
        run_workload(FaultyFiles(MemoryFiles(), fail_at=n))  # and again, failing at each call in turn

The rules:

- Every call that reaches the disk counts: see `CALLS`. `close` and `advise` do not, as nothing depends on them.
- With `only` and `matching`, just the calls of those names on those paths count. A rename is known by its source.
- Calls are numbered from 1. `fail_at` may be set while running; None refuses nothing.
- A refused call does nothing to the disk, with two exceptions that real disks know: with `partial_writes`, a refused
  write leaves the first half of its bytes; with `forget_unsynced`, a refused fsync makes everything unsynced in that
  file impossible to make durable, which is what the kernel does when it marks the pages clean (fsyncgate).
- `sticky` refuses every counted call from the n-th on: a disk that stays broken, or stays full.
"""

import errno
import os
import threading
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from logbrook.ports import Bytes, File, Files, Lock
from logbrook.testing.forwarding import ForwardingFile, ForwardingFiles
from logbrook.testing.recording_files import RecordingFile, RecordingFiles

WRITE_CALLS = frozenset({"pwrite", "pwritev"})
SYNC_CALLS = frozenset({"fsync", "fsync_dir"})
NAME_CALLS = frozenset({"create", "make_dir", "remove_dir", "rename", "unlink", "lock"})
MUTATING_CALLS = WRITE_CALLS | SYNC_CALLS | NAME_CALLS | {"truncate", "reserve"}
CALLS = MUTATING_CALLS | {"open", "size", "list", "pread", "map_readonly"}


class Call(NamedTuple):
    """One counted call, for messages that say where a run went wrong."""

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
            raise ValueError("only RecordingFiles knows what is unsynced")
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
        """How many calls were counted."""
        return len(self.log)

    def admit(self, op: str, path: str) -> None:
        """Count a call, and raise OSError if it is one to refuse."""
        if op not in self._only or (self._matching is not None and not self._matching(path)):
            return
        with self._mutex:
            call = Call(len(self.log) + 1, op, path)
            self.log.append(call)
            if self.fail_at is None or not (call.n == self.fail_at or (self.sticky and call.n > self.fail_at)):
                return
            self.refused.append(call)
        raise OSError(self.error, f"{os.strerror(self.error)} (injected at call {call.n}, {op})", path)

    def create(self, path: str) -> File:
        self.admit("create", path)
        return super().create(path)

    def open(self, path: str) -> File:
        self.admit("open", path)
        return super().open(path)

    def size(self, path: str) -> int:
        self.admit("size", path)
        return super().size(path)

    def make_dir(self, path: str) -> None:
        self.admit("make_dir", path)
        super().make_dir(path)

    def remove_dir(self, path: str) -> None:
        self.admit("remove_dir", path)
        super().remove_dir(path)

    def rename(self, source: str, target: str) -> None:
        self.admit("rename", source)
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self.admit("unlink", path)
        super().unlink(path)

    def fsync_dir(self, path: str) -> None:
        self.admit("fsync_dir", path)
        super().fsync_dir(path)

    def lock(self, path: str) -> Lock:
        self.admit("lock", path)
        return super().lock(path)

    def list(self, path: str) -> list[str]:
        self.admit("list", path)
        return super().list(path)

    def _wrap(self, file: File) -> File:
        return _FaultyFile(self, file)


class _FaultyFile(ForwardingFile):
    def __init__(self, files: FaultyFiles, inner: File) -> None:
        super().__init__(inner)
        self._files = files

    def pwrite(self, data: Bytes, position: int) -> None:
        try:
            self._files.admit("pwrite", self.path)
        except OSError:
            self._write_half(bytes(data), position)
            raise
        super().pwrite(data, position)

    def pwritev(self, buffers: Sequence[Bytes], position: int) -> None:
        try:
            self._files.admit("pwritev", self.path)
        except OSError:
            self._write_half(b"".join(buffers), position)
            raise
        super().pwritev(buffers, position)

    def pread(self, length: int, position: int) -> bytes:
        self._files.admit("pread", self.path)
        return super().pread(length, position)

    def pread_into(self, buffer: memoryview, position: int) -> int:
        self._files.admit("pread", self.path)
        return super().pread_into(buffer, position)

    def size(self) -> int:
        self._files.admit("size", self.path)
        return super().size()

    def truncate(self, length: int) -> None:
        self._files.admit("truncate", self.path)
        super().truncate(length)

    def reserve(self, length: int) -> None:
        self._files.admit("reserve", self.path)
        super().reserve(length)

    def fsync(self) -> None:
        try:
            self._files.admit("fsync", self.path)
        except OSError:
            if self._files.forget_unsynced and isinstance(self.inner, RecordingFile):
                self.inner.forget_unsynced()
            raise
        super().fsync()

    def map_readonly(self, length: int) -> memoryview:
        self._files.admit("map_readonly", self.path)
        return super().map_readonly(length)

    def _write_half(self, data: bytes, position: int) -> None:
        if self._files.partial_writes:
            self.inner.pwrite(data[: len(data) // 2], position)
