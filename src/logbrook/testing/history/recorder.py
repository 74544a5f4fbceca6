"""Writes down what clients see, from any number of threads.

There is no lock: some clients call back while an error of theirs is pending, and a lock that is taken then may never be
given back. Appending to a list is atomic, and `events` are in the order of their times. `now_ns` is for the moment
before a question is asked.
"""

from collections.abc import Callable
from operator import attrgetter

from logbrook.model import TopicPartition
from logbrook.testing.history.events import (
    Acknowledged,
    BrokerKilled,
    BrokerStarted,
    BrokerStopped,
    Committed,
    CommittedSeen,
    CommitUnknown,
    Event,
    Failed,
    FinalCommittedRead,
    FinalMarkers,
    FinalRead,
    FinalTopics,
    LatestSeen,
    Polled,
    ProducerStarted,
    Resumed,
    Sent,
    TopicCreated,
    TransactionAborted,
    TransactionalIdTaken,
    TransactionBegun,
    TransactionCommitted,
    TransactionFailed,
    TransactionUnknown,
    Unknown,
)


class Recorder:
    """`now_ns` is a monotonic clock, the same for everything that is recorded."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.now_ns = now_ns
        self._events: list[Event] = []

    def events(self) -> list[Event]:
        """What was recorded so far."""
        return sorted(self._events, key=attrgetter("at_ns"))

    def producer_started(self, producer: str, *, idempotent: bool) -> None:
        self._record(lambda at_ns: ProducerStarted(at_ns, producer, idempotent))

    def sent(self, producer: str, partition: TopicPartition, value: str) -> None:
        self._record(lambda at_ns: Sent(at_ns, producer, partition, value))

    def acknowledged(self, producer: str, partition: TopicPartition, offset: int, value: str) -> None:
        self._record(lambda at_ns: Acknowledged(at_ns, producer, partition, offset, value))

    def failed(self, producer: str, partition: TopicPartition, value: str, reason: str) -> None:
        self._record(lambda at_ns: Failed(at_ns, producer, partition, value, reason))

    def unknown(self, producer: str, partition: TopicPartition, value: str, reason: str) -> None:
        self._record(lambda at_ns: Unknown(at_ns, producer, partition, value, reason))

    def transactional_id_taken(self, producer: str, transactional_id: str) -> None:
        self._record(lambda at_ns: TransactionalIdTaken(at_ns, producer, transactional_id))

    def transaction_begun(self, producer: str, transaction: str) -> None:
        self._record(lambda at_ns: TransactionBegun(at_ns, producer, transaction))

    def transaction_committed(self, begun_at_ns: int, producer: str, transaction: str) -> None:
        self._record(lambda at_ns: TransactionCommitted(at_ns, begun_at_ns, producer, transaction))

    def transaction_unknown(self, begun_at_ns: int, producer: str, transaction: str, reason: str) -> None:
        self._record(lambda at_ns: TransactionUnknown(at_ns, begun_at_ns, producer, transaction, reason))

    def transaction_failed(self, begun_at_ns: int, producer: str, transaction: str, reason: str) -> None:
        self._record(lambda at_ns: TransactionFailed(at_ns, begun_at_ns, producer, transaction, reason))

    def transaction_aborted(self, producer: str, transaction: str) -> None:
        self._record(lambda at_ns: TransactionAborted(at_ns, producer, transaction))

    def polled(self, consumer: str, group: str, partition: TopicPartition, offset: int, value: str) -> None:
        self._record(lambda at_ns: Polled(at_ns, consumer, group, partition, offset, value))

    def resumed(self, begun_at_ns: int, consumer: str, group: str, partition: TopicPartition, offset: int) -> None:
        self._record(lambda at_ns: Resumed(at_ns, begun_at_ns, consumer, group, partition, offset))

    def committed(self, begun_at_ns: int, group: str, partition: TopicPartition, offset: int) -> None:
        self._record(lambda at_ns: Committed(at_ns, begun_at_ns, group, partition, offset))

    def commit_unknown(self, begun_at_ns: int, group: str, partition: TopicPartition, offset: int) -> None:
        self._record(lambda at_ns: CommitUnknown(at_ns, begun_at_ns, group, partition, offset))

    def committed_seen(
        self, begun_at_ns: int, client: str, group: str, partition: TopicPartition, offset: int | None
    ) -> None:
        self._record(lambda at_ns: CommittedSeen(at_ns, begun_at_ns, client, group, partition, offset))

    def latest_seen(self, begun_at_ns: int, client: str, partition: TopicPartition, offset: int) -> None:
        self._record(lambda at_ns: LatestSeen(at_ns, begun_at_ns, client, partition, offset))

    def topic_created(self, topic: str, partitions: int) -> None:
        self._record(lambda at_ns: TopicCreated(at_ns, topic, partitions))

    def broker_started(self) -> None:
        self._record(BrokerStarted)

    def broker_killed(self) -> None:
        self._record(BrokerKilled)

    def broker_stopped(self) -> None:
        self._record(BrokerStopped)

    def final_topics(self, topics: dict[str, int]) -> None:
        self._record(lambda at_ns: FinalTopics(at_ns, topics))

    def final_read(
        self, begun_at_ns: int, partition: TopicPartition, log_end_offset: int, records: list[tuple[int, str]]
    ) -> None:
        self._record(lambda at_ns: FinalRead(at_ns, begun_at_ns, partition, log_end_offset, records))

    def final_committed_read(
        self, partition: TopicPartition, last_stable_offset: int, records: list[tuple[int, str]]
    ) -> None:
        self._record(lambda at_ns: FinalCommittedRead(at_ns, partition, last_stable_offset, records))

    def final_markers(self, partition: TopicPartition, offsets: list[int]) -> None:
        self._record(lambda at_ns: FinalMarkers(at_ns, partition, offsets))

    def _record(self, event_at: Callable[[int], Event]) -> None:
        self._events.append(event_at(self.now_ns()))
