"""Readers that wait for more: woken by what is committed, or by their own patience, never by looking again and again.

A wait knows how many bytes are missing. Each commit to one of its partitions takes its bytes off, and when nothing is
missing any more the reader looks for itself; it may find that it has to go on waiting. Many who wait for the same are
woken a few at a time: what all of them would read at once has to be in memory until the event loop can send it.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence

from logbrook.model import TopicPartition

_WOKEN_AT_ONCE = 8


class FetchWait:
    """One reader's wait. `wake` is called once, on the event loop, with whether its time is up."""

    __slots__ = ("_timer", "_waits", "missing_bytes", "partitions", "wake")

    def __init__(
        self,
        waits: "FetchWaits",
        partitions: Sequence[TopicPartition],
        missing_bytes: int,
        timer: asyncio.TimerHandle,
        wake: Callable[[bool], None],
    ) -> None:
        self._waits = waits
        self._timer = timer
        self.partitions = partitions
        self.missing_bytes = missing_bytes
        self.wake = wake

    def cancel(self) -> None:
        """Wait no longer, and hear nothing."""
        self._timer.cancel()
        self._waits.remove(self)


class FetchWaits:
    """All waits of a broker, by partition."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Those who came first are woken first.
        self._waits: defaultdict[TopicPartition, dict[FetchWait, None]] = defaultdict(dict)
        self._woken: deque[FetchWait] = deque()
        self._is_waking = False
        self._is_over = False

    def __len__(self) -> int:
        return len(set().union(*self._waits.values()))

    def add(
        self, partitions: Iterable[TopicPartition], missing_bytes: int, until_s: float, wake: Callable[[bool], None]
    ) -> FetchWait:
        """`until_s` is a time of the event loop."""
        if self._is_over:
            until_s = self._loop.time()

        def time_is_up() -> None:
            self.remove(wait)
            wake(True)

        wait = FetchWait(self, tuple(partitions), missing_bytes, self._loop.call_at(until_s, time_is_up), wake)
        for partition in wait.partitions:
            self._waits[partition][wait] = None
        return wait

    def committed(self, partition: TopicPartition, length: int) -> None:
        """Tell those who wait for `partition` that they may see `length` bytes more."""
        waits = self._waits.get(partition)
        if waits:
            for wait in [*waits]:
                wait.missing_bytes -= length
                if wait.missing_bytes <= 0:
                    self._wake(wait)

    def changed(self, partition: TopicPartition) -> None:
        """Let everyone who waits for `partition` look again: it was deleted, or its start has moved."""
        for wait in [*self._waits.get(partition, ())]:
            self._wake(wait)

    def wake_all(self) -> None:
        """Let everyone answer with what there is, from now on: the broker is about to stop."""
        self._is_over = True
        for wait in dict.fromkeys(wait for waits in self._waits.values() for wait in waits):
            self._wake(wait)

    def remove(self, wait: FetchWait) -> None:
        for partition in wait.partitions:
            waits = self._waits.get(partition)
            if waits is not None:
                waits.pop(wait, None)
                if not waits:
                    del self._waits[partition]

    def _wake(self, wait: FetchWait) -> None:
        wait.cancel()
        self._woken.append(wait)
        if not self._is_waking:
            self._is_waking = True
            self._loop.call_soon(self._wake_some)

    def _wake_some(self) -> None:
        woken = self._woken
        try:
            for _ in range(min(_WOKEN_AT_ONCE, len(woken))):
                woken.popleft().wake(self._is_over)
        finally:
            # A bug of one who was woken, which the event loop tells of, keeps nobody else asleep.
            self._is_waking = bool(woken)
            if woken:
                self._loop.call_soon(self._wake_some)
