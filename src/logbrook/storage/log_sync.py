"""Making what a log has written durable in its own files, maybe from another thread.

The log says what there is to sync (`Log.begin_sync`), on its owner's thread. Running it opens the files anew by their
names, so the owner may go on meanwhile, and even remove segments, truncate or delete the log: then there is less to do.
"""

from typing import NamedTuple, Protocol

from logbrook.model import TopicPartition
from logbrook.ports import Files
from logbrook.storage.disk_errors import sync_directory, sync_file
from logbrook.storage.errors import CorruptLogError
from logbrook.storage.partition_files import PartitionState, RecoveryPoint, Snapshot, write_snapshot


class SyncedLog(Protocol):
    """What is asked of the log meanwhile."""

    partition: TopicPartition
    state: PartitionState
    is_deleted: bool
    corruption: CorruptLogError | None
    recovery_point: RecoveryPoint
    decided_offset: int
    snapshot_version: int

    def holds(self, path: str) -> bool:
        """Whether a segment with this path is part of the log."""
        ...


class LogSync(NamedTuple):
    """What one log has to sync, and the recovery point it then has."""

    log: SyncedLog
    point: RecoveryPoint
    decided_offset: int
    log_paths: list[str]
    # Indexes, and the aborted transactions.
    cache_paths: list[str]
    snapshot: Snapshot | None
    state_version: int
    floor_number: int

    @property
    def is_overtaken(self) -> bool:
        """Whether the log was truncated or deleted since, so that this speaks of bytes that may be gone."""
        return self.log.is_deleted or self.log.state.floor_number != self.floor_number

    def run(self, files: Files) -> None:
        """Sync the segments, then write the snapshot. Raises OSError or StorageOfflineError."""
        try:
            self.sync_segments(files)
            if self.snapshot is not None:
                write_snapshot(files, self.log.partition.directory, self.snapshot)
        except FileNotFoundError:
            if not self.is_overtaken:
                raise

    def sync_segments(self, files: Files) -> None:
        """Sync the segments and their names, without the snapshot. Raises OSError or StorageOfflineError."""
        for path in self.log_paths:
            try:
                _sync_path(files, path)
            except FileNotFoundError:
                if self.log.holds(path) and self.log.corruption is None:
                    raise
        for path in self.cache_paths:
            try:
                _sync_path(files, path)
            except FileNotFoundError:
                # What is missing is made again from the log when it is next asked for.
                continue
        sync_directory(files, self.log.partition.directory)

    def finish(self) -> None:
        """Believe it: the checkpoint that says so is durable."""
        if not self.is_overtaken:
            self.log.recovery_point = self.point
            self.log.decided_offset = self.decided_offset
            self.log.snapshot_version = self.state_version


def _sync_path(files: Files, path: str) -> None:
    file = files.open(path)
    try:
        sync_file(file)
    finally:
        file.close()
