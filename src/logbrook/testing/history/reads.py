"""Rules about what consumers were given: record after record, none passed over, none again unasked.

A consumer that is in no other position goes on with the offset after its last. What a group has committed was given to
one of its members, be it to another one than the one that committed.
"""

from collections import defaultdict

from logbrook.model import TopicPartition
from logbrook.testing.history.events import Committed, Polled, Resumed
from logbrook.testing.history.evidence import Evidence, PartitionEvidence, between, runs
from logbrook.testing.history.findings import NeverRead, ReadAgain, Skipped


def check_reads(evidence: Evidence) -> None:
    resumed: dict[TopicPartition, list[Resumed]] = defaultdict(list)
    for event in evidence.of(Resumed):
        resumed[event.partition].append(event)
    committed: dict[TopicPartition, dict[str, int]] = defaultdict(dict)
    for commit in evidence.of(Committed):
        groups = committed[commit.partition]
        groups[commit.group] = max(commit.offset, groups.get(commit.group, 0))
    for partition in evidence.partitions.values():
        known = partition.known_offsets()
        skipped = _check_positions(evidence, partition, resumed[partition.partition], known)
        _check_groups(evidence, partition, committed[partition.partition], known, skipped)


def _check_positions(
    evidence: Evidence, partition: PartitionEvidence, resumed: list[Resumed], known: list[int]
) -> dict[str, set[int]]:
    """Each consumer on its own. Returns the offsets that members of each group passed over."""
    positions: dict[str, int] = {}
    skipped: dict[str, set[int]] = defaultdict(set)
    # A consumer resumes before it is given what it resumes with, though both may be known at one moment.
    events: list[Resumed | Polled] = [*resumed, *partition.polled]
    events.sort(key=_at_ns)
    for event in events:
        if isinstance(event, Resumed):
            positions[event.consumer] = event.offset
            continue
        position = positions.get(event.consumer, event.offset)
        positions[event.consumer] = event.offset + 1
        if event.offset < position:
            evidence.find(ReadAgain(partition.partition, event.consumer, position, event.offset))
        elif event.offset > position:
            passed = between(known, position, event.offset)
            skipped[event.group].update(passed)
            for first, last in runs(passed):
                evidence.find(Skipped(partition.partition, event.consumer, first, last))
    return skipped


def _check_groups(
    evidence: Evidence,
    partition: PartitionEvidence,
    committed: dict[str, int],
    known: list[int],
    skipped: dict[str, set[int]],
) -> None:
    polled: dict[str, set[int]] = defaultdict(set)
    for event in partition.polled:
        polled[event.group].add(event.offset)
    for group, offset in committed.items():
        passed = set(between(known, 0, offset)) - polled[group] - skipped[group]
        for first, last in runs(sorted(passed)):
            evidence.find(NeverRead(partition.partition, group, first, last, offset))


def _at_ns(event: Resumed | Polled) -> int:
    return event.at_ns
