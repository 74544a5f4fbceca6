"""Rules about what was written: it is there, once, where it was said to be, in order, and nothing else is.

What was written in a transaction is judged here as everything else is, committed or not: it is in the log.

The last reading of a partition decides what it holds. All that anyone saw before must agree with it.
"""

from collections.abc import Iterator

from logbrook.testing.history.events import Acknowledged, FinalTopics, TopicCreated
from logbrook.testing.history.evidence import Evidence, PartitionEvidence, runs
from logbrook.testing.history.findings import (
    AcknowledgedElsewhere,
    Duplicate,
    FailedButThere,
    LostTopic,
    LostWrite,
    NotDense,
    NotRead,
    Reordered,
    TwoValues,
    Unsent,
    Vanished,
)

FINAL_READER = "the last reader"
FINAL_COMMITTED_READER = "the last reader of committed records"


def check_writes(evidence: Evidence) -> None:
    """Order matters: a rule leaves out the offsets that one before it has told of."""
    _check_topics(evidence)
    for partition in evidence.partitions.values():
        if partition.final_read is None:
            evidence.find(NotRead(partition.partition, len(partition.acknowledged)))
            continue
        _check_two_values(evidence, partition)
        _check_acknowledged(evidence, partition)
        _check_vanished(evidence, partition)
        _check_unsent(evidence, partition)
        _check_failed(evidence, partition)
        _check_duplicates(evidence, partition)
        _check_order(evidence, partition)
        _check_dense(evidence, partition)


def _check_topics(evidence: Evidence) -> None:
    finals = evidence.of(FinalTopics)
    if not finals:
        return
    topics = finals[-1].topics
    for created in evidence.of(TopicCreated):
        found = topics.get(created.topic)
        if found != created.partitions:
            evidence.find(LostTopic(created.topic, created.partitions, found))


def _check_two_values(evidence: Evidence, partition: PartitionEvidence) -> None:
    """Everybody who read an offset read the same, and no offset was promised twice."""
    assert partition.final_read is not None, "only what was read is checked"
    seen: dict[int, tuple[str, str]] = {}
    promised: dict[int, tuple[str, str]] = {}
    claims = [(seen, offset, value, FINAL_READER) for offset, value in partition.final_read.records]
    claims += [(seen, offset, value, FINAL_COMMITTED_READER) for offset, value in partition.visible.items()]
    claims += [(seen, event.offset, event.value, event.consumer) for event in partition.polled]
    claims += [(promised, event.offset, event.value, event.producer) for event in partition.acknowledged]
    for claimed, offset, value, client in claims:
        first, first_by = claimed.setdefault(offset, (value, client))
        if first != value and offset not in partition.told:
            partition.told.add(offset)
            evidence.find(TwoValues(partition.partition, offset, first, first_by, value, client))


def _check_acknowledged(evidence: Evidence, partition: PartitionEvidence) -> None:
    final, offsets_of = partition.final, partition.offsets_of
    for event in partition.acknowledged:
        found = final.get(event.offset)
        if found == event.value:
            continue
        if event.value not in offsets_of:
            finding = LostWrite(partition.partition, event.offset, event.producer, event.value, found)
            evidence.find(finding)
        elif event.offset not in partition.told:
            evidence.find(_elsewhere(partition, event, found))
        partition.told.add(event.offset)


def _elsewhere(partition: PartitionEvidence, event: Acknowledged, found: str | None) -> AcknowledgedElsewhere:
    found_at = partition.offsets_of[event.value][0]
    return AcknowledgedElsewhere(partition.partition, event.offset, event.producer, event.value, found_at, found)


def _check_vanished(evidence: Evidence, partition: PartitionEvidence) -> None:
    """What was read is still there, acknowledged or not: readers may have acted on it."""
    for event in partition.polled:
        if event.offset not in partition.final and event.offset not in partition.told:
            partition.told.add(event.offset)
            evidence.find(Vanished(partition.partition, event.offset, event.value, event.consumer))


def _check_unsent(evidence: Evidence, partition: PartitionEvidence) -> None:
    sent = partition.sent
    reads = [(offset, value, FINAL_READER) for offset, value in partition.final.items() if value not in sent]
    reads += [(event.offset, event.value, event.consumer) for event in partition.polled if event.value not in sent]
    for offset, value, reader in reads:
        if offset not in partition.told:
            partition.told.add(offset)
            evidence.find(Unsent(partition.partition, offset, value, reader))


def _check_failed(evidence: Evidence, partition: PartitionEvidence) -> None:
    for event in partition.failed:
        for offset in partition.offsets_of.get(event.value, ()):
            evidence.find(FailedButThere(partition.partition, offset, event.producer, event.value, event.reason))


def _check_duplicates(evidence: Evidence, partition: PartitionEvidence) -> None:
    for value, offsets in partition.offsets_of.items():
        producer = partition.producer_of.get(value)
        if len(offsets) > 1 and producer in evidence.idempotent and partition.told.isdisjoint(offsets):
            assert producer is not None, "None is no producer"
            evidence.find(Duplicate(partition.partition, tuple(offsets), producer, value))


def _check_order(evidence: Evidence, partition: PartitionEvidence) -> None:
    """The values of an idempotent producer are in the order in which it sent them; each counts where it is first."""
    last: dict[str, tuple[int, str]] = {}
    for offset, value in _first_places(partition):
        producer = partition.producer_of.get(value)
        if producer not in evidence.idempotent or offset in partition.told:
            continue
        assert producer is not None, "None is no producer"
        last_offset, last_value = last.get(producer, (offset, value))
        if partition.sent[value] < partition.sent[last_value]:
            evidence.find(Reordered(partition.partition, producer, value, offset, last_value, last_offset))
        else:
            last[producer] = (offset, value)


def _first_places(partition: PartitionEvidence) -> Iterator[tuple[int, str]]:
    for offset in sorted(partition.final):
        value = partition.final[offset]
        if partition.offsets_of[value][0] == offset:
            yield offset, value


def _check_dense(evidence: Evidence, partition: PartitionEvidence) -> None:
    assert partition.final_read is not None, "only what was read is checked"
    end = max(partition.final_read.log_end_offset, max(partition.final, default=-1) + 1)
    if len(partition.final) < end:
        there = partition.final.keys() | partition.markers | partition.told
        missing = (offset for offset in range(end) if offset not in there)
        for first, last in runs(missing):
            evidence.find(NotDense(partition.partition, first, last))
