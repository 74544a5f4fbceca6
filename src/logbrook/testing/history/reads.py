"""Rules about what consumers received: every record in order, none skipped, none repeated without a seek.

A consumer continues with the offset after its last record unless its position was set. Every record below a group's
committed offset was received by a member of the group, not necessarily the one that committed.

One exception, which was seen twice with librdkafka: after a kill, a consumer may receive again what it has received
since, and once after it has resumed, it may receive the first record again. The probable cause is the check of its
position when it learns of a leader epoch (KIP-320): a record that arrives before the answer looks truncated, and is
fetched again.
"""

from collections import defaultdict
from operator import attrgetter

from logbrook.model import TopicPartition
from logbrook.testing.history.anomalies import Rule
from logbrook.testing.history.events import BrokerKilled, Committed, Polled, Resumed
from logbrook.testing.history.index import HistoryIndex, PartitionHistory, between, offset_ranges


def check_reads(history: HistoryIndex) -> None:
    resumed: dict[TopicPartition, list[Resumed]] = defaultdict(list)
    for event in history.of(Resumed):
        resumed[event.partition].append(event)
    committed: dict[TopicPartition, dict[str, int]] = defaultdict(dict)
    for commit in history.of(Committed):
        groups = committed[commit.partition]
        groups[commit.group] = max(commit.offset, groups.get(commit.group, 0))
    for partition in history.partitions.values():
        known = partition.known_offsets()
        skipped = _check_positions(history, partition, resumed[partition.partition], known)
        _check_groups(history, partition, committed[partition.partition], known, skipped)


def _check_positions(
    history: HistoryIndex, partition: PartitionHistory, resumed: list[Resumed], known: list[int]
) -> dict[str, set[int]]:
    """Check each consumer separately. Returns the offsets that the members of each group skipped."""
    positions: dict[str, int] = {}
    # The positions of consumers at the last kill; a consumer that resumed later has none.
    at_kill: dict[str, int] = {}
    # The offset of each consumer that may receive it again.
    first: dict[str, int] = {}
    killed_at_ns = -1
    skipped: dict[str, set[int]] = defaultdict(set)
    # A consumer resumes before it receives the first record, though both may have the same timestamp.
    events: list[BrokerKilled | Resumed | Polled] = [*history.of(BrokerKilled), *resumed, *partition.polled]
    events.sort(key=attrgetter("at_ns"))
    for event in events:
        if isinstance(event, BrokerKilled):
            killed_at_ns = event.at_ns
            at_kill = dict(positions)
            continue
        if isinstance(event, Resumed):
            positions[event.consumer] = first[event.consumer] = event.offset
            at_kill.pop(event.consumer, None)
            if event.begun_at_ns < killed_at_ns:
                at_kill[event.consumer] = event.offset
            continue
        position = positions.get(event.consumer, event.offset)
        positions[event.consumer] = event.offset + 1
        if event.offset < min(position, at_kill.get(event.consumer, position)):
            if event.offset == first.get(event.consumer):
                del first[event.consumer]
                continue
            history.report(
                Rule.READ_AGAIN,
                partition=partition.partition,
                consumer=event.consumer,
                position=position,
                offset=event.offset,
            )
        elif event.offset > position:
            missed = between(known, position, event.offset)
            skipped[event.group].update(missed)
            for offsets in offset_ranges(missed):
                history.report(Rule.SKIPPED, partition=partition.partition, consumer=event.consumer, offsets=offsets)
    return skipped


def _check_groups(
    history: HistoryIndex,
    partition: PartitionHistory,
    committed: dict[str, int],
    known: list[int],
    skipped: dict[str, set[int]],
) -> None:
    polled: dict[str, set[int]] = defaultdict(set)
    for event in partition.polled:
        polled[event.group].add(event.offset)
    for group, offset in committed.items():
        missed = set(between(known, 0, offset)) - polled[group] - skipped[group]
        for offsets in offset_ranges(sorted(missed)):
            history.report(
                Rule.NEVER_READ, partition=partition.partition, group=group, committed=offset, offsets=offsets
            )
