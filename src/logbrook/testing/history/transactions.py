"""Rules about transactions, as readers of committed records see them: all of one or nothing, and never too early.

Nothing is seen of a transaction that was aborted, that nobody asked to commit, or whose producer had been fenced when
it asked. All is seen of one whose commit was acknowledged. One whose commit had no answer is seen as a whole or not at
all. What belongs to no transaction is seen, and in the end no transaction is open.
"""

from collections.abc import Iterator

from logbrook.testing.history.evidence import Evidence, PartitionEvidence, runs
from logbrook.testing.history.findings import (
    AbortedRead,
    FencedRead,
    Finding,
    HangingTransaction,
    Hidden,
    LostCommit,
    NotRead,
    TornTransaction,
    UncommittedRead,
)
from logbrook.testing.history.transaction_evidence import End, Transaction
from logbrook.testing.history.writes import FINAL_COMMITTED_READER


def check_transactions(evidence: Evidence) -> None:
    seen_wrongly: set[str] = set()
    for partition in evidence.partitions.values():
        if partition.committed_read is not None:
            _check_hidden(evidence, partition)
            _check_stable(evidence, partition)
        elif partition.transactional and partition.final_read is not None:
            evidence.find(NotRead(partition.partition, len(partition.acknowledged)))
        seen_wrongly |= _check_seen(evidence, partition)
    refused = {(event.partition, event.value) for one in evidence.partitions.values() for event in one.failed}
    for transaction in evidence.transactions.values():
        if transaction.name not in seen_wrongly and transaction.end in (End.COMMITTED, End.UNKNOWN):
            values = {value for value, at in transaction.values.items() if (at, value) not in refused}
            _check_whole(evidence, transaction, values)


def _check_seen(evidence: Evidence, partition: PartitionEvidence) -> set[str]:
    """The names of the transactions of which something was seen that was not to be."""
    found: set[str] = set()
    for at_ns, offset, value, reader in _reads(partition):
        transaction = partition.transactional.get(value)
        if transaction is None or offset in partition.told:
            continue
        finding = _why_not(transaction, at_ns, partition, offset, value, reader)
        if finding is not None:
            found.add(transaction.name)
            partition.told.add(offset)
            partition.in_doubt.add(offset)
            evidence.find(finding)
    return found


def _reads(partition: PartitionEvidence) -> Iterator[tuple[int | None, int, str, str]]:
    """When, where, what and by whom. The last reading is after everything, at no time."""
    for event in partition.polled:
        yield event.at_ns, event.offset, event.value, event.consumer
    for offset, value in partition.visible.items():
        yield None, offset, value, FINAL_COMMITTED_READER


def _why_not(
    transaction: Transaction, at_ns: int | None, partition: PartitionEvidence, offset: int, value: str, reader: str
) -> Finding | None:
    place = (partition.partition, offset, transaction.name, value, reader)
    if transaction.end is End.ABORTED:
        return AbortedRead(*place)
    if transaction.fenced_by is not None:
        return FencedRead(*place, transaction.fenced_by)
    asked_at_ns = transaction.commit_asked_at_ns
    if asked_at_ns is None or (at_ns is not None and at_ns < asked_at_ns):
        return UncommittedRead(*place)
    return None


def _check_whole(evidence: Evidence, transaction: Transaction, values: set[str]) -> None:
    places = [(evidence.partitions[transaction.values[value]], value) for value in sorted(values)]
    places = [(partition, value) for partition, value in places if partition.committed_read is not None]
    hidden = [(partition, value) for partition, value in places if value not in partition.visible_values]
    if not hidden or any(_is_told(partition, value) for partition, value in hidden):
        return
    name, producer = transaction.name, transaction.producer
    if len(hidden) < len(places):
        example, value = hidden[0]
        evidence.find(TornTransaction(name, producer, len(values), len(hidden), example.partition, value))
        for one, at in transaction.values.items():
            torn = evidence.partitions[at]
            torn.in_doubt.update(torn.offsets_of.get(one, ()))
    elif transaction.end is End.COMMITTED and transaction.fenced_by is None:
        evidence.find(LostCommit(name, producer, len(values)))


def _is_told(partition: PartitionEvidence, value: str) -> bool:
    """A value that is gone from the log is lost whatever became of its transaction."""
    return value not in partition.offsets_of and any(
        event.value == value and event.offset in partition.told for event in partition.acknowledged
    )


def _check_hidden(evidence: Evidence, partition: PartitionEvidence) -> None:
    assert partition.committed_read is not None, "only what was read is checked"
    end = partition.committed_read.last_stable_offset
    hidden = (
        offset
        for offset, value in sorted(partition.final.items())
        if offset < end
        and offset not in partition.visible
        and value not in partition.transactional
        and offset not in partition.told
    )
    for first, last in runs(hidden):
        evidence.find(Hidden(partition.partition, first, last))


def _check_stable(evidence: Evidence, partition: PartitionEvidence) -> None:
    assert partition.committed_read is not None, "only what was read is checked"
    final, stable = partition.final_read, partition.committed_read.last_stable_offset
    if final is not None and stable < final.log_end_offset:
        evidence.find(HangingTransaction(partition.partition, stable, final.log_end_offset))
