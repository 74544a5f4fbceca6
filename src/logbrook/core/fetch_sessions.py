"""Incremental fetch sessions (KIP-227): the broker keeps the partitions that a consumer reads between fetches.

The first fetch of a consumer lists all its partitions and creates a session. Later fetches list only changes, and later
responses contain only partitions with something new. Both sides count the fetches (the session epoch). After a wrong
epoch or an evicted session the consumer starts again with a full fetch, so a session can be evicted at any time.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from logbrook.model import LogbrookError
from logbrook.model.identifiers import LeaderEpoch, Offset
from logbrook.ports import Random

NO_SESSION = 0
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
_EPOCH_MAX = 2**31 - 1
# A session that was used within this time is not evicted for a new one.
_EVICTABLE_AFTER_MS = 120_000
# Partitions of all sessions together, at most.
_PARTITIONS_MAX = 200_000

# Topic id (or topic name, before version 13) and partition number.
PartitionKey: TypeAlias = tuple[bytes | str, int]


class FetchSessionError(LogbrookError):
    """The consumer's session id or epoch is not the broker's; the consumer starts a new session."""


class FetchSessionNotFoundError(FetchSessionError):
    def __init__(self, session_id: int) -> None:
        super().__init__(f"fetch session {session_id} does not exist; start a new one")


class InvalidFetchSessionEpochError(FetchSessionError):
    def __init__(self, session_id: int, epoch: int, expected: int) -> None:
        super().__init__(f"fetch session {session_id} got epoch {epoch} instead of {expected}; start a new one")


@dataclass(slots=True)
class CachedPartition:
    """A partition that a consumer reads, with the offsets of the last response."""

    key: PartitionKey
    fetch_offset: Offset
    partition_max_bytes: int
    current_leader_epoch: LeaderEpoch = LeaderEpoch(-1)
    # Of a follower: the leader epoch of its last record.
    last_fetched_epoch: LeaderEpoch = LeaderEpoch(-1)
    high_watermark: Offset = Offset(-1)
    log_start_offset: Offset = Offset(-1)

    def has_news(self, *, high_watermark: Offset, log_start_offset: Offset, has_records: bool, has_error: bool) -> bool:
        """True if an incremental response has to contain the partition."""
        is_changed = self.high_watermark != high_watermark or self.log_start_offset != log_start_offset
        return is_changed or has_records or has_error

    def note_sent(self, high_watermark: Offset, log_start_offset: Offset, *, has_error: bool) -> None:
        """Store the offsets of a response, to compare the next one with. After an error the next one is always sent."""
        if has_error:
            self.high_watermark = Offset(-1)
        else:
            self.high_watermark, self.log_start_offset = high_watermark, log_start_offset


class FetchContext:
    """One fetch: its session and its partitions, in the order in which they get a share of the response."""

    def __init__(self, session_id: int, partitions: OrderedDict[PartitionKey, CachedPartition], *, full: bool) -> None:
        self.session_id = session_id
        self.is_full = full
        self._partitions = partitions

    def __iter__(self) -> Iterator[CachedPartition]:
        return iter(list(self._partitions.values()))

    def served(self, partition: CachedPartition) -> None:
        """Move a partition that had records to the end, so that the others come first in the next fetch."""
        if not self.is_full and partition.key in self._partitions:
            self._partitions.move_to_end(partition.key)


class _Session(NamedTuple):
    next_epoch: int
    used_ms: int
    partitions: OrderedDict[PartitionKey, CachedPartition]
    by_id: bool


class FetchSessions:
    """All sessions of a broker."""

    def __init__(self, sessions_max: int, random: Random) -> None:
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
    ) -> FetchContext:
        """Create, continue or close a session. Raises FetchSessionNotFoundError or InvalidFetchSessionEpochError.

        A session by topic names is not found by a fetch with topic ids and the other way round, because a response has
        either of them. A session that would exceed the partition limit is evicted.
        """
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._evict(session_id)
            partitions = OrderedDict((partition.key, partition) for partition in wanted)
            new_id = NO_SESSION
            if epoch == INITIAL_EPOCH and partitions and self._make_room(len(partitions), now_ms):
                new_id = self._new_id()
                self._sessions[new_id] = _Session(1, now_ms, partitions, by_id)
                self._partition_count += len(partitions)
            return FetchContext(new_id, partitions, full=True)
        session = self._sessions.get(session_id)
        if session is None or session.by_id != by_id:
            raise FetchSessionNotFoundError(session_id)
        if epoch != session.next_epoch:
            raise InvalidFetchSessionEpochError(session_id, epoch, session.next_epoch)
        partitions = session.partitions
        self._partition_count -= len(partitions)
        for key in forgotten:
            partitions.pop(key, None)
        for partition in wanted:
            earlier = partitions.get(partition.key)
            if earlier is not None:
                partition.note_sent(earlier.high_watermark, earlier.log_start_offset, has_error=False)
            partitions[partition.key] = partition
        self._partition_count += len(partitions)
        next_epoch = epoch + 1 if epoch < _EPOCH_MAX else 1
        self._sessions[session_id] = _Session(next_epoch, now_ms, partitions, by_id)
        self._sessions.move_to_end(session_id)
        if self._partition_count > _PARTITIONS_MAX:
            self._evict(session_id)
            raise FetchSessionNotFoundError(session_id)
        if not partitions:
            self._evict(session_id)
            return FetchContext(NO_SESSION, partitions, full=True)
        return FetchContext(session_id, partitions, full=False)

    def close(self, session_id: int) -> None:
        """Close a session that was created by a fetch whose response does not tell the client its id."""
        self._evict(session_id)

    def validate(self) -> None:
        """Assert the invariants."""
        assert len(self._sessions) <= self._sessions_max
        assert self._partition_count <= _PARTITIONS_MAX
        assert self._partition_count == sum(len(session.partitions) for session in self._sessions.values())
        assert NO_SESSION not in self._sessions

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
