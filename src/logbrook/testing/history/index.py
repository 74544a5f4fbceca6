"""A history indexed by kind of event, by partition and by transaction, for the rules to look up."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from operator import attrgetter, itemgetter
from typing import TypeVar, cast

from logbrook.model import TopicPartition
from logbrook.testing.history.anomalies import Anomaly, OffsetSpan, Rule
from logbrook.testing.history.events import (
    Acknowledged,
    Event,
    Failed,
    FinalCommittedRead,
    FinalMarkers,
    FinalProducers,
    FinalRead,
    Polled,
    ProducerStarted,
    Sent,
    TransactionAborted,
    TransactionalIdTaken,
    TransactionBegun,
    TransactionCommitted,
    TransactionFailed,
    TransactionUnknown,
)

_E = TypeVar("_E")


class TransactionEnd(Enum):
    COMMITTED = auto()
    UNKNOWN = auto()
    """The commit got no response."""
    ABORTED = auto()
    """The abort was acknowledged, or the commit was refused."""
    NONE = auto()
    """The producer requested neither commit nor abort."""


_ENDS = {
    TransactionCommitted: TransactionEnd.COMMITTED,
    TransactionUnknown: TransactionEnd.UNKNOWN,
    TransactionFailed: TransactionEnd.ABORTED,
}


@dataclass
class ObservedTransaction:
    """A transaction as its producer saw it: what it sent, and how it ended."""

    name: str
    producer: str
    values: dict[str, TopicPartition] = field(default_factory=dict)
    end: TransactionEnd = TransactionEnd.NONE
    commit_requested_at_ns: int | None = None
    fenced_by: str | None = None
    """The producer that acquired the transactional id before the commit was requested."""


@dataclass
class PartitionHistory:
    """The events of one partition. `final` is its content at the end, empty if there was no final read."""

    partition: TopicPartition
    sent: dict[str, int] = field(default_factory=dict)
    """Values with their sequence number in send order."""
    producer_of: dict[str, str] = field(default_factory=dict)
    acknowledged: list[Acknowledged] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    polled: list[Polled] = field(default_factory=list)
    final_read: FinalRead | None = None
    final: dict[int, str] = field(default_factory=dict)
    offsets_of: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """The offsets of each value at the end."""
    transactional: dict[str, ObservedTransaction] = field(default_factory=dict)
    """The values sent in transactions, each with its transaction."""
    committed_read: FinalCommittedRead | None = None
    visible: dict[int, str] = field(default_factory=dict)
    """The records that a read_committed consumer receives at the end."""
    visible_values: set[str] = field(default_factory=set)
    markers: set[int] = field(default_factory=set)
    epoch_of: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Producer id and epoch of the records of idempotent producers, by offset; empty if they were not read."""
    disputed: set[int] = field(default_factory=set)
    """Offsets of transactions with a reported anomaly: consumers that skip them are not reported too."""
    reported: set[int] = field(default_factory=set)
    """Offsets with a reported anomaly: its consequences are not reported again."""

    def is_of_several_epochs(self, offsets: list[int]) -> bool:
        """True if each record has a producer epoch of its own.

        A producer that begins a new epoch repeats records whose outcome it does not know, and no broker can tell:
        librdkafka does so in all partitions when a batch of one is out of order (its issue 4953).
        """
        epochs = {self.epoch_of.get(offset) for offset in offsets}
        return len(epochs) == len(offsets) and None not in epochs

    def known_offsets(self) -> list[int]:
        """All offsets known to hold a record that consumers must receive, in order."""
        seen = {event.value for event in self.polled if event.offset not in self.reported}
        hidden = self.transactional.keys() - self.visible_values - seen
        known = {offset for offset, value in self.final.items() if value not in hidden}
        known.update(event.offset for event in self.acknowledged if event.value not in hidden)
        known.update(event.offset for event in self.polled)
        return sorted(known - self.disputed)


class HistoryIndex:
    """The events of a history by kind (`of`) and by partition, and the anomalies reported so far."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._by_kind: dict[type, list[Event]] = defaultdict(list)
        for event in sorted(events, key=attrgetter("at_ns")):
            self._by_kind[type(event)].append(event)
        self.events = sum(map(len, self._by_kind.values()))
        self.idempotent = {event.producer for event in self.of(ProducerStarted) if event.idempotent}
        self.partitions: dict[TopicPartition, PartitionHistory] = {}
        self.anomalies: list[Anomaly] = []
        transactions = TransactionHistoryIndex(self._by_kind)
        self.transactions = transactions.transactions
        self._index_sent(transactions)
        self._index_outcomes()
        self._index_final_reads()

    def _index_sent(self, transactions: "TransactionHistoryIndex") -> None:
        for sent in self.of(Sent):
            partition = self._partition(sent.partition)
            transaction = transactions.of_sent(sent)
            if transaction is not None:
                transaction.values[sent.value] = sent.partition
                partition.transactional[sent.value] = transaction
            partition.sent[sent.value] = len(partition.sent)
            partition.producer_of[sent.value] = sent.producer

    def _index_outcomes(self) -> None:
        for acknowledged in self.of(Acknowledged):
            self._partition(acknowledged.partition).acknowledged.append(acknowledged)
        for failed in self.of(Failed):
            self._partition(failed.partition).failed.append(failed)
        for polled in self.of(Polled):
            self._partition(polled.partition).polled.append(polled)

    def _index_final_reads(self) -> None:
        for final_read in self.of(FinalRead):
            self._partition(final_read.partition).final_read = final_read
        for committed_read in self.of(FinalCommittedRead):
            self._partition(committed_read.partition).committed_read = committed_read
        for markers in self.of(FinalMarkers):
            self._partition(markers.partition).markers.update(markers.offsets)
        for producers in self.of(FinalProducers):
            epoch_of = self._partition(producers.partition).epoch_of
            for first, end, producer_id, epoch in producers.batches:
                epoch_of.update(dict.fromkeys(range(first, end), (producer_id, epoch)))
        for partition in self.partitions.values():
            partition.visible = dict(partition.committed_read.records if partition.committed_read else ())
            partition.visible_values = set(partition.visible.values())
            partition.final = dict(partition.final_read.records if partition.final_read else ())
            for offset, value in sorted(partition.final.items()):
                partition.offsets_of[value].append(offset)

    def of(self, kind: type[_E]) -> list[_E]:
        """The events of one kind, in time order."""
        return cast(list[_E], self._by_kind[kind])

    def report(self, rule: Rule, **facts: object) -> None:
        self.anomalies.append(Anomaly.of(rule, **facts))

    def _partition(self, partition: TopicPartition) -> PartitionHistory:
        history = self.partitions.get(partition)
        if history is None:
            history = self.partitions[partition] = PartitionHistory(partition)
        return history


class TransactionHistoryIndex:
    """The transactions of a history. `events` are grouped by kind, each group in time order."""

    def __init__(self, events: Mapping[type, list[Event]]) -> None:
        self._events = events
        self.transactions: dict[str, ObservedTransaction] = {}
        self._begun: dict[str, list[tuple[int, ObservedTransaction]]] = defaultdict(list)
        for begun in self._of(TransactionBegun):
            transaction = self.transactions[begun.transaction] = ObservedTransaction(begun.transaction, begun.producer)
            self._begun[begun.producer].append((begun.at_ns, transaction))
        asked: list[TransactionCommitted | TransactionUnknown | TransactionFailed]
        asked = [*self._of(TransactionCommitted), *self._of(TransactionUnknown), *self._of(TransactionFailed)]
        for event in asked:
            ended = self.transactions[event.transaction]
            ended.end, ended.commit_requested_at_ns = _ENDS[type(event)], event.begun_at_ns
        # An aborted transaction may have had an unsuccessful commit request before; the abort decides.
        for aborted in self._of(TransactionAborted):
            self.transactions[aborted.transaction].end = TransactionEnd.ABORTED
        self._fence()

    def of_sent(self, sent: Sent) -> ObservedTransaction | None:
        """The transaction the producer had open when it sent the value."""
        begun = self._begun.get(sent.producer)
        if begun is None:
            return None
        number = bisect_right(begun, sent.at_ns, key=itemgetter(0))
        return begun[number - 1][1] if number else None

    def _fence(self) -> None:
        """Mark transactions whose transactional id another producer acquired before the commit was requested."""
        taken: dict[str, list[TransactionalIdTaken]] = defaultdict(list)
        place: dict[str, tuple[str, int]] = {}
        for event in self._of(TransactionalIdTaken):
            place[event.producer] = (event.transactional_id, len(taken[event.transactional_id]))
            taken[event.transactional_id].append(event)
        for transaction in self.transactions.values():
            if transaction.producer in place and transaction.commit_requested_at_ns is not None:
                transactional_id, number = place[transaction.producer]
                followers = taken[transactional_id][number + 1 :][:1]
                if followers and followers[0].at_ns < transaction.commit_requested_at_ns:
                    transaction.fenced_by = followers[0].producer

    def _of(self, kind: type[_E]) -> list[_E]:
        return cast(list[_E], self._events.get(kind, []))


def offset_ranges(offsets: Iterable[int]) -> list[OffsetSpan]:
    """Group ascending offsets into ranges of consecutive ones."""
    ranges: list[OffsetSpan] = []
    for offset in offsets:
        if ranges and offset == ranges[-1].last + 1:
            ranges[-1] = OffsetSpan(ranges[-1].first, offset)
        else:
            ranges.append(OffsetSpan(offset, offset))
    return ranges


def between(offsets: list[int], first: int, end: int) -> list[int]:
    """Return the sorted `offsets` that lie in [first, end)."""
    return offsets[bisect_left(offsets, first) : bisect_left(offsets, end)]
