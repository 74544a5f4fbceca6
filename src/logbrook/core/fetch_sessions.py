"""Incremental fetch sessions (KIP-227): the broker keeps the partitions that a consumer reads between fetches.

The first fetch of a consumer lists all its partitions and creates a session. Later fetches list only changes, and later
responses contain only partitions with something new; idle ones are not even read (`session_partitions`). Both sides
count the fetches (the session epoch). After a wrong epoch or an evicted session the consumer starts again with a full
fetch, so a session can be evicted at any time.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

from logbrook.core.session_partitions import CachedPartition, PartitionKey, PartitionWatches, SessionPartitions
from logbrook.model import LogbrookError
from logbrook.ports import Random

NO_SESSION = 0
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
_EPOCH_MAX = 2**31 - 1
# A session that was used within this time is not evicted for a new one.
_EVICTABLE_AFTER_MS = 120_000
# Partitions of all sessions together, at most.
_PARTITIONS_MAX = 200_000


class FetchSessionError(LogbrookError):
    """The consumer's session id or epoch is not the broker's; the consumer starts a new session."""


class FetchSessionNotFoundError(FetchSessionError):
    def __init__(self, session_id: int) -> None:
        super().__init__(f"fetch session {session_id} does not exist; start a new one")


class InvalidFetchSessionEpochError(FetchSessionError):
    def __init__(self, session_id: int, epoch: int, expected: int) -> None:
        super().__init__(f"fetch session {session_id} got epoch {epoch} instead of {expected}; start a new one")


def next_session_epoch(epoch: int) -> int:
    """Return the epoch of the fetch after the one with `epoch`. It wraps to 1: 0 begins a session."""
    return epoch + 1 if epoch < _EPOCH_MAX else 1


class FetchContext:
    """One fetch: its session, if any, and its partitions, in the order in which they get a share of the response.

    A full fetch reads and returns all of them, another one reads those that are active.
    """

    __slots__ = ("_now_ms", "_partitions", "_session", "is_full", "missed", "session_id", "watching")

    def __init__(
        self,
        session_id: int,
        partitions: Iterable[CachedPartition],
        session: "_Session | None" = None,
        now_ms: int = 0,
        *,
        full: bool,
    ) -> None:
        self.session_id = session_id
        self.is_full = full
        # Partitions of the session of which a change was not reported.
        self.missed: Sequence[CachedPartition] = ()
        # The partitions of the session, None without one: changes of those that it watches are reported.
        self.watching = None if session is None else session.partitions
        self._session = session
        self._now_ms = now_ms
        # Of a full fetch.
        self._partitions = list(partitions)
        if session is not None:
            session.latest = self

    def __iter__(self) -> Iterator[CachedPartition]:
        return iter(self._partitions if self.is_full or self.watching is None else self.watching.active())

    @property
    def has_idle(self) -> bool:
        """True if the session has partitions that this fetch does not read."""
        return not self.is_full and self.watching is not None and self.watching.has_idle

    @property
    def is_continued(self) -> bool:
        """True if this is the latest fetch of a session, and reads the partitions that become active while it waits."""
        return not self.is_full and self._session is not None and self._session.latest is self

    def watch(self, partition: CachedPartition, topic: str) -> None:
        """Have changes reported of a partition, of the topic with this name, that was read to its end."""
        if self.watching is not None:
            self.watching.watch(partition, topic)

    def served(self, partition: CachedPartition) -> None:
        """Move a partition that had records to the end, so that the others come first in the next fetch."""
        if not self.is_full and self.watching is not None:
            self.watching.move_to_end(partition)

    def answered(self, partition: CachedPartition, *, has_news: bool, is_at_end: bool) -> None:
        """The response is decided: the next fetch need not read a partition that was read to its end.

        Unless it has changed since. Only the latest fetch of a session decides: others had other conditions.
        """
        if self._session is None or self._session.latest is not self:
            return
        if partition.is_swept:
            self._session.partitions.note_read(partition, self._now_ms, has_news=has_news)
        if is_at_end:
            self._session.partitions.settle(partition)


class _Session:
    __slots__ = ("by_id", "conditions", "latest", "next_epoch", "partitions", "used_ms")

    def __init__(self, partitions: SessionPartitions, conditions: Hashable, now_ms: int, *, by_id: bool) -> None:
        self.partitions = partitions
        self.conditions = conditions
        self.used_ms = now_ms
        self.by_id = by_id
        self.next_epoch = 1
        self.latest: FetchContext | None = None


class FetchSessions:
    """All sessions of a broker. `watches` gets the reports of changed partitions."""

    def __init__(self, sessions_max: int, random: Random) -> None:
        self.watches = PartitionWatches()
        # Called with the partitions of a session that has ended.
        self.on_ended: Callable[[SessionPartitions], None] = lambda _: None
        # Changes of idle partitions that were found by reading them, and not reported.
        self.missed_changes = 0
        self._sessions_max = sessions_max
        self._random = random
        # The least recently used first.
        self._sessions: OrderedDict[int, _Session] = OrderedDict()
        self._partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self,
        session_id: int,
        epoch: int,
        wanted: Iterable[CachedPartition],
        forgotten: Iterable[PartitionKey],
        now_ms: int,
        *,
        by_id: bool,
        conditions: Hashable = None,
    ) -> FetchContext:
        """Create, continue or close a session. Raises FetchSessionNotFoundError or InvalidFetchSessionEpochError.

        A session by topic names is not found by a fetch with topic ids and the other way round, because a response has
        either of them. A session that would exceed the partition limit is evicted. `conditions` are all that the answer
        depends on besides the fetched partitions: if they are not those of the last fetch, all partitions are read.
        """
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._evict(session_id)
            return self._begin_full(epoch, wanted, now_ms, by_id=by_id, conditions=conditions)
        session = self._sessions.get(session_id)
        if session is None or session.by_id != by_id:
            raise FetchSessionNotFoundError(session_id)
        if epoch != session.next_epoch:
            raise InvalidFetchSessionEpochError(session_id, epoch, session.next_epoch)
        partitions = session.partitions
        self._partition_count -= len(partitions)
        for key in forgotten:
            partitions.forget(key)
        for partition in wanted:
            partitions.add(partition)
        self._partition_count += len(partitions)
        session.next_epoch = next_session_epoch(epoch)
        session.used_ms = now_ms
        self._sessions.move_to_end(session_id)
        if self._partition_count > _PARTITIONS_MAX:
            self._evict(session_id)
            raise FetchSessionNotFoundError(session_id)
        if not partitions:
            self._evict(session_id)
            return FetchContext(NO_SESSION, (), full=True)
        if session.conditions != conditions:
            session.conditions = conditions
            partitions.activate_all()
        context = FetchContext(session_id, (), session, now_ms, full=False)
        context.missed = partitions.sweep(now_ms)
        self.missed_changes += len(context.missed)
        return context

    def _begin_full(
        self, epoch: int, wanted: Iterable[CachedPartition], now_ms: int, *, by_id: bool, conditions: Hashable
    ) -> FetchContext:
        # The last one counts if the client names a partition twice.
        named = {partition.key: partition for partition in wanted}.values()
        if epoch != INITIAL_EPOCH or not named or not self._make_room(len(named), now_ms):
            return FetchContext(NO_SESSION, named, full=True)
        session_id = self._new_id()
        partitions = SessionPartitions(self.watches, named, now_ms)
        session = self._sessions[session_id] = _Session(partitions, conditions, now_ms, by_id=by_id)
        self._partition_count += len(partitions)
        return FetchContext(session_id, named, session, now_ms, full=True)

    def close(self, session_id: int) -> None:
        """Close a session that was created by a fetch whose response does not tell the client its id."""
        self._evict(session_id)

    def validate(self) -> None:
        """Assert the invariants."""
        assert len(self._sessions) <= self._sessions_max
        assert self._partition_count <= _PARTITIONS_MAX
        assert self._partition_count == sum(len(session.partitions) for session in self._sessions.values())
        assert NO_SESSION not in self._sessions
        for session in self._sessions.values():
            session.partitions.validate()
        owners = {session.partitions for session in self._sessions.values()}
        assert all(partition.session in owners for partition in self.watches.partitions())

    def _make_room(self, partitions: int, now_ms: int) -> bool:
        def is_full() -> bool:
            return len(self._sessions) >= self._sessions_max or self._partition_count + partitions > _PARTITIONS_MAX

        while is_full() and self._sessions:
            oldest_id, oldest = next(iter(self._sessions.items()))
            if now_ms - oldest.used_ms < _EVICTABLE_AFTER_MS:
                return False
            self._evict(oldest_id)
        return not is_full()

    def _new_id(self) -> int:
        while True:
            session_id = int.from_bytes(self._random.token(4), "big") >> 1
            if session_id != NO_SESSION and session_id not in self._sessions:
                return session_id

    def _evict(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partition_count -= len(session.partitions)
            session.partitions.close()
            session.latest = None
            self.on_ended(session.partitions)
