"""What all logs of a data directory share."""

from collections.abc import Callable
from dataclasses import dataclass, field

from logbrook.config import StorageConfig
from logbrook.ports import Files
from logbrook.storage.closed_segment import SegmentCache
from logbrook.storage.disk_errors import is_disk_full, is_out_of_descriptors
from logbrook.storage.durability import Durability
from logbrook.storage.errors import (
    DiskFullError,
    ReadFailedError,
    StorageError,
    StorageOfflineError,
    TooManyOpenFilesError,
)
from logbrook.storage.file_remover import FileRemover
from logbrook.storage.open_files import OpenFiles
from logbrook.storage.probe import StorageProbe


class Health:
    """Whether the disk can be written to. Once it cannot be believed, nothing is acknowledged until a restart."""

    __slots__ = ("_callbacks", "_retry", "failure", "refusal")

    def __init__(self) -> None:
        self._callbacks: list[Callable[[StorageOfflineError], object]] = []
        self.failure: StorageOfflineError | None = None
        # Why nothing may be written now: the failure, or something that may pass.
        self.refusal: StorageError | None = None
        self._retry: Callable[[], None] | None = None

    def add_failure_callback(self, callback: Callable[[StorageOfflineError], object]) -> None:
        """Call `callback(failure)` once the disk cannot be believed any more, from whichever thread found out."""
        self._callbacks.append(callback)

    def fail(self, failure: StorageOfflineError) -> None:
        if self.failure is None:
            self.failure = self.refusal = failure
            for callback in self._callbacks:
                callback(failure)

    def hold(self, refusal: StorageError, retry: Callable[[], None]) -> None:
        """Refuse all writes until `retry` succeeds, which the next write will try first."""
        self.refusal, self._retry = refusal, retry

    def refuse_if_failed(self) -> None:
        """For what makes room: it may go on while writes are held for the lack of it. Raises StorageOfflineError."""
        if self.failure is not None:
            # The same error answers every call, and must not gather the frames, and so the bytes, of them all.
            raise self.failure.with_traceback(None)

    def refuse_if_offline(self) -> None:
        """Raises what stands in the way of writing, if it does not go away."""
        self.refuse_if_failed()
        if self._retry is not None:
            retry, self._retry = self._retry, None
            try:
                retry()
            except BaseException:
                self._retry = retry
                raise
            self.refusal = None


@dataclass
class Environment:
    """The directory's files, caches and queues."""

    files: Files
    config: StorageConfig
    probe: StorageProbe
    health: Health
    open_files: OpenFiles
    cache: SegmentCache
    remover: FileRemover
    # Recovery gives it, once it knows where the numbers go on.
    durability: Durability = field(init=False)

    def read_error(self, file: str, error: OSError | StorageOfflineError) -> StorageError:
        """The error to raise for a read that failed. It says nothing about what was written.

        Unless a handle that had to make room could not be synced: that is the end of writing.
        """
        if not isinstance(error, OSError):
            return self.write_error("read", file, 0, error)
        if is_out_of_descriptors(error):
            return TooManyOpenFilesError(file)
        return ReadFailedError(file, error)

    def write_error(self, operation: str, file: str, size: int, error: OSError | StorageOfflineError) -> StorageError:
        """The error to raise for a write that failed: one that passes for a full disk, else the end of writing."""
        if isinstance(error, OSError) and is_disk_full(error):
            return DiskFullError(file, size)
        if isinstance(error, OSError) and is_out_of_descriptors(error):
            return TooManyOpenFilesError(file)
        failure = StorageOfflineError(operation, file, error) if isinstance(error, OSError) else error
        self.health.fail(failure)
        # The first failure is the one to look at; those that follow from it would hide it.
        return self.health.failure or failure

    def close(self) -> None:
        """Let go of every file, writing nothing."""
        self.open_files.close()
        self.cache.close()
        if hasattr(self, "durability"):
            self.durability.close()
