"""Checkpoints: syncing the segments themselves, so that recovery has less to do and the write-ahead log can go on.

It takes three steps, so that the slow one can run in another thread. `begin`, on the owner's thread, notes what each
log has that is not synced. `run`, anywhere, syncs it, and only then writes down how far everything is synced.
`finish`, on the owner's thread again, believes it.
"""

from typing import NamedTuple

from logbrook.ports import Files
from logbrook.storage.disk_errors import sync_directory, sync_file
from logbrook.storage.log import Log
from logbrook.storage.partition_files import Checkpoint, RecoveryPoint, Snapshot, write_checkpoint, write_snapshot


class LogSync(NamedTuple):
    """What one log has to sync, and the recovery point it then has."""

    log: Log
    point: RecoveryPoint
    log_paths: list[str]
    index_paths: list[str]
    snapshot: Snapshot | None
    state_version: int
    floor_number: int

    def run(self, files: Files) -> None:
        """Raises OSError or StorageOfflineError. A log that was deleted or truncated meanwhile is left alone."""
        for path in self.log_paths:
            try:
                _fsync(files, path)
            except FileNotFoundError:
                if self.log.is_deleted or self.log.state.floor_number != self.floor_number:
                    return
                raise
        for path in self.index_paths:
            try:
                _fsync(files, path)
            except FileNotFoundError:
                # An index is a cache; a segment may be without one until it is next read.
                continue
        sync_directory(files, self.log.partition.directory)
        if self.snapshot is not None:
            write_snapshot(files, self.log.partition.directory, self.snapshot)


def begin_sync(log: Log) -> LogSync | None:
    """What `log` has to sync, if anything. A quarantined log stays as it was found."""
    point = RecoveryPoint(log.log_end_offset, log.active.base_offset, log.active.size)
    snapshot_is_stale = log.state_version != log.snapshot_version
    if log.corruption is not None or (point == log.recovery_point and not snapshot_is_stale):
        return None
    log.active.write_index()
    dirty = [segment for segment in log.segments if segment.base_offset >= log.recovery_point.segment_base_offset]
    snapshot = None
    if snapshot_is_stale:
        snapshot = Snapshot(
            log.log_end_offset,
            log.environment.durability.next_number,
            [list(start) for start in log.epochs.starts],
            log.producers.to_json(),
        )
    return LogSync(
        log,
        point,
        [segment.path for segment in dirty],
        [segment.index_path for segment in dirty],
        snapshot,
        log.state_version,
        log.state.floor_number,
    )


class CheckpointRun:
    """One checkpoint of a directory."""

    def __init__(self, files: Files, mark: bytes, number: int, logs: list[Log], *, clean: bool = False) -> None:
        self._files = files
        self._mark = mark
        self._clean = clean
        self.number = number
        self._syncs = [sync for log in logs if (sync := begin_sync(log)) is not None]
        self._points = {log.partition.directory: log.recovery_point for log in logs}

    def run(self) -> None:
        """Sync, then write the checkpoint. Raises OSError or StorageOfflineError; then nothing was checkpointed."""
        for sync in self._syncs:
            sync.run(self._files)
            self._points[sync.log.partition.directory] = sync.point
        write_checkpoint(self._files, Checkpoint(self.number, self._points, self._mark, self._clean))

    def finish(self) -> int:
        """Move the recovery points. Returns how many logs were synced."""
        for sync in self._syncs:
            # A truncation since `begin` has a recovery point of its own, and this one speaks of bytes that are gone.
            if sync.log.state.floor_number == sync.floor_number:
                sync.log.recovery_point = sync.point
                sync.log.snapshot_version = sync.state_version
        return len(self._syncs)


def _fsync(files: Files, path: str) -> None:
    file = files.open(path)
    try:
        sync_file(file)
    finally:
        file.close()
