"""What all logs of a data directory share."""

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
    """Whether the disk can still be believed. Once it cannot, nothing is acknowledged until a restart."""

    __slots__ = ("failure",)

    def __init__(self) -> None:
        self.failure: StorageOfflineError | None = None

    def fail(self, failure: StorageOfflineError) -> None:
        if self.failure is None:
            self.failure = failure

    def refuse_if_offline(self) -> None:
        if self.failure is not None:
            raise self.failure


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
    durability: Durability = field(init=False)

    def read_error(self, file: str, error: OSError) -> StorageError:
        """The error to raise for a read that failed. It says nothing about what was written."""
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
        return failure
