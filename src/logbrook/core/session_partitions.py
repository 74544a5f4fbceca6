"""The partitions of a fetch session: the order in which they are read, and which of them have to be read at all.

A partition is active or idle. It becomes idle when a response was sent in whose read it had no error, no records, and
none to come before the log changes: the fetch offset was the end of what the consumer may read. From that read on it is
watched. It becomes active again when the client names it, when the broker reports a change of the partition
(`PartitionWatches.fire`), and when the conditions of the session change (`activate_all`). A fetch reads active
partitions only, so idle ones cost nothing.

A change that is not reported would be a consumer that waits for ever. Therefore idle partitions are also read in turns,
all of them once per `SWEEP_MS`. What that finds and no report has announced, even a second later, is counted as missed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from logbrook.model import TopicPartition
from logbrook.model.identifiers import LeaderEpoch, Offset

# An offset that is not known, as on the wire.
NO_OFFSET = Offset(-1)
# Every idle partition is read once in this time, if the consumer fetches often enough.
SWEEP_MS = 60_000
# At most this share of the partitions per fetch, and a few more.
_SWEPT_SHARE = 64
_SWEPT_MORE = 8
# The high watermark moves on another thread, before the change is reported: a report may be late by this time.
_REPORT_MS_MAX = 1_000

# Topic id (or topic name, before version 13) and partition number.
PartitionKey: TypeAlias = tuple[bytes | str, int]

_turn_of = attrgetter("turn")


@dataclass(slots=True, eq=False)
class CachedPartition:
    """A partition that a consumer reads, with the offsets of the last response."""

    key: PartitionKey
    fetch_offset: Offset
    partition_max_bytes: int
    current_leader_epoch: LeaderEpoch = LeaderEpoch(-1)
    # Of a follower: the leader epoch of its last record.
    last_fetched_epoch: LeaderEpoch = LeaderEpoch(-1)
    # Of a follower: its own. Others do not tell it.
    follower_log_start_offset: Offset = NO_OFFSET
    high_watermark: Offset = NO_OFFSET
    log_start_offset: Offset = NO_OFFSET
    # None if it belongs to no session, or not any more.
    session: "SessionPartitions | None" = field(default=None, repr=False)
    # Its place in the session: partitions are read in ascending order.
    turn: int = 0
    # The name of its topic if changes of it are reported, None if it is not watched.
    watched: str | None = None
    reports: int = 0
    # True while it is active only to find out whether a change was not reported.
    is_swept: bool = False

    def has_news(self, high_watermark: Offset, log_start_offset: Offset, *, has_records: bool, has_error: bool) -> bool:
        """True if an incremental response has to contain the partition."""
        is_changed = self.high_watermark != high_watermark or self.log_start_offset != log_start_offset
        return is_changed or has_records or has_error

    def note_sent(self, high_watermark: Offset, log_start_offset: Offset, *, has_error: bool) -> None:
        """Store the offsets of a response, to compare the next one with. After an error the next one is always sent."""
        if has_error:
            self.high_watermark = NO_OFFSET
        else:
            self.high_watermark, self.log_start_offset = high_watermark, log_start_offset


class PartitionWatches:
    """The watched partitions of all sessions, by topic and number. One per broker, on the event loop."""

    __slots__ = ("_watched",)

    def __init__(self) -> None:
        # Most partitions are watched by one session: the second one makes it a collection.
        self._watched: dict[str, dict[int, CachedPartition | dict[CachedPartition, None]]] = {}

    def __len__(self) -> int:
        return len(self.partitions())

    def add(self, partition: CachedPartition, topic: str) -> None:
        """Watch a partition of the topic with this name."""
        partition.watched = topic
        number = partition.key[1]
        numbers = self._watched.get(topic)
        if numbers is None:
            self._watched[topic] = {number: partition}
            return
        watching = numbers.get(number)
        if watching is None:
            numbers[number] = partition
        elif isinstance(watching, dict):
            watching[partition] = None
        else:
            numbers[number] = {watching: None, partition: None}

    def discard(self, partition: CachedPartition) -> None:
        topic = partition.watched
        if topic is None:
            return
        partition.watched = None
        numbers, number = self._watched[topic], partition.key[1]
        watching = numbers[number]
        if isinstance(watching, dict):
            del watching[partition]
            if watching:
                return
        del numbers[number]
        if not numbers:
            del self._watched[topic]

    def fire(self, changed: TopicPartition) -> "Sequence[SessionPartitions]":
        """Make a changed partition active in the sessions that watch it, and return them."""
        numbers = self._watched.get(changed.topic)
        if numbers is None:
            return ()
        watching = numbers.pop(changed.partition, None)
        if watching is None:
            return ()
        if not numbers:
            del self._watched[changed.topic]
        if isinstance(watching, dict):
            return [_activate(partition) for partition in watching]
        return (_activate(watching),)

    def watched_of(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic that are watched."""
        return [TopicPartition(topic, number) for number in self._watched.get(topic, ())]

    def partitions(self) -> list[CachedPartition]:
        """Return all that are watched."""
        watched: list[CachedPartition] = []
        for numbers in self._watched.values():
            for watching in numbers.values():
                watched += watching if isinstance(watching, dict) else (watching,)
        return watched


def _activate(partition: CachedPartition) -> "SessionPartitions":
    partition.watched = None
    partition.reports += 1
    session = partition.session
    assert session is not None, "a partition without a session is watched"
    session.activate(partition)
    return session


class _Suspect(NamedTuple):
    """A partition that had news without a report, the number of reports so far, and the time."""

    key: PartitionKey
    reports: int
    since_ms: int


class SessionPartitions:
    """The partitions of one session. Owned by `FetchSessions`, on the event loop."""

    __slots__ = ("_active", "_by_key", "_is_in_order", "_next_turn", "_suspects", "_sweep", "_swept_ms", "_watches")

    def __init__(self, watches: PartitionWatches, partitions: Iterable[CachedPartition], now_ms: int) -> None:
        self._watches = watches
        self._by_key: dict[PartitionKey, CachedPartition] = {}
        # In ascending order of turns if `_is_in_order`.
        self._active: dict[CachedPartition, None] = {}
        self._is_in_order = True
        self._next_turn = 0
        # The partitions that remain to be swept, the next one last.
        self._sweep: list[CachedPartition] = []
        self._swept_ms = now_ms
        self._suspects: list[_Suspect] = []
        for partition in partitions:
            self.add(partition)

    def __len__(self) -> int:
        return len(self._by_key)

    @property
    def has_idle(self) -> bool:
        return len(self._active) < len(self._by_key)

    def active(self) -> list[CachedPartition]:
        """Return the partitions to read, in their order."""
        if not self._is_in_order:
            self._active = dict.fromkeys(sorted(self._active, key=_turn_of))
            self._is_in_order = True
        elif not self._active:
            # An emptied dictionary keeps the memory of its entries.
            self._active = {}
        return list(self._active)

    def add(self, partition: CachedPartition) -> None:
        """Add a partition that the client names, at the end, or in the place of the one with the same key."""
        earlier = self._by_key.get(partition.key)
        if earlier is None:
            partition.turn = self._next_turn
            self._next_turn += 1
        else:
            partition.note_sent(earlier.high_watermark, earlier.log_start_offset, has_error=False)
            partition.turn, partition.reports = earlier.turn, earlier.reports
            self._is_in_order = False
            watched = earlier.watched
            self._detach(earlier)
            if watched is not None:
                self._watches.add(partition, watched)
        self._by_key[partition.key] = partition
        partition.session = self
        self._active[partition] = None

    def forget(self, key: PartitionKey) -> None:
        partition = self._by_key.pop(key, None)
        if partition is not None:
            self._detach(partition)

    def move_to_end(self, partition: CachedPartition) -> None:
        if partition.session is self:
            partition.turn = self._next_turn
            self._next_turn += 1
            if self._active.pop(partition, self) is None:
                self._active[partition] = None

    def watch(self, partition: CachedPartition, topic: str) -> None:
        """Have changes of the partition, of the topic with this name, reported from now on."""
        if partition.session is self and partition.watched is None:
            self._watches.add(partition, topic)

    def settle(self, partition: CachedPartition) -> None:
        """Make a partition idle, unless it has changed since it is watched."""
        if partition.session is self and partition.watched is not None:
            self._active.pop(partition, None)

    def activate(self, partition: CachedPartition) -> None:
        if partition not in self._active:
            self._active[partition] = None
            self._is_in_order = False

    def activate_all(self) -> None:
        self._active = dict.fromkeys(self._by_key.values())
        self._is_in_order = False
        for partition in self._active:
            # What is found now need not have been reported.
            partition.is_swept = False

    def close(self) -> None:
        """End the session: nothing is watched any more."""
        for partition in self._by_key.values():
            self._detach(partition)
        self._by_key.clear()
        self._sweep.clear()

    def sweep(self, now_ms: int) -> list[CachedPartition]:
        """Make the idle partitions active whose turn it is to be read. Return those with a change that was missed."""
        missed = self._judge(now_ms) if self._suspects else []
        count = len(self._by_key)
        # The clock may have been set back.
        self._swept_ms = min(self._swept_ms, now_ms)
        due = min(count * (now_ms - self._swept_ms) // SWEEP_MS, count // _SWEPT_SHARE + _SWEPT_MORE)
        if due:
            self._swept_ms = now_ms
            for _ in range(due):
                self._sweep_next()
        return missed

    def note_read(self, partition: CachedPartition, now_ms: int, *, has_news: bool) -> None:
        """End the sweep of a partition, which was read."""
        partition.is_swept = False
        if has_news and partition.watched is not None:
            self._suspects.append(_Suspect(partition.key, partition.reports, now_ms))

    def validate(self) -> None:
        """Assert the invariants."""
        assert all(partition.session is self for partition in self._by_key.values())
        assert all(self._by_key.get(partition.key) is partition for partition in self._active)
        assert all(p.watched is not None for p in self._by_key.values() if p not in self._active)
        turns = [partition.turn for partition in self._active]
        assert not self._is_in_order or turns == sorted(turns)
        assert len({partition.turn for partition in self._by_key.values()}) == len(self._by_key)

    def _sweep_next(self) -> None:
        if not self._sweep:
            self._sweep = list(self._by_key.values())
        partition = self._sweep.pop()
        if partition.session is self and partition not in self._active:
            partition.is_swept = True
            self.activate(partition)

    def _judge(self, now_ms: int) -> list[CachedPartition]:
        missed: list[CachedPartition] = []
        undecided: list[_Suspect] = []
        for suspect in self._suspects:
            partition = self._by_key.get(suspect.key)
            if partition is None or partition.reports != suspect.reports:
                continue
            if now_ms - suspect.since_ms < _REPORT_MS_MAX:
                undecided.append(suspect)
            else:
                missed.append(partition)
        self._suspects = undecided
        return missed

    def _detach(self, partition: CachedPartition) -> None:
        self._watches.discard(partition)
        self._active.pop(partition, None)
        partition.session = None
