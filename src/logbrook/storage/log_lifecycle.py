"""Creation and deletion of logs, in three steps, so that the slow one can run in another thread:

1. `LogDirectory.begin_create` or `begin_delete`, on the owner's thread, decides and takes numbers.
2. `run`, on any thread, changes and syncs the files.
3. `LogDirectory.finish_create` or `finish_delete`, on the owner's thread, applies the result.

`run` does each step for all logs before the next one: most of the cost of the syncs is shared.
"""

from collections.abc import Sequence
from typing import NamedTuple

from logbrook.ports import Files
from logbrook.storage.durable_files import sync_directory
from logbrook.storage.log import Log
from logbrook.storage.partition_files import prepare_state, publish_states
from logbrook.storage.paths import deleted_directory


class LogCreation:
    """Empty logs that are being created, all of them or none.

    `leftover_numbers` name the directories that an earlier attempt may have left, one for each log.
    """

    def __init__(self, files: Files, logs: Sequence[Log], leftover_numbers: Sequence[int]) -> None:
        self.logs = logs
        # Directories to be unlinked later.
        self.retired: list[str] = []
        self._files = files
        self._leftover_numbers = leftover_numbers

    def run(self) -> None:
        """Create the files durably, or none after an OSError. Raises OSError or StorageOfflineError."""
        files = self._files
        made: list[Log] = []
        try:
            for log, number in zip(self.logs, self._leftover_numbers, strict=True):
                self._make_directory(log.partition.directory, number)
                made.append(log)
                log.active.create_closed(files)
            # Recovery takes a partition with a state as complete, so the segment's name must be durable first.
            for log in self.logs:
                sync_directory(files, log.partition.directory)
            prepared = [prepare_state(files, log.partition.directory, log.state) for log in self.logs]
            publish_states(files, prepared)
            sync_directory(files, "")
        except OSError:
            self._undo(made)
            raise

    def _make_directory(self, directory: str, leftover_number: int) -> None:
        try:
            self._files.make_dir(directory)
        except FileExistsError:
            # Left by an earlier attempt that failed, for example on a full disk.
            self._retire(directory, leftover_number)
            sync_directory(self._files, "")
            self._files.make_dir(directory)

    def _undo(self, made: Sequence[Log]) -> None:
        """Remove the directories: those with a state would be logs after a restart."""
        for log in made:
            self._retire(log.partition.directory, log.state.floor_number)
        sync_directory(self._files, "")

    def _retire(self, directory: str, number: int) -> None:
        retired = deleted_directory(number)
        self._files.rename(directory, retired)
        self.retired.append(retired)


class RetiredLog(NamedTuple):
    """A deleted log, the name that its directory gets, and the time from which its files may be unlinked."""

    log: Log
    retired: str
    due_ms: int


class LogDeletion:
    """Logs that are being deleted. They are no longer readable; `run` renames their directories durably."""

    def __init__(self, files: Files, logs: Sequence[RetiredLog]) -> None:
        self.logs = logs
        # The number of logs whose directory is renamed.
        self.renamed = 0
        self._files = files

    def run(self) -> None:
        """Raises OSError or StorageOfflineError."""
        for log, retired, _ in self.logs:
            self._files.rename(log.partition.directory, retired)
            self.renamed += 1
        sync_directory(self._files, "")
