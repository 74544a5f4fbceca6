"""Checkpoints: syncing the segments themselves, so that recovery has less to do and the write-ahead log can go on.

It takes three steps, so that the slow one can run in another thread. `begin`, on the owner's thread, notes what each
log has that is not synced. `run`, anywhere, syncs it, and only then writes down how far everything is synced.
`finish`, on the owner's thread again, believes it.
"""

from logbrook.ports import Files
from logbrook.storage.log import Log
from logbrook.storage.partition_files import Checkpoint, write_checkpoint


class CheckpointRun:
    """One checkpoint of a directory."""

    def __init__(self, files: Files, mark: bytes, number: int, logs: list[Log], *, clean: bool = False) -> None:
        self._files = files
        self._mark = mark
        self._clean = clean
        self._has_run = False
        self.number = number
        self._syncs = [sync for log in logs if (sync := log.begin_sync()) is not None]
        self._points = {log.partition.directory: log.recovery_point for log in logs}

    def run(self) -> None:
        """Sync, then write the checkpoint. Raises OSError or StorageOfflineError; then nothing was checkpointed."""
        for sync in self._syncs:
            sync.run(self._files)
            self._points[sync.log.partition.directory] = sync.point
        write_checkpoint(self._files, Checkpoint(self.number, self._points, self._mark, self._clean))
        self._has_run = True

    def finish(self) -> int:
        """Move the recovery points. Returns how many logs were synced."""
        assert self._has_run, "a checkpoint that did not run to its end is not to be believed"
        for sync in self._syncs:
            sync.finish()
        return len(self._syncs)
