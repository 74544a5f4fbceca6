"""Incremental fetch sessions (KIP-227): the broker remembers what a consumer reads, so that neither repeats itself.

A consumer's first fetch names all its partitions and opens a session. From then on it names only what changed, and is
told only about partitions with something new. Both sides count the fetches, and a wrong count ends the session: then
they begin again with a full fetch. A session can be forgotten at any time, since the consumer can always do that.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from logbrook.model import LogbrookError
from logbrook.ports import Random

NO_SESSION = 0
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
_EPOCH_MAX = 2**31 - 1
# A session that was used within this time is not given up for a new one.
_EVICTABLE_AFTER_MS = 120_000
# What all sessions together remember, at most.
_PARTITIONS_MAX = 200_000

# A topic's id, or its name for consumers that do not know ids, and the partition's number.
PartitionKey: TypeAlias = tuple[bytes | str, int]


class FetchSessionError(LogbrookError):
    """The consumer and the broker do not agree about a session; the consumer starts a new one."""


class FetchSessionNotFoundError(FetchSessionError):
    def __init__(self, session_id: int) -> None:
        super().__init__(f"there is no fetch session {session_id}")
        self.session_id = session_id


class InvalidFetchSessionEpochError(FetchSessionError):
    def __init__(self, session_id: int, epoch: int, expected: int) -> None:
        super().__init__(f"fetch session {session_id} got epoch {epoch} where {expected} comes next")
        self.session_id = session_id
        self.epoch = epoch
        self.expected = expected


@dataclass(slots=True)
class FetchPartition:
    """What a consumer wants of a partition, and what it was told last."""

    key: PartitionKey
    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int = -1
    high_watermark: int = -1
    log_start_offset: int = -1

    def is_news(self, *, high_watermark: int, log_start_offset: int, has_records: bool, has_error: bool) -> bool:
        """Whether the consumer has to be told, taking note of what it is told."""
        if has_error:
            # It must hear of it again, and of what follows it.
            self.high_watermark = -1
            return True
        changed = self.high_watermark != high_watermark or self.log_start_offset != log_start_offset
        self.high_watermark, self.log_start_offset = high_watermark, log_start_offset
        return changed or has_records


class FetchContext:
    """One fetch: the partitions to read, in the order in which they get their share, and the session it is part of."""

    def __init__(self, session_id: int, partitions: OrderedDict[PartitionKey, FetchPartition], *, full: bool) -> None:
        self.session_id = session_id
        self.is_full = full
        self._partitions = partitions

    def __iter__(self) -> Iterator[FetchPartition]:
        return iter(list(self._partitions.values()))

    def served(self, partition: FetchPartition) -> None:
        """It had records, so the others come first next time."""
        if not self.is_full and partition.key in self._partitions:
            self._partitions.move_to_end(partition.key)


class _Session(NamedTuple):
    next_epoch: int
    used_ms: int
    partitions: OrderedDict[PartitionKey, FetchPartition]
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
        wanted: Iterable[FetchPartition],
        forgotten: Iterable[PartitionKey],
        now_ms: int,
        *,
        by_id: bool,
    ) -> FetchContext:
        """Raises FetchSessionNotFoundError or InvalidFetchSessionEpochError.

        A session of names is none for a consumer that has come to speak of ids, nor the other way round, because the
        answer has room for one of the two. One that would remember too much is given up.
        """
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._forget(session_id)
            partitions = OrderedDict((one.key, one) for one in wanted)
            given = NO_SESSION
            if epoch == INITIAL_EPOCH and partitions and self._make_room(len(partitions), now_ms):
                given = self._new_id()
                self._sessions[given] = _Session(1, now_ms, partitions, by_id)
                self._partition_count += len(partitions)
            return FetchContext(given, partitions, full=True)
        session = self._sessions.get(session_id)
        if session is None or session.by_id != by_id:
            raise FetchSessionNotFoundError(session_id)
        if epoch != session.next_epoch:
            raise InvalidFetchSessionEpochError(session_id, epoch, session.next_epoch)
        partitions = session.partitions
        self._partition_count -= len(partitions)
        for key in forgotten:
            partitions.pop(key, None)
        for one in wanted:
            known = partitions.get(one.key)
            if known is not None:
                one.high_watermark, one.log_start_offset = known.high_watermark, known.log_start_offset
            partitions[one.key] = one
        self._partition_count += len(partitions)
        next_epoch = epoch + 1 if epoch < _EPOCH_MAX else 1
        self._sessions[session_id] = _Session(next_epoch, now_ms, partitions, by_id)
        self._sessions.move_to_end(session_id)
        if self._partition_count > _PARTITIONS_MAX:
            self._forget(session_id)
            raise FetchSessionNotFoundError(session_id)
        if not partitions:
            self._forget(session_id)
            return FetchContext(NO_SESSION, partitions, full=True)
        return FetchContext(session_id, partitions, full=False)

    def validate(self) -> None:
        """Assert what must always hold."""
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
            self._forget(oldest_id)
        return not is_full()

    def _new_id(self) -> int:
        while True:
            session_id = int.from_bytes(self._random.token(4), "big") >> 1
            if session_id != NO_SESSION and session_id not in self._sessions:
                return session_id

    def _forget(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partition_count -= len(session.partitions)
