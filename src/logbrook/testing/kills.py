"""A door that dies with its process: from the n-th call on nothing reaches the disk any more.

A killed process is not a power loss. What it wrote is still in the page cache, so the next process reads bytes and
names that no sync has covered; if the power goes then, it has believed what is gone. To have both, kill the process on
a recording door and open the directory again on the same one:

    recorder = RecordingFiles()
    process = MortalFiles(recorder)
    process.die_after(17)
    try:
        run_workload(process)
    except ProcessKilled:
        run_workload(MortalFiles(recorder))      # locks of the dead process are gone, its writes are not

`before_call` is called before each call that may change the disk. A test puts there what other threads of the process
do at such a moment, so that every interleaving at the disk's edge can be had without a thread, again and again.

`ProcessKilled` is no Exception, so that nothing in between takes it for a failure to handle. Clean-up code that runs
on the way out finds a dead door: its calls raise too, and change nothing.
"""

from collections.abc import Callable, Sequence

from logbrook.ports import Bytes, File, Files, Lock
from logbrook.testing.forwarding import ForwardingFile, ForwardingFiles


class ProcessKilled(BaseException):
    """The process that used the door is no more."""


class MortalFiles(ForwardingFiles):
    """`inner`, until it is killed. Only calls that may change the disk count, and only they are refused after it."""

    def __init__(self, inner: Files) -> None:
        super().__init__(inner)
        self._calls_left: int | None = None
        self._locks: list[Lock] = []
        self.before_call: Callable[[], None] | None = None

    @property
    def is_dying(self) -> bool:
        """Whether an end was set, be it reached or not."""
        return self._calls_left is not None

    def die_after(self, calls: int) -> None:
        """Let `calls` more calls through, and none after them."""
        self._calls_left = calls

    def kill(self) -> None:
        """Die now. The kernel drops the locks of a dead process."""
        self._calls_left = 0
        while self._locks:
            self._locks.pop().release()

    def admit(self) -> None:
        """Count a call. Raises ProcessKilled when there are none left."""
        if self.before_call is not None:
            self.before_call()
        if self._calls_left is None:
            return
        if self._calls_left == 0:
            self.kill()
            raise ProcessKilled
        self._calls_left -= 1

    def create(self, path: str) -> File:
        self.admit()
        return super().create(path)

    def make_dir(self, path: str) -> None:
        self.admit()
        super().make_dir(path)

    def remove_dir(self, path: str) -> None:
        self.admit()
        super().remove_dir(path)

    def rename(self, source: str, target: str) -> None:
        self.admit()
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self.admit()
        super().unlink(path)

    def fsync_dir(self, path: str) -> None:
        self.admit()
        super().fsync_dir(path)

    def lock(self, path: str) -> Lock:
        self.admit()
        lock = super().lock(path)
        self._locks.append(lock)
        return lock

    def _wrap(self, file: File) -> File:
        return _MortalFile(self, file)


class _MortalFile(ForwardingFile):
    def __init__(self, files: MortalFiles, inner: File) -> None:
        super().__init__(inner)
        self._files = files

    def pwrite(self, data: Bytes, position: int) -> None:
        self._files.admit()
        super().pwrite(data, position)

    def pwritev(self, buffers: Sequence[Bytes], position: int) -> None:
        self._files.admit()
        super().pwritev(buffers, position)

    def truncate(self, length: int) -> None:
        self._files.admit()
        super().truncate(length)

    def reserve(self, length: int) -> None:
        self._files.admit()
        super().reserve(length)

    def fsync(self) -> None:
        self._files.admit()
        super().fsync()
