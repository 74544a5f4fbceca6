"""The unacknowledged batches of one partition, in order, and which of them may be sent now.

- A broker accepts any sequence from a producer that is new to the partition. So the first batch is sent alone:
  if it failed with others in flight, the broker would accept the second as the first.
- When a batch fails, those behind it fail too, as out of order. So nothing more is sent until all of them are answered;
  then they are sent again, the oldest first, after a backoff.
"""

from collections import deque
from dataclasses import dataclass, field

from logbrook.client.client import Address
from logbrook.client.errors import ClientError
from logbrook.client.retry import FailedTry, RetryPolicy


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """Owned by a `Producer`. Times are seconds on the clock of the retry policy."""

    topic: str
    partition: int
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    next_sequence: int = 0
    # Batches that are not acknowledged, in order. Unless one has failed, the first `in_flight` have been sent.
    batches: deque["QueuedBatch"] = field(default_factory=deque)
    in_flight: int = 0
    # The broker to which the batches in flight were sent.
    leader: Address | None = None
    last_error: ClientError | None = None
    retry_at_s: float = 0.0
    # A batch of those in flight has failed.
    _has_failed: bool = False
    _has_written: bool = False
    _failures: int = 0

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    def next_to_send(self, now_s: float) -> "QueuedBatch | None":
        """Return the batch to send now, None if there is none or it has to wait."""
        awaits_answers = self.in_flight and (self._has_failed or not self._has_written)
        if awaits_answers or now_s < self.retry_at_s or self.in_flight == len(self.batches):
            return None
        return self.batches[self.in_flight]

    def mark_sent(self, leader: Address) -> None:
        """Record that the batch of `next_to_send` is in flight."""
        if not self.in_flight:
            self._has_failed = False
        self.in_flight += 1
        self.leader = leader

    def mark_written(self, batch: "QueuedBatch") -> None:
        """Remove an acknowledged batch."""
        self.batches.remove(batch)
        self.in_flight -= 1
        self._has_written = True
        self._failures = 0

    def mark_failed(self, error: ClientError, now_s: float) -> None:
        """Record that a batch in flight has to be sent again. Of those that fail together, the first backs off."""
        self.in_flight -= 1
        if not self._has_failed:
            self._has_failed = True
            self.back_off(error, now_s)

    def back_off(self, error: ClientError, now_s: float) -> None:
        """Send nothing until the retry policy's delay has passed."""
        self.last_error = error
        self._failures += 1
        wait_s = self.retry.delay_s(self._failures)
        self.retry_at_s = now_s + wait_s
        if self.retry.on_retry is not None:
            self.retry.on_retry(FailedTry(error, self._failures, wait_s))


@dataclass(slots=True, eq=False)
class QueuedBatch:
    """An encoded record batch of a queue, with the time of its delivery timeout."""

    queue: PartitionQueue
    data: bytes | bytearray | memoryview
    give_up_at_s: float
