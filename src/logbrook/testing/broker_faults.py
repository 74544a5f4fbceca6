"""Faults of the embedded broker, by name.

    disk_full            the disk has no space left: writes and new files fail with ENOSPC, until the fault ends; bytes
                         that the write-ahead log has reserved can be written, as on a real disk
    disk_failure         writes and syncs fail with EIO; the broker takes no writes until a restart after the fault
    slow_sync            every fsync takes `delay_ms` longer
    refuse_connections   open connections are closed and new ones refused

And `FaultableFiles.kill`, after which no write reaches the disk: see `Broker.kill`.
"""

import errno
import os
import threading
from difflib import get_close_matches
from typing import Literal, TypeAlias, get_args

from logbrook.ports import File, FileRegion, Files, Space
from logbrook.storage.paths import WAL_DIRECTORY
from logbrook.testing.forwarding import MUTATING_CALLS, SYNC_CALLS, WRITE_CALLS, ForwardingFile, ForwardingFiles
from logbrook.testing.recording_files import RecordingFile

FaultName: TypeAlias = Literal["disk_full", "disk_failure", "slow_sync", "refuse_connections"]

_ALLOCATING_CALLS = frozenset({"create", "make_dir", "reserve"})


def check_fault(name: str) -> None:
    """Raises ValueError, with a suggestion, if there is no fault of this name."""
    names = get_args(FaultName)
    if name not in names:
        similar = get_close_matches(name, names, 1)
        advice = f"did you mean {similar[0]}?" if similar else f"the faults are {', '.join(names)}"
        raise ValueError(f"{name!r} is not a fault; {advice}")


class DiskFaults:
    """The faults of the disk that are switched on. Shared by successive runs of a broker; used by any thread."""

    def __init__(self) -> None:
        self.is_full = False
        # Calls of `Files` and `File` that fail with EIO.
        self.failing_calls: frozenset[str] = frozenset()
        self._sync_delay_s = 0.0
        self._ended = threading.Event()

    def begin_slow_sync(self, delay_s: float) -> None:
        self._ended.clear()
        self._sync_delay_s = delay_s

    def end_slow_sync(self) -> None:
        """Syncs that wait now return at once."""
        self._sync_delay_s = 0.0
        self._ended.set()

    def delay_sync(self) -> None:
        if self._sync_delay_s:
            self._ended.wait(self._sync_delay_s)


class FaultableFiles(ForwardingFiles):
    """The files of one run of a broker, with the faults that are switched on."""

    def __init__(self, inner: Files, faults: DiskFaults) -> None:
        super().__init__(inner)
        self._faults = faults
        self._is_killed = False

    def kill(self) -> None:
        """Fail every later call that would change the disk. A call in progress may still take effect."""
        self._is_killed = True

    def before(self, call: str, path: str) -> None:
        if self._is_killed and call in MUTATING_CALLS:
            raise OSError(errno.EIO, "the test has killed the broker", path)
        if call in self._faults.failing_calls:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        if self._faults.is_full and _needs_space(call, path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if call in SYNC_CALLS:
            self._faults.delay_sync()

    def _wrap(self, file: File) -> File:
        return _FaultableFile(file, self.before)

    def space(self) -> Space:
        space = super().space()
        return space._replace(usable_bytes=0) if self._faults.is_full else space


class _FaultableFile(ForwardingFile):
    """No fault concerns reads, so that records are sent from files as by other brokers."""

    def fsync(self) -> None:
        """A sync that fails makes the unsynced bytes impossible to sync, where the disk is a simulated one."""
        try:
            super().fsync()
        except OSError:
            if isinstance(self.inner, RecordingFile):
                self.inner.forget_unsynced()
            raise

    def region(self, position: int, length: int) -> FileRegion | None:
        return self.inner.region(position, length)


def _needs_space(call: str, path: str) -> bool:
    is_reserved = path.startswith(f"{WAL_DIRECTORY}/")
    return call in _ALLOCATING_CALLS or (call in WRITE_CALLS and not is_reserved)
