"""The committer thread: commits the write-ahead log whenever appends are pending.

While a sync runs, further appends queue up and the next commit takes them all (group commit): the slower the disk, the
larger the group.
"""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol

from logbrook.storage.errors import StorageOfflineError
from logbrook.storage.paths import WAL_DIRECTORY
from logbrook.storage.wal import Wal


class WalCommitter(Protocol):
    """Commits a write-ahead log whenever appends are pending, between `start` and `stop`. `stop` commits the rest."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Committer:
    """Owns the thread that calls `Wal.commit`. `stop` commits the rest.

    `call_soon(wake)` decides when the thread is woken for new appends, by default at once. An event loop passes its own
    `call_soon`: the thread then starts when the requests that are ready have been appended, so that one sync covers
    them and the two threads do not compete for the interpreter lock meanwhile.
    """

    def __init__(self, wal: Wal, call_soon: Callable[[Callable[[], None]], object] | None = None) -> None:
        self._wal = wal
        self._call_soon = call_soon
        self._is_wake_due = False
        # A C-level queue: waking the thread costs a tenth of threading.Event.
        self._wakes: SimpleQueue[None] = SimpleQueue()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="logbrook-committer", daemon=True)

    def start(self) -> None:
        self._wal.on_pending = self._on_pending
        self._thread.start()
        # Appends from before the hook was set must not wait for the next one.
        self._wake()

    def stop(self) -> None:
        self._is_stopping = True
        self._wake()
        self._thread.join()
        self._wal.on_pending = _ignore
        self._wal.commit()

    def _on_pending(self) -> None:
        if not self._is_wake_due:
            self._is_wake_due = True
            if self._call_soon is None:
                self._wake()
            else:
                self._call_soon(self._wake)

    def _wake(self) -> None:
        # The flag first: an append after this line wakes the thread again.
        self._is_wake_due = False
        self._wakes.put(None)

    def _run(self) -> None:
        try:
            while not self._is_stopping:
                self._wakes.get()
                self._wal.commit()
        except BaseException as error:
            # Probably a bug in a callback. Without this thread nothing is committed, so fail all pending appends.
            self._wal.fail(StorageOfflineError("commit", WAL_DIRECTORY, OSError(f"the committer stopped: {error!r}")))
            self._wal.commit()
            raise


def _ignore() -> None:
    """Hook of a write-ahead log without a committer."""
