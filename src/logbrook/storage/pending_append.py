"""The result of an append: offsets at once, durability later."""

from collections.abc import Callable
from typing import Any

from logbrook.model import LogbrookError
from logbrook.model.identifiers import Offset
from logbrook.storage.errors import StorageError


class CommittedOffset:
    """The offset up to which a log is committed: its high watermark.

    A truncation gives the log a new object, so that appends from before the truncation do not move its high watermark.
    """

    __slots__ = ("offset",)

    def __init__(self, offset: Offset) -> None:
        self.offset = offset


class PendingAppend:
    """One append. It is completed once, by the thread that made it durable; callbacks run on that thread."""

    __slots__ = (
        "_callbacks",
        "_committed",
        "base_offset",
        "caller_data",
        "done",
        "duplicate",
        "error",
        "log_append_time_ms",
        "next_offset",
    )

    def __init__(
        self,
        committed: CommittedOffset,
        base_offset: Offset,
        next_offset: Offset,
        log_append_time_ms: int,
        duplicate: bool,
    ) -> None:
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.log_append_time_ms = log_append_time_ms
        self.duplicate = duplicate
        self.done = False
        # A StorageError, or the reason why the replicas of a partition do not have it.
        self.error: LogbrookError | None = None
        # For the receiver of `Wal.on_completed`, which gets the completed appends of a commit in one call.
        self.caller_data: Any = None
        self._committed = committed
        self._callbacks: list[Callable[[PendingAppend], None]] = []

    def add_done_callback(self, callback: Callable[["PendingAppend"], None]) -> None:
        """Call `callback(append)` once the append is done; immediately if it is done already."""
        self._callbacks.append(callback)
        if self.done:
            self._call_back()

    def result(self) -> "PendingAppend":
        """Return the append itself or raise its error. The append must be done."""
        assert self.done, "the append is not done"
        if self.error is not None:
            # The error is shared by all appends of a failed commit: without this it would collect all their frames.
            raise self.error.with_traceback(None)
        return self

    def complete(self, error: StorageError | None = None) -> None:
        self.error = error
        if error is None and self.next_offset > self._committed.offset:
            self._committed.offset = self.next_offset
        self.done = True
        if self._callbacks:
            self._call_back()

    def _call_back(self) -> None:
        # The completing thread and a thread that adds a callback may both be here. Each callback is popped once, so it
        # is called once, and none is missed: the second thread sees `done` or sees the callback.
        while self._callbacks:
            try:
                callback = self._callbacks.pop()
            except IndexError:
                return
            callback(self)
