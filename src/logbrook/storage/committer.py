"""The one thread of the engine: it commits whenever something waits to be committed.

While it waits for a sync, appends pile up, and the next commit takes them all: the slower the disk, the larger the
group. Tickets call back from this thread.
"""

import threading

from logbrook.storage.errors import StorageOfflineError
from logbrook.storage.paths import WAL_DIRECTORY
from logbrook.storage.wal import Wal


class Committer:
    """Start it, append, and tickets complete by themselves. `stop` commits what is left."""

    def __init__(self, wal: Wal) -> None:
        self._wal = wal
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="logbrook-committer", daemon=True)

    def start(self) -> None:
        self._wal.on_pending = self._wake.set
        self._thread.start()
        # What was submitted before the hook was there must not wait for the next append.
        self._wake.set()

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()
        self._thread.join()
        self._wal.on_pending = _nothing
        self._wal.commit()

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._wake.wait()
                self._wake.clear()
                self._wal.commit()
        except BaseException as error:
            # A callback's bug, perhaps. Without this thread nothing is committed any more, so let nobody wait for it.
            self._wal.fail(StorageOfflineError("commit", WAL_DIRECTORY, OSError(f"the committer stopped: {error!r}")))
            self._wal.commit()
            raise


def _nothing() -> None:
    """The hook of a log that nobody commits for."""
