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
    FinalRead,
    Polled,
    ProducerStarted,
    Sent,
)
from logbrook.testing.history.findings import Finding

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
    told: set[int] = field(default_factory=set)
    """Offsets about which something was found: what follows from it is not told again."""

    def known_offsets(self) -> list[int]:
        """Every offset that somebody has seen a record at, in order."""
        known = set(self.final)
        known.update(event.offset for event in self.acknowledged)
        known.update(event.offset for event in self.polled)
        return sorted(known)


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
        for sent in self.of(Sent):
            partition = self._partition(sent.partition)
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
        for partition in self.partitions.values():
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
