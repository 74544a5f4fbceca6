"""The way into a log: every append of the broker goes through here, and hears back on the event loop when it is done.

The committer completes tickets in a thread of its own, many at a time. They are collected, and the event loop is woken
once for all of them; there they are told to those who wait: first the readers of the partition, then the appender.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from typing_extensions import Buffer

from logbrook.model import TopicPartition
from logbrook.ports import Clock
from logbrook.records.batch import NO_PRODUCER_ID
from logbrook.records.builder import NO_PRODUCER_EPOCH, build_batch
from logbrook.records.record import Record
from logbrook.storage.batch_set import Origin
from logbrook.storage.errors import StorageError
from logbrook.storage.log import Log
from logbrook.storage.ticket import Ticket


class _Append(NamedTuple):
    ticket: Ticket
    partition: TopicPartition
    length: int
    on_done: Callable[[Ticket], None]


class Appends:
    """One per broker. `on_committed(partition, bytes)` is called for everything that readers may see now."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, on_committed: Callable[[TopicPartition, int], None]
    ) -> None:
        self.leader_epoch = 0
        # Why clients' records are not taken although the disk works, if there is a reason.
        self.refusal: StorageError | None = None
        self._loop = loop
        self._clock = clock
        self._on_committed = on_committed
        self._completed: deque[_Append] = deque()
        self._is_woken = False

    def append(
        self, log: Log, data: Buffer, on_done: Callable[[Ticket], None], origin: Origin = Origin.CLIENT
    ) -> Ticket:
        """Append now; `on_done(ticket)` is called on the event loop, perhaps before this returns. Raises as
        `Log.append` does, and the refusal."""
        if self.refusal is not None:
            raise self.refusal
        ticket = log.append(data, now_ms=self._clock.now_ms(), leader_epoch=self.leader_epoch, origin=origin)
        one = _Append(ticket, log.partition, memoryview(data).nbytes, on_done)
        if ticket.done:
            self._finish(one)
        else:
            ticket.add_done_callback(lambda _ticket: self._complete(one))
        return ticket

    async def append_records(self, log: Log, records: Sequence[tuple[bytes, bytes | None]]) -> Ticket:
        """Append the broker's own records and wait until they are durable. Raises StorageError."""
        done = self._loop.create_future()

        def finish(ticket: Ticket) -> None:
            if not done.done():
                done.set_result(ticket)

        self.append(log, self.batch_of(records), finish, Origin.COORDINATOR)
        ticket: Ticket = await done
        return ticket.result()

    def batch_of(
        self,
        records: Sequence[tuple[bytes, bytes | None]],
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
    ) -> bytearray:
        """The broker's own records, as part of a producer's transaction if there is a producer."""
        now_ms = self._clock.now_ms()
        return build_batch(
            [Record(timestamp=now_ms, key=key, value=value) for key, value in records],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=producer_id != NO_PRODUCER_ID,
        )

    def _complete(self, one: _Append) -> None:
        """On the committer's thread."""
        self._completed.append(one)
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        # First the flag, then the queue: what is added in between is taken now or wakes the loop again.
        self._is_woken = False
        completed = self._completed
        try:
            while completed:
                self._finish(completed.popleft())
        finally:
            if completed:
                # Somebody's bug, which the event loop tells of; the others are not to wait for it.
                self._loop.call_soon(self._drain)

    def _finish(self, one: _Append) -> None:
        if one.ticket.error is None and not one.ticket.duplicate:
            self._on_committed(one.partition, one.length)
        one.on_done(one.ticket)
