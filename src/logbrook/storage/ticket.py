"""What an append gives back: offsets at once, and durability when it is there."""

from collections.abc import Callable

from logbrook.storage.errors import StorageError


class CommitLine:
    """How far a log is committed. A truncation draws a new line, so that tickets from before it move nothing."""

    __slots__ = ("offset",)

    def __init__(self, offset: int) -> None:
        self.offset = offset


class Ticket:
    """One append. It is completed once, by whichever thread made it durable, and calls back from that thread."""

    __slots__ = (
        "_callbacks",
        "_line",
        "base_offset",
        "done",
        "duplicate",
        "error",
        "log_append_time_ms",
        "next_offset",
    )

    def __init__(
        self,
        line: CommitLine,
        base_offset: int,
        next_offset: int,
        log_append_time_ms: int,
        duplicate: bool,
    ) -> None:
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.log_append_time_ms = log_append_time_ms
        self.duplicate = duplicate
        self.done = False
        self.error: StorageError | None = None
        self._line = line
        self._callbacks: list[Callable[[Ticket], None]] = []

    def add_done_callback(self, callback: Callable[["Ticket"], None]) -> None:
        """Call `callback(ticket)` once the ticket is done: now, if it is."""
        self._callbacks.append(callback)
        if self.done:
            self._call_back()

    def result(self) -> "Ticket":
        """The ticket itself, or its error raised. Only for a ticket that is done."""
        assert self.done, "the ticket is not done"
        if self.error is not None:
            # One error may answer many tickets, and must not gather the frames of all who asked.
            raise self.error.with_traceback(None)
        return self

    def complete(self, error: StorageError | None = None) -> None:
        self.error = error
        if error is None and self.next_offset > self._line.offset:
            self._line.offset = self.next_offset
        self.done = True
        if self._callbacks:
            self._call_back()

    def _call_back(self) -> None:
        # The completing thread and one that adds a callback may both be here. Each callback is popped once, so it is
        # called once, and none is left behind: whoever comes second sees `done` or sees the callback.
        while self._callbacks:
            try:
                callback = self._callbacks.pop()
            except IndexError:
                return
            callback(self)
