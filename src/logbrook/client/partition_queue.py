"""What a producer has to write to one partition: its batches in order, and which of them may go now.

- A broker lets a producer that it does not know begin with any sequence. So the first batch of a partition goes alone:
  were it to fail, a second one would be taken for the first.
- When a batch fails, those behind it fail as well, as out of order. So nothing more is sent until all of them are
  answered; then they go again, the oldest first, after a while that grows with every failure.
"""

from collections import deque
from dataclasses import dataclass, field

from logbrook.client.client import Address
from logbrook.client.errors import ClientError

_BACKOFF_S = 0.1
_BACKOFF_S_MAX = 1.0
_DOUBLINGS_MAX = 10


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """Moments are seconds of one monotonic clock."""

    topic: str
    partition: int
    next_sequence: int = 0
    # What is not known to be written, in order. Unless one has failed, the first `in_flight` are under way.
    batches: deque["QueuedBatch"] = field(default_factory=deque)
    in_flight: int = 0
    # Where those are under way to.
    leader: Address | None = None
    last_error: ClientError | None = None
    try_at_s: float = 0.0
    _has_failed: bool = False
    _has_written: bool = False
    _tries: int = 0

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    def next_to_send(self, now_s: float) -> "QueuedBatch | None":
        if self._has_failed and not self.in_flight:
            self._has_failed = False
        waits_for_first = self.in_flight and not self._has_written
        if self._has_failed or waits_for_first or now_s < self.try_at_s or self.in_flight == len(self.batches):
            return None
        return self.batches[self.in_flight]

    def sent(self, leader: Address) -> None:
        """What `next_to_send` gave is under way."""
        self.in_flight += 1
        self.leader = leader

    def written(self, batch: "QueuedBatch") -> None:
        self.batches.remove(batch)
        self.in_flight -= 1
        self._has_written = True
        self._tries = 0

    def failed(self, error: ClientError, now_s: float) -> None:
        """One that was under way is to be sent again."""
        self.in_flight -= 1
        if not self._has_failed:
            self._has_failed = True
            self.delay(error, now_s)

    def delay(self, error: ClientError, now_s: float) -> None:
        self.last_error = error
        self.try_at_s = now_s + backoff_s(self._tries)
        self._tries += 1


@dataclass(slots=True, eq=False)
class QueuedBatch:
    queue: PartitionQueue
    data: bytes | bytearray | memoryview
    give_up_at_s: float


def backoff_s(tries: int) -> float:
    """How long to wait after so many failures before this one."""
    return float(min(_BACKOFF_S * 2 ** min(tries, _DOUBLINGS_MAX), _BACKOFF_S_MAX))
