"""Detection of stalled clients: those that take too long to send a request or to read their responses.

While the broker waits for a client, that is, while a request has arrived in part or a response is sent in part,

- at least 64 KiB must be transferred, or a request completed, within `connection_stalled_ms`,
- a whole request must arrive within that time plus its size divided by 512 KiB/s,
- and while the memory of responses is scarce, all that is unsent must be read within `connection_stalled_ms`.

Time in which the broker itself does not read, because memory is scarce, does not count.
"""

from typing import NamedTuple

_PROGRESS_BYTES = 64 * 1024
_RECEIVE_BYTES_PER_S_MIN = 512 * 1024


class ConnectionTimeouts(NamedTuple):
    """The times after which a connection is closed, in seconds."""

    first_request_s: float
    idle_s: float
    stalled_s: float
    authentication_s: float = 10.0


class Transfer(NamedTuple):
    """The counters of a connection at one time."""

    # Requests received, and bytes received and sent, since the connection was made.
    frames: int
    transferred_bytes: int
    # Bytes of responses that wait to be sent.
    unsent_bytes: int
    # Size of the request that is being received; 0 if there is none, or if the broker does not read.
    frame_bytes: int


class PeerProgress:
    """The progress of one client. `is_stalled` is called periodically."""

    __slots__ = ("_at_s", "_checked_s", "_mark", "_receiving_s")

    def __init__(self) -> None:
        # The last progress, None if the broker does not wait for the client.
        self._mark: Transfer | None = None
        self._at_s = 0.0
        self._checked_s = 0.0
        # Time that the current request has been arriving for.
        self._receiving_s = 0.0

    def reset(self) -> None:
        """Note that the client has neither a request nor a response under way."""
        self._mark = None
        self._receiving_s = 0.0

    def is_stalled(self, now_s: float, transfer: Transfer, stalled_s: float, *, is_memory_scarce: bool) -> bool:
        mark = self._mark
        elapsed_s, self._checked_s = now_s - self._checked_s, now_s
        if mark is None or mark.frames != transfer.frames:
            self._receiving_s = 0.0
        elif transfer.frame_bytes:
            self._receiving_s += elapsed_s
            if self._receiving_s >= stalled_s + transfer.frame_bytes / _RECEIVE_BYTES_PER_S_MIN:
                return True
        if mark is None or self._has_progressed(mark, transfer, is_memory_scarce=is_memory_scarce):
            self._mark, self._at_s = transfer, now_s
            return False
        return now_s - self._at_s >= stalled_s

    def _has_progressed(self, mark: Transfer, transfer: Transfer, *, is_memory_scarce: bool) -> bool:
        if mark.frames != transfer.frames or not (transfer.unsent_bytes or transfer.frame_bytes):
            return True
        needed_bytes = max(_PROGRESS_BYTES, mark.unsent_bytes) if is_memory_scarce else _PROGRESS_BYTES
        return transfer.transferred_bytes - mark.transferred_bytes >= needed_bytes
