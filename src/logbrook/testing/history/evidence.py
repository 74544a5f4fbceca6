"""A history put in order: by kind of event, and by partition, once, for all rules to look up."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar, cast

from logbrook.model import TopicPartition
from logbrook.testing.history.events import (
    Acknowledged,
    Event,
    Failed,
    FinalCommittedRead,
    FinalMarkers,
    FinalRead,
    Polled,
    ProducerStarted,
    Sent,
)
from logbrook.testing.history.findings import Finding
from logbrook.testing.history.transaction_evidence import Transaction, TransactionEvents

_E = TypeVar("_E")


@dataclass
class PartitionEvidence:
    """What is known of one partition. `final` is what it holds at the end, None if nobody looked."""

    partition: TopicPartition
    sent: dict[str, int] = field(default_factory=dict)
    """Values in the order in which they were sent, numbered."""
    producer_of: dict[str, str] = field(default_factory=dict)
    acknowledged: list[Acknowledged] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    polled: list[Polled] = field(default_factory=list)
    final_read: FinalRead | None = None
    final: dict[int, str] = field(default_factory=dict)
    offsets_of: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Where each value is at the end."""
    transactional: dict[str, Transaction] = field(default_factory=dict)
    """The values that were sent in transactions, each with its own."""
    committed_read: FinalCommittedRead | None = None
    visible: dict[int, str] = field(default_factory=dict)
    """What readers of committed records are given at the end."""
    visible_values: set[str] = field(default_factory=set)
    markers: set[int] = field(default_factory=set)
    in_doubt: set[int] = field(default_factory=set)
    """Offsets of transactions about which something was found: who passed over them is not told again."""
    told: set[int] = field(default_factory=set)
    """Offsets about which something was found: what follows from it is not told again."""

    def known_offsets(self) -> list[int]:
        """Every offset that somebody has seen a record at, in order, but for those that no consumer is to be given."""
        seen = {event.value for event in self.polled if event.offset not in self.told}
        hidden = self.transactional.keys() - self.visible_values - seen
        known = {offset for offset, value in self.final.items() if value not in hidden}
        known.update(event.offset for event in self.acknowledged if event.value not in hidden)
        known.update(event.offset for event in self.polled)
        return sorted(known - self.in_doubt)


class Evidence:
    """Events by kind (`of`) and by partition, and the findings so far."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._by_kind: dict[type, list[Event]] = defaultdict(list)
        for event in sorted(events, key=_at_ns):
            self._by_kind[type(event)].append(event)
        self.events = sum(map(len, self._by_kind.values()))
        self.idempotent = {event.producer for event in self.of(ProducerStarted) if event.idempotent}
        self.partitions: dict[TopicPartition, PartitionEvidence] = {}
        self.findings: list[Finding] = []
        transactions = TransactionEvents(self._by_kind)
        self.transactions = transactions.transactions
        for sent in self.of(Sent):
            partition = self._partition(sent.partition)
            transaction = transactions.of_sent(sent)
            if transaction is not None:
                transaction.values[sent.value] = sent.partition
                partition.transactional[sent.value] = transaction
            partition.sent[sent.value] = len(partition.sent)
            partition.producer_of[sent.value] = sent.producer
        for acknowledged in self.of(Acknowledged):
            self._partition(acknowledged.partition).acknowledged.append(acknowledged)
        for failed in self.of(Failed):
            self._partition(failed.partition).failed.append(failed)
        for polled in self.of(Polled):
            self._partition(polled.partition).polled.append(polled)
        for final_read in self.of(FinalRead):
            self._partition(final_read.partition).final_read = final_read
        for committed_read in self.of(FinalCommittedRead):
            self._partition(committed_read.partition).committed_read = committed_read
        for markers in self.of(FinalMarkers):
            self._partition(markers.partition).markers.update(markers.offsets)
        for partition in self.partitions.values():
            partition.visible = dict(partition.committed_read.records if partition.committed_read else ())
            partition.visible_values = set(partition.visible.values())
            partition.final = dict(partition.final_read.records if partition.final_read else ())
            for offset, value in sorted(partition.final.items()):
                partition.offsets_of[value].append(offset)

    def of(self, kind: type[_E]) -> list[_E]:
        """The events of one kind, in order of their times."""
        return cast(list[_E], self._by_kind[kind])

    def find(self, finding: Finding) -> None:
        self.findings.append(finding)

    def _partition(self, partition: TopicPartition) -> PartitionEvidence:
        found = self.partitions.get(partition)
        if found is None:
            found = self.partitions[partition] = PartitionEvidence(partition)
        return found


def runs(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Rising offsets as (first, last) of those that follow on each other."""
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if found and offset == found[-1][1] + 1:
            found[-1] = (found[-1][0], offset)
        else:
            found.append((offset, offset))
    return found


def between(offsets: list[int], first: int, end: int) -> list[int]:
    """Those of the sorted `offsets` that are in [first, end)."""
    return offsets[bisect_left(offsets, first) : bisect_left(offsets, end)]


def _at_ns(event: Event) -> int:
    return event.at_ns
