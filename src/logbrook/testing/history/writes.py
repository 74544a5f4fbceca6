"""Rules about writes: every acknowledged value is in the log once, at its offset, in order, and nothing else is.

Transactional values are checked like all others, committed or not: they are in the log.

The final read of a partition defines its content; everything observed before must agree with it.
"""

from collections.abc import Iterator

from logbrook.testing.history.anomalies import Rule
from logbrook.testing.history.events import FinalTopics, TopicCreated
from logbrook.testing.history.index import HistoryIndex, PartitionHistory, offset_ranges

FINAL_READER = "the final reader"
FINAL_COMMITTED_READER = "the final read_committed reader"


def check_writes(history: HistoryIndex) -> None:
    """Run the rules in order: each skips the offsets that an earlier one has reported."""
    _check_topics(history)
    for partition in history.partitions.values():
        if partition.final_read is None:
            history.report(Rule.NO_FINAL_READ, partition=partition.partition, acknowledged=len(partition.acknowledged))
            continue
        _check_two_values(history, partition)
        _check_acknowledged(history, partition)
        _check_vanished(history, partition)
        _check_unsent(history, partition)
        _check_failed(history, partition)
        _check_duplicates(history, partition)
        _check_order(history, partition)
        _check_dense(history, partition)


def _check_topics(history: HistoryIndex) -> None:
    finals = history.of(FinalTopics)
    if not finals:
        return
    topics = finals[-1].topics
    for created in history.of(TopicCreated):
        partitions = topics.get(created.topic)
        if partitions != created.partitions:
            history.report(Rule.LOST_TOPIC, topic=created.topic, created=created.partitions, remaining=partitions)


def _check_two_values(history: HistoryIndex, partition: PartitionHistory) -> None:
    """All readers of an offset read the same value, and no offset was acknowledged for two values."""
    assert partition.final_read is not None, "checked only after a final read"
    seen: dict[int, tuple[str, str]] = {}
    acknowledged_at: dict[int, tuple[str, str]] = {}
    observations = [(seen, offset, value, FINAL_READER) for offset, value in partition.final_read.records]
    observations += [(seen, offset, value, FINAL_COMMITTED_READER) for offset, value in partition.visible.items()]
    observations += [(seen, event.offset, event.value, event.consumer) for event in partition.polled]
    observations += [(acknowledged_at, event.offset, event.value, event.producer) for event in partition.acknowledged]
    for by_offset, offset, value, client in observations:
        first, first_by = by_offset.setdefault(offset, (value, client))
        if first != value and offset not in partition.reported:
            partition.reported.add(offset)
            facts = {"first": first, "first_by": first_by, "second": value, "second_by": client}
            history.report(Rule.TWO_VALUES, partition=partition.partition, offset=offset, **facts)


def _check_acknowledged(history: HistoryIndex, partition: PartitionHistory) -> None:
    final, offsets_of = partition.final, partition.offsets_of
    for event in partition.acknowledged:
        stored = final.get(event.offset)
        if stored == event.value:
            continue
        facts = event._asdict() | {"stored": stored}
        if event.value not in offsets_of:
            history.report(Rule.LOST_WRITE, **facts)
        elif event.offset not in partition.reported:
            history.report(Rule.ACKNOWLEDGED_AT_OTHER_OFFSET, **facts, actual_offset=offsets_of[event.value][0])
        partition.reported.add(event.offset)


def _check_vanished(history: HistoryIndex, partition: PartitionHistory) -> None:
    """Every record a consumer received is still in the log, acknowledged or not."""
    for event in partition.polled:
        if event.offset not in partition.final and event.offset not in partition.reported:
            partition.reported.add(event.offset)
            history.report(Rule.READ_THEN_LOST, **event._asdict())


def _check_unsent(history: HistoryIndex, partition: PartitionHistory) -> None:
    sent = partition.sent
    reads = [(offset, value, FINAL_READER) for offset, value in partition.final.items() if value not in sent]
    reads += [(event.offset, event.value, event.consumer) for event in partition.polled if event.value not in sent]
    for offset, value, reader in reads:
        if offset not in partition.reported:
            partition.reported.add(offset)
            history.report(Rule.NEVER_SENT, partition=partition.partition, offset=offset, value=value, reader=reader)


def _check_failed(history: HistoryIndex, partition: PartitionHistory) -> None:
    for event in partition.failed:
        for offset in partition.offsets_of.get(event.value, ()):
            history.report(Rule.FAILED_WRITE_VISIBLE, **event._asdict(), offset=offset)


def _check_duplicates(history: HistoryIndex, partition: PartitionHistory) -> None:
    for value, offsets in partition.offsets_of.items():
        producer = partition.producer_of.get(value)
        if len(offsets) == 1 or partition.is_of_several_epochs(offsets):
            continue
        if producer in history.idempotent and partition.reported.isdisjoint(offsets):
            history.report(
                Rule.DUPLICATE, partition=partition.partition, producer=producer, value=value, offsets=offsets
            )


def _check_order(history: HistoryIndex, partition: PartitionHistory) -> None:
    """The values of an idempotent producer are in send order, by the first occurrence of each."""
    last: dict[str, tuple[int, str]] = {}
    for offset, value in _first_occurrences(partition):
        producer = partition.producer_of.get(value)
        if producer not in history.idempotent or offset in partition.reported:
            continue
        assert producer is not None, "every idempotent producer has a name"
        last_offset, last_value = last.get(producer, (offset, value))
        if partition.sent[value] < partition.sent[last_value]:
            facts = {"earlier": value, "earlier_offset": offset, "later": last_value, "later_offset": last_offset}
            history.report(Rule.REORDERED, partition=partition.partition, producer=producer, **facts)
        else:
            last[producer] = (offset, value)


def _first_occurrences(partition: PartitionHistory) -> Iterator[tuple[int, str]]:
    for offset in sorted(partition.final):
        value = partition.final[offset]
        if partition.offsets_of[value][0] == offset:
            yield offset, value


def _check_dense(history: HistoryIndex, partition: PartitionHistory) -> None:
    assert partition.final_read is not None, "checked only after a final read"
    end = max(partition.final_read.log_end_offset, max(partition.final, default=-1) + 1)
    if len(partition.final) < end:
        present = partition.final.keys() | partition.markers | partition.reported
        missing = (offset for offset in range(end) if offset not in present)
        for offsets in offset_ranges(missing):
            history.report(Rule.NOT_DENSE, partition=partition.partition, offsets=offsets)
