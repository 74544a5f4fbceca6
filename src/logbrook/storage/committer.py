"""The committer thread: commits the write-ahead log whenever appends are pending.

While a sync runs, further appends queue up and the next commit takes them all (group commit): the slower the disk, the
larger the group.

On an event loop a commit also waits for the producers that the last one has acknowledged, because many of them send
their next batch at once. Without this, the first of them would be synced alone while the others queue up: two syncs per
round instead of one. It waits while each turn of the loop brings further appends, until there are as many as in the
last group, at most `_TURNS_MAX` turns, and not at all with `_SMALL_GROUP_BYTES_MAX` or more to write. What has come
during the last commit and is as much as that is committed at once.
"""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol

from logbrook.storage.errors import StorageOfflineError
from logbrook.storage.paths import WAL_DIRECTORY
from logbrook.storage.wal import Wal

_TURNS_MAX = 8
# The cost of a sync hardly matters for larger groups, and writing them takes the time of many turns.
_SMALL_GROUP_BYTES_MAX = 64 * 1024


class OwnersLoop(Protocol):
    """The event loop of the thread that appends. Calls are made in order, `call_soon` ones in a later turn."""

    def call_soon(self, callback: Callable[[], None], /) -> Any: ...

    def call_soon_threadsafe(self, callback: Callable[[], None], /) -> Any: ...


class WalCommitter(Protocol):
    """Commits a write-ahead log whenever appends are pending, between `start` and `stop`. `stop` commits the rest."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Committer:
    """Owns the thread that calls `Wal.commit`. `stop` commits the rest.

    Without `loop` every append wakes the thread. With it, the thread is woken at the end of the loop's turn, or of a
    later one as described above: the two threads do not compete for the interpreter lock meanwhile.
    """

    def __init__(self, wal: Wal, loop: OwnersLoop | None = None) -> None:
        self._wal = wal
        self._loop = loop
        self._is_wake_due = False
        # Set by the owner's thread when it wakes this one, and reset by this one after the commit. With `loop` only.
        self._is_committing = False
        # Appends of the last group, and those of the next one that the last turn of the loop has seen.
        self._last_group = 0
        self._collected = 0
        self._turns = 0
        # A C-level queue: waking the thread costs a tenth of threading.Event.
        self._wakes: SimpleQueue[None] = SimpleQueue()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="logbrook-committer", daemon=True)

    def start(self) -> None:
        self._wal.on_pending = self._on_pending
        self._thread.start()
        if self._wal.pending:
            # Appends from before the hook was set must not wait for the next one.
            self._on_pending()

    def stop(self) -> None:
        self._is_stopping = True
        self._wake()
        self._thread.join()
        self._wal.on_pending = _ignore
        self._wal.commit()

    def _on_pending(self) -> None:
        if self._is_wake_due or self._is_committing:
            return
        self._is_wake_due = True
        if self._loop is None:
            self._wake()
        else:
            self._loop.call_soon(self._collect)

    def _collect(self) -> None:
        """Wake the thread, or wait another turn of the loop."""
        assert self._loop is not None
        pending, self._turns = self._wal.pending, self._turns + 1
        if pending > self._collected and self._turns < _TURNS_MAX and not self._is_group(pending):
            self._collected = pending
            self._loop.call_soon(self._collect)
            return
        self._last_group = pending
        self._wake()

    def _is_group(self, pending: int) -> bool:
        """Return True if it is not worth waiting for more appends than these."""
        return pending >= self._last_group or self._wal.pending_bytes >= _SMALL_GROUP_BYTES_MAX

    def _wake(self) -> None:
        self._collected = self._turns = 0
        self._is_committing = self._loop is not None
        # The flag before the queue: without a loop, an append after this line wakes the thread again.
        self._is_wake_due = False
        self._wakes.put(None)

    def _run(self) -> None:
        try:
            while not self._is_stopping:
                self._wakes.get()
                self._wal.commit()
                if self._loop is None:
                    continue
                while (pending := self._wal.pending) and self._is_group(pending):
                    self._last_group = pending
                    self._wal.commit()
                # The flag first: the owner's thread sees that it is reset, or this one sees the append.
                self._is_committing = False
                if self._wal.pending:
                    # The responses are sent at the end of the turn that calls it; the next one collects appends.
                    self._loop.call_soon_threadsafe(self._on_pending)
        except BaseException as error:
            # Probably a bug in a callback. Without this thread nothing is committed, so fail all pending appends.
            self._wal.fail(StorageOfflineError("commit", WAL_DIRECTORY, OSError(f"the committer stopped: {error!r}")))
            self._wal.commit()
            raise


def _ignore() -> None:
    """Hook of a write-ahead log without a committer."""
