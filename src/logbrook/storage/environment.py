"""State shared by all logs of a data directory: files, caches, probe, durability policy and health."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from logbrook.config import StorageConfig
from logbrook.model import TopicPartition
from logbrook.ports import Files
from logbrook.storage.closed_segment import ClosedSegmentCache
from logbrook.storage.durability import IntervalDurability
from logbrook.storage.durable_files import IO_FAILURES, is_disk_full, is_out_of_descriptors
from logbrook.storage.errors import (
    DiskFullError,
    ReadFailedError,
    StorageError,
    StorageOfflineError,
    TooManyOpenFilesError,
)
from logbrook.storage.open_files import FileReader, OpenFiles
from logbrook.storage.probe import StorageProbe
from logbrook.storage.producer_bound import ProducerBound
from logbrook.storage.segment_files import FileRemover
from logbrook.storage.wal import Wal


def _ignore(_: TopicPartition) -> None:
    """Do nothing, until the broker sets a receiver."""


class Health:
    """Write availability of the data directory.

    A failed write or sync is final: no append is acknowledged until restart.
    """

    __slots__ = ("_callbacks", "_retry", "failure", "refusal")

    def __init__(self) -> None:
        self._callbacks: list[Callable[[StorageOfflineError], object]] = []
        self.failure: StorageOfflineError | None = None
        # The error that writes raise now: the failure, or a temporary condition such as a full disk.
        self.refusal: StorageError | None = None
        self._retry: Callable[[], None] | None = None

    def add_failure_callback(self, callback: Callable[[StorageOfflineError], object]) -> None:
        """Call `callback(failure)` on the first failure, from the thread that detected it."""
        self._callbacks.append(callback)

    def fail(self, failure: StorageOfflineError) -> None:
        if self.failure is None:
            self.failure = self.refusal = failure
            for callback in self._callbacks:
                callback(failure)

    def hold(self, refusal: StorageError, retry: Callable[[], None]) -> None:
        """Reject all writes with `refusal` until `retry` succeeds. Each write calls `retry` first."""
        self.refusal, self._retry = refusal, retry

    def check_not_failed(self) -> None:
        """Raises StorageOfflineError after a failure. For operations that free disk space, which a full disk allows."""
        if self.failure is not None:
            # The same error is raised for every call. Its traceback would keep the frames, and so the data, of all.
            raise self.failure.with_traceback(None)

    def check_writable(self) -> None:
        """Raises StorageOfflineError after a failure, or the error of a held `retry`."""
        self.check_not_failed()
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
    """Shared by the logs of one `LogDirectory`, which owns it."""

    files: Files
    config: StorageConfig
    probe: StorageProbe
    health: Health
    reader: FileReader
    open_files: OpenFiles
    cache: ClosedSegmentCache
    remover: FileRemover
    producer_bound: ProducerBound
    # The policy that completes the appends of all logs. Set by recovery, which determines the next entry number.
    durability: Wal | IntervalDurability = field(init=False)
    # Called on the owner's thread when what readers of a log get has changed in another way than by an append: it was
    # deleted, quarantined, repaired or truncated, or its log start offset has moved.
    on_log_changed: Callable[[TopicPartition], None] = _ignore

    def read_error(self, file: str, error: OSError | StorageOfflineError) -> StorageError:
        """Return the error to raise for a failed read. It does not affect writes.

        Exception: a StorageOfflineError, from the sync of a handle evicted to make room, takes the directory offline.
        """
        if not isinstance(error, OSError):
            return self.write_error("read", file, 0, error)
        if is_out_of_descriptors(error):
            return TooManyOpenFilesError(file)
        return ReadFailedError(file, error)

    def write_error(self, operation: str, file: str, size: int, error: OSError | StorageOfflineError) -> StorageError:
        """Return the error to raise for a failed write: retriable for a full disk, else the directory goes offline."""
        if isinstance(error, OSError) and is_disk_full(error):
            return DiskFullError(file, size)
        if isinstance(error, OSError) and is_out_of_descriptors(error):
            return TooManyOpenFilesError(file)
        failure = StorageOfflineError(operation, file, error) if isinstance(error, OSError) else error
        self.health.fail(failure)
        # Report the first failure: later ones are usually its consequences.
        return self.health.failure or failure

    @contextmanager
    def writing(self, operation: str, file: str) -> Iterator[None]:
        """Raise the `write_error` of a write or sync that fails in the block."""
        try:
            yield
        except IO_FAILURES as error:
            raise self.write_error(operation, file, 0, error) from error

    def close(self) -> None:
        """Close every file without writing or syncing."""
        self.open_files.close()
        self.cache.clear()
        if hasattr(self, "durability"):
            self.durability.close()
