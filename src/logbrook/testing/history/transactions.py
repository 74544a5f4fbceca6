"""Rules about transactions as read_committed consumers see them: atomic, and not visible before the commit.

Nothing is visible of a transaction that was aborted, whose commit was not requested, or whose producer was fenced
before it requested the commit. Everything is visible of one whose commit was acknowledged. One whose commit got no
response is visible completely or not at all. Non-transactional records are visible, and in the end no transaction is
open.
"""

from collections.abc import Iterator

from logbrook.testing.history.anomalies import Rule
from logbrook.testing.history.index import (
    HistoryIndex,
    ObservedTransaction,
    PartitionHistory,
    TransactionEnd,
    offset_ranges,
)
from logbrook.testing.history.writes import FINAL_COMMITTED_READER


def check_transactions(history: HistoryIndex) -> None:
    wrongly_visible: set[str] = set()
    for partition in history.partitions.values():
        if partition.committed_read is not None:
            _check_hidden(history, partition)
            _check_stable(history, partition)
        elif partition.transactional and partition.final_read is not None:
            history.report(Rule.NO_FINAL_READ, partition=partition.partition, acknowledged=len(partition.acknowledged))
        wrongly_visible |= _check_seen(history, partition)
    refused = {
        (event.partition, event.value) for partition in history.partitions.values() for event in partition.failed
    }
    for transaction in history.transactions.values():
        if transaction.name not in wrongly_visible and transaction.end in (
            TransactionEnd.COMMITTED,
            TransactionEnd.UNKNOWN,
        ):
            values = {value for value, at in transaction.values.items() if (at, value) not in refused}
            _check_whole(history, transaction, values)


def _check_seen(history: HistoryIndex, partition: PartitionHistory) -> set[str]:
    """Return the names of the transactions with values that were visible and must not be."""
    names: set[str] = set()
    for at_ns, offset, value, reader in _reads(partition):
        transaction = partition.transactional.get(value)
        if transaction is None or offset in partition.reported:
            continue
        rule = _rule_violated(transaction, at_ns)
        if rule is not None:
            names.add(transaction.name)
            partition.reported.add(offset)
            partition.disputed.add(offset)
            facts = {"offset": offset, "transaction": transaction.name, "value": value, "reader": reader}
            history.report(rule, partition=partition.partition, fenced_by=transaction.fenced_by, **facts)
    return names


def _reads(partition: PartitionHistory) -> Iterator[tuple[int | None, int, str, str]]:
    """Yield time, offset, value and reader of every read. Final reads have no time: they follow everything."""
    for event in partition.polled:
        yield event.at_ns, event.offset, event.value, event.consumer
    for offset, value in partition.visible.items():
        yield None, offset, value, FINAL_COMMITTED_READER


def _rule_violated(transaction: ObservedTransaction, at_ns: int | None) -> Rule | None:
    """The rule that a read of a value of this transaction violates. `at_ns` is None for a final read."""
    if transaction.end is TransactionEnd.ABORTED:
        return Rule.ABORTED_READ
    if transaction.fenced_by is not None:
        return Rule.FENCED_READ
    requested_at_ns = transaction.commit_requested_at_ns
    if requested_at_ns is None or (at_ns is not None and at_ns < requested_at_ns):
        return Rule.UNCOMMITTED_READ
    return None


def _check_whole(history: HistoryIndex, transaction: ObservedTransaction, values: set[str]) -> None:
    places = [(history.partitions[transaction.values[value]], value) for value in sorted(values)]
    places = [(partition, value) for partition, value in places if partition.committed_read is not None]
    hidden = [(partition, value) for partition, value in places if value not in partition.visible_values]
    if not hidden or any(_is_reported(partition, value) for partition, value in hidden):
        return
    facts = {"transaction": transaction.name, "producer": transaction.producer, "values": len(values)}
    if len(hidden) < len(places):
        example, value = hidden[0]
        history.report(Rule.TORN_TRANSACTION, **facts, hidden=len(hidden), partition=example.partition, value=value)
        for torn_value, torn_partition in transaction.values.items():
            torn = history.partitions[torn_partition]
            torn.disputed.update(torn.offsets_of.get(torn_value, ()))
    elif transaction.end is TransactionEnd.COMMITTED and transaction.fenced_by is None:
        history.report(Rule.LOST_COMMIT, **facts)


def _is_reported(partition: PartitionHistory, value: str) -> bool:
    """True if the value was reported as lost from the log, whatever its transaction."""
    return value not in partition.offsets_of and any(
        event.value == value and event.offset in partition.reported for event in partition.acknowledged
    )


def _check_hidden(history: HistoryIndex, partition: PartitionHistory) -> None:
    assert partition.committed_read is not None, "checked only after a final read"
    end = partition.committed_read.last_stable_offset
    hidden = (
        offset
        for offset, value in sorted(partition.final.items())
        if offset < end
        and offset not in partition.visible
        and value not in partition.transactional
        and offset not in partition.reported
    )
    for offsets in offset_ranges(hidden):
        history.report(Rule.COMMITTED_RECORD_HIDDEN, partition=partition.partition, offsets=offsets)


def _check_stable(history: HistoryIndex, partition: PartitionHistory) -> None:
    assert partition.committed_read is not None, "checked only after a final read"
    final, stable = partition.final_read, partition.committed_read.last_stable_offset
    if final is not None and stable < final.log_end_offset:
        history.report(
            Rule.HANGING_TRANSACTION,
            partition=partition.partition,
            last_stable_offset=stable,
            log_end_offset=final.log_end_offset,
        )
