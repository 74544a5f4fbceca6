"""Fetches that wait for more records (Kafka's fetch purgatory).

A delayed fetch has a count of the bytes that it lacks to `min_bytes`. Every commit to one of its partitions subtracts
the committed bytes; at zero the fetch is woken, that is, its `wake` callback reads again and may add another delayed
fetch. It is also woken at its deadline, when a transaction ends in one of its partitions, when a partition is deleted
or its log start offset moves, and when the broker stops. It never polls. At most 8 fetches are woken per event-loop
turn, because all their responses would be in memory until the event loop can send them.

A fetch of a session does not wait for its idle partitions one by one: they are watched for the session as long as they
are idle (`core.session_partitions`). A change that is reported here makes them active, whether a fetch waits or not.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence

from logbrook.core.session_partitions import PartitionWatches, SessionPartitions
from logbrook.model import TopicPartition

_WOKEN_PER_TURN_MAX = 8


class DelayedFetch:
    """One waiting fetch. `wake(is_final)` is called once, on the event loop, unless the fetch is cancelled.

    `is_final` is True at the deadline, if the session has ended and if the broker is stopping: the fetch must be
    answered and not wait again.

    `changed` holds the partitions that had a commit or another change since the fetch began to wait. `session` has
    further partitions that it waits for, those that are watched.
    """

    __slots__ = (
        "_purgatory",
        "changed",
        "is_cancelled",
        "is_final",
        "is_woken",
        "missing_bytes",
        "partitions",
        "session",
        "timer",
        "wake",
    )

    def __init__(
        self,
        purgatory: "FetchPurgatory",
        partitions: list[TopicPartition],
        session: SessionPartitions | None,
        missing_bytes: int,
        timer: asyncio.TimerHandle,
        wake: Callable[[bool], None],
    ) -> None:
        self._purgatory = purgatory
        self.timer = timer
        self.partitions = partitions
        self.session = session
        self.missing_bytes = missing_bytes
        self.wake = wake
        self.changed: set[TopicPartition] = set()
        # True once it is queued to be woken; `changed` is updated until `wake` is called.
        self.is_woken = False
        self.is_cancelled = False
        # True if it must be answered when it is woken.
        self.is_final = False

    def cancel(self) -> None:
        """Stop waiting; `wake` is not called."""
        self.is_cancelled = True
        self.timer.cancel()
        self._purgatory.remove(self)


class FetchPurgatory:
    """All delayed fetches of a broker, by partition, oldest first. Used on the event loop only."""

    def __init__(self, loop: asyncio.AbstractEventLoop, watches: PartitionWatches | None = None) -> None:
        """`watches` are those of the fetch sessions."""
        self._loop = loop
        self._watches = PartitionWatches() if watches is None else watches
        self._in_sessions: defaultdict[SessionPartitions, dict[DelayedFetch, None]] = defaultdict(dict)
        self._delayed: defaultdict[TopicPartition, dict[DelayedFetch, None]] = defaultdict(dict)
        self._woken: deque[DelayedFetch] = deque()
        self._is_waking = False
        self._is_stopping = False

    def __len__(self) -> int:
        return len(set().union(*self._delayed.values(), *self._in_sessions.values()))

    def add(
        self,
        partitions: Iterable[TopicPartition],
        missing_bytes: int,
        deadline_s: float,
        wake: Callable[[bool], None],
        session: SessionPartitions | None = None,
    ) -> DelayedFetch:
        """Add a fetch, to be woken after `missing_bytes` more are committed, or at event-loop time `deadline_s`.

        It waits for `partitions` and for those that `session` watches.
        """
        if self._is_stopping:
            deadline_s = self._loop.time()

        def expire() -> None:
            self.remove(delayed)
            wake(True)

        timer = self._loop.call_at(deadline_s, expire)
        delayed = DelayedFetch(self, list(partitions), session, missing_bytes, timer, wake)
        for partition in delayed.partitions:
            self._delayed[partition][delayed] = None
        if session is not None:
            self._in_sessions[session][delayed] = None
        return delayed

    def committed(self, partition: TopicPartition, length: int) -> None:
        """Count `length` committed bytes for the fetches that wait for `partition`."""
        for delayed in self._waiting_for(partition):
            delayed.changed.add(partition)
            delayed.missing_bytes -= length
            if delayed.missing_bytes <= 0:
                self._wake(delayed)

    def changed(self, partition: TopicPartition) -> None:
        """Wake every fetch of `partition`: it was deleted, its log start offset moved, or a transaction ended."""
        for delayed in self._waiting_for(partition):
            delayed.changed.add(partition)
            self._wake(delayed)

    def topic_changed(self, topic: str) -> None:
        """Report a change of a topic's metadata for all its partitions that are watched."""
        for partition in self._watches.watched_of(topic):
            self.changed(partition)

    def session_ended(self, session: SessionPartitions) -> None:
        """Answer the fetches of a session that has ended: no partition is watched for them any more."""
        for delayed in [*self._in_sessions.get(session, ())]:
            delayed.is_final = True
            self._wake(delayed)

    def _waiting_for(self, partition: TopicPartition) -> Sequence[DelayedFetch]:
        """Return the fetches that wait for a changed partition. Sessions that watch it need not do so any more."""
        waiting = self._delayed.get(partition)
        notified = [*waiting] if waiting else []
        for session in self._watches.fire(partition):
            for delayed in self._in_sessions.get(session, ()):
                # Until it is woken it waits for the partition itself, which is not watched now.
                self._delayed[partition][delayed] = None
                delayed.partitions.append(partition)
                notified.append(delayed)
        return notified

    def wake_all(self) -> None:
        """Wake every fetch, and later ones immediately, because the broker is stopping."""
        self._is_stopping = True
        waits = [*self._delayed.values(), *self._in_sessions.values()]
        for delayed in dict.fromkeys(delayed for waiting in waits for delayed in waiting):
            self._wake(delayed)

    def remove(self, delayed: DelayedFetch) -> None:
        for partition in delayed.partitions:
            waiting = self._delayed.get(partition)
            if waiting is not None:
                waiting.pop(delayed, None)
                if not waiting:
                    del self._delayed[partition]
        if delayed.session is not None:
            in_session = self._in_sessions.get(delayed.session)
            if in_session is not None:
                in_session.pop(delayed, None)
                if not in_session:
                    del self._in_sessions[delayed.session]

    def _wake(self, delayed: DelayedFetch) -> None:
        if delayed.is_woken:
            return
        delayed.is_woken = True
        delayed.timer.cancel()
        self._woken.append(delayed)
        if not self._is_waking:
            self._is_waking = True
            self._loop.call_soon(self._wake_some)

    def _wake_some(self) -> None:
        woken = self._woken
        try:
            for _ in range(min(_WOKEN_PER_TURN_MAX, len(woken))):
                delayed = woken.popleft()
                if not delayed.is_cancelled:
                    self.remove(delayed)
                    delayed.wake(self._is_stopping or delayed.is_final)
        finally:
            # If a callback raised, the event loop reports it, and the remaining fetches are woken in the next turn.
            self._is_waking = bool(woken)
            if woken:
                self._loop.call_soon(self._wake_some)
