"""What a history holds, in numbers; also what is allowed and worth knowing, like records that came twice."""

from collections import Counter
from dataclasses import asdict, dataclass

from logbrook.testing.history.events import (
    Acknowledged,
    BrokerKilled,
    Committed,
    CommitUnknown,
    Failed,
    LatestSeen,
    Polled,
    Resumed,
    Sent,
    TopicCreated,
    Unknown,
)
from logbrook.testing.history.evidence import Evidence
from logbrook.testing.history.transaction_evidence import End


@dataclass(frozen=True)
class Counts:
    events: int
    kills: int
    sent: int
    acknowledged: int
    failed: int
    unknown: int
    unknown_found: int
    """Writes without an answer that are there."""
    duplicates_allowed: int
    """Values that a producer which is not idempotent wrote again."""
    polled: int
    polled_again: int
    """Records that a group was given more than once."""
    committed: int
    commits_unknown: int
    resumed: int
    latest_seen: int
    topics_created: int
    transactions: int
    transactions_committed: int
    transactions_aborted: int
    transactions_unknown: int
    transactions_left: int
    """Nobody asked for their end: their producer was gone, or was replaced."""

    def __str__(self) -> str:
        return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in asdict(self).items())


def count(evidence: Evidence) -> Counts:
    unknown = evidence.of(Unknown)
    ends = Counter(transaction.end for transaction in evidence.transactions.values())
    return Counts(
        events=evidence.events,
        kills=len(evidence.of(BrokerKilled)),
        sent=len(evidence.of(Sent)),
        acknowledged=len(evidence.of(Acknowledged)),
        failed=len(evidence.of(Failed)),
        unknown=len(unknown),
        unknown_found=sum(event.value in evidence.partitions[event.partition].offsets_of for event in unknown),
        duplicates_allowed=_duplicates_allowed(evidence),
        polled=len(evidence.of(Polled)),
        polled_again=_polled_again(evidence),
        committed=len(evidence.of(Committed)),
        commits_unknown=len(evidence.of(CommitUnknown)),
        resumed=len(evidence.of(Resumed)),
        latest_seen=len(evidence.of(LatestSeen)),
        topics_created=len(evidence.of(TopicCreated)),
        transactions=ends.total(),
        transactions_committed=ends[End.COMMITTED],
        transactions_aborted=ends[End.ABORTED],
        transactions_unknown=ends[End.UNKNOWN],
        transactions_left=ends[End.NONE],
    )


def _duplicates_allowed(evidence: Evidence) -> int:
    return sum(
        len(offsets) - 1
        for partition in evidence.partitions.values()
        for value, offsets in partition.offsets_of.items()
        if len(offsets) > 1 and partition.producer_of.get(value) not in evidence.idempotent
    )


def _polled_again(evidence: Evidence) -> int:
    again = 0
    for partition in evidence.partitions.values():
        in_groups = [(event.group, event.offset) for event in partition.polled if event.group]
        again += len(in_groups) - len(set(in_groups))
    return again
