"""Checkpoints: sync the segments and record each log's recovery point, so that the write-ahead log can be reused.

A checkpoint has three steps, so that the slow one can run in another thread:

1. Creating a `CheckpointRun`, on the owner's thread, collects from each log what is not synced (`Log.begin_sync`).
2. `run`, on any thread, syncs the files, writes the snapshots, and only then writes the checkpoint file. It opens files
   by name, so the owner may meanwhile append to a log, remove its segments, truncate or delete it.
3. `finish`, on the owner's thread, moves the recovery points.
"""

from collections.abc import Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, NamedTuple

from logbrook.model.identifiers import Offset
from logbrook.ports import Files
from logbrook.storage.durable_files import sync_directory, sync_file
from logbrook.storage.errors import StorageOfflineError
from logbrook.storage.partition_files import (
    Checkpoint,
    RecoveryPoint,
    Snapshot,
    write_checkpoint,
    write_snapshot,
)

if TYPE_CHECKING:
    from logbrook.storage.log import Log


class LogSync(NamedTuple):
    """The files of one log to sync, and its recovery point afterwards."""

    log: "Log"
    point: RecoveryPoint
    synced_stable_offset: Offset
    log_paths: list[str]
    # The indexes and the transaction index.
    cache_paths: list[str]
    snapshot: Snapshot | None
    state_version: int
    floor_number: int

    @property
    def is_outdated(self) -> bool:
        """True if the log was truncated or deleted since: the recovery point may refer to removed bytes."""
        return self.log.is_deleted or self.log.state.floor_number != self.floor_number

    def run(self, files: Files) -> None:
        """Sync the segments, then write the snapshot. Raises OSError or StorageOfflineError."""
        try:
            self.sync_segments(files)
            if self.snapshot is not None:
                write_snapshot(files, self.log.partition.directory, self.snapshot)
        except FileNotFoundError:
            if not self.is_outdated:
                raise
        except StorageOfflineError as failure:
            # At once, not in `finish`: a commit that opens the segment from now on does not get the kernel's error.
            self.log.environment.health.fail(failure)
            raise

    def sync_segments(self, files: Files) -> None:
        """Sync the segments and their names, without the snapshot. Raises OSError or StorageOfflineError."""
        for path in self.log_paths:
            try:
                _sync_path(files, path)
            except FileNotFoundError:
                if self.log.has_segment(path) and self.log.corruption is None:
                    raise
        for path in self.cache_paths:
            # A missing cache is rebuilt from the log on its next use.
            with suppress(FileNotFoundError):
                _sync_path(files, path)
        sync_directory(files, self.log.partition.directory)

    def finish(self) -> None:
        """Apply the result to the log, once the checkpoint file is durable."""
        if not self.is_outdated:
            self.log.recovery_point = self.point
            self.log.synced_stable_offset = self.synced_stable_offset
            self.log.snapshot_version = self.state_version


def _sync_path(files: Files, path: str) -> None:
    with closing(files.open(path)) as file:
        sync_file(file)


class CheckpointRun:
    """One checkpoint of a data directory."""

    def __init__(self, files: Files, mark: bytes, number: int, logs: "Sequence[Log]", *, clean: bool = False) -> None:
        self._files = files
        self._mark = mark
        self._clean = clean
        self._has_run = False
        self.number = number
        # All of this runs between two requests, also with thousands of logs.
        self._syncs = [sync for log in logs if (sync := log.begin_sync()) is not None]
        self._points = [(log.partition, log.recovery_point) for log in logs]

    def run(self) -> None:
        """Sync all files, then write the checkpoint. On OSError or StorageOfflineError the previous one remains."""
        points = {partition.directory: point for partition, point in self._points}
        for sync in self._syncs:
            sync.run(self._files)
            points[sync.log.partition.directory] = sync.point
        write_checkpoint(self._files, Checkpoint(self.number, points, self._mark, self._clean))
        self._has_run = True

    def finish(self) -> int:
        """Move the recovery points. Returns the number of logs synced."""
        assert self._has_run, "finish() called before run() completed"
        for sync in self._syncs:
            sync.finish()
        return len(self._syncs)
