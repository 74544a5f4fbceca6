"""A `Files` wrapper that simulates SIGKILL: from the n-th call on, no call reaches the disk.

A killed process is not a power loss. Its writes are still in the page cache, so the next process reads data that was
never synced and may lose it in a later power loss. To test the combination, kill the process on a `RecordingFiles` and
reopen the directory on the same one:

    recorder = RecordingFiles()
    process = KillableFiles(recorder)
    process.kill_after(17)
    try:
        run_workload(process)
    except ProcessKilled:
        run_workload(KillableFiles(recorder))      # its locks are released, its writes remain

`before_call` is called before each call that may change the disk. A test uses it to run what another thread could do at
that moment, so that every interleaving of file operations is reproducible without threads.

`ProcessKilled` derives from BaseException so that no error handling catches it. Calls made by clean-up code on the way
out raise it too, and change nothing.
"""

from collections.abc import Callable

from logbrook.ports import Files, Lock
from logbrook.testing.forwarding import MUTATING_CALLS, ForwardingFiles


class ProcessKilled(BaseException):
    """The simulated process is dead; none of its calls reach the disk."""


class KillableFiles(ForwardingFiles):
    """Forwards to `inner` until it is killed. Only calls that may change the disk are counted and refused."""

    def __init__(self, inner: Files) -> None:
        super().__init__(inner)
        self._remaining_calls: int | None = None
        self._locks: list[Lock] = []
        self.before_call: Callable[[], None] | None = None

    @property
    def is_kill_scheduled(self) -> bool:
        """True once `kill_after` or `kill` was called."""
        return self._remaining_calls is not None

    def kill_after(self, calls: int) -> None:
        """Forward `calls` more calls, then kill the process."""
        self._remaining_calls = calls

    def kill(self) -> None:
        """Kill the process now and release its locks, as the kernel does."""
        self._remaining_calls = 0
        while self._locks:
            self._locks.pop().release()

    def before(self, call: str, path: str) -> None:  # noqa: ARG002 - whatever the path
        """Count a call that may change the disk. Raises ProcessKilled when no calls remain."""
        if call not in MUTATING_CALLS:
            return
        if self.before_call is not None:
            self.before_call()
        if self._remaining_calls is None:
            return
        if self._remaining_calls == 0:
            self.kill()
            raise ProcessKilled
        self._remaining_calls -= 1

    def lock(self, path: str) -> Lock:
        lock = super().lock(path)
        self._locks.append(lock)
        return lock
