"""Checks a history against every rule and counts its events.

Deterministic: it uses only the events' own timestamps and order, so the same events give the same anomalies. The cost
is that of sorting: a million events take seconds.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from logbrook.testing.history.anomalies import Anomaly
from logbrook.testing.history.events import (
    Acknowledged,
    BrokerKilled,
    Committed,
    CommitUnknown,
    Event,
    Failed,
    LatestSeen,
    Polled,
    Resumed,
    Sent,
    TopicCreated,
    Unknown,
)
from logbrook.testing.history.index import HistoryIndex, TransactionEnd
from logbrook.testing.history.monotonicity import check_monotonicity
from logbrook.testing.history.reads import check_reads
from logbrook.testing.history.transactions import check_transactions
from logbrook.testing.history.writes import check_writes

_SHOWN_PER_RULE_MAX = 5


@dataclass(frozen=True)
class Counts:
    """Totals of a history, including what is allowed but worth knowing, such as redelivered records."""

    events: int
    kills: int
    sent: int
    acknowledged: int
    failed: int
    unknown: int
    unknown_found: int
    """Writes without a response that are in the log."""
    duplicates_allowed: int
    """Duplicates written by producers that are not idempotent, or in another producer epoch."""
    polled: int
    polled_again: int
    """Records delivered to a group more than once."""
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
    """Transactions whose producer died or was fenced before it requested an end."""

    def __str__(self) -> str:
        return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in asdict(self).items())


@dataclass(frozen=True)
class Verdict:
    """The anomalies of a history and the totals of what was checked."""

    anomalies: tuple[Anomaly, ...]
    counts: Counts

    def __str__(self) -> str:
        """The number of anomalies per rule, and the first few of each."""
        lines = [f"{len(self.anomalies):,} anomalies in {self.counts}"]
        rules = Counter(anomaly.rule for anomaly in self.anomalies)
        for rule, cases in rules.items():
            lines.append(f"{rule.name}: {cases:,}")
            shown = [anomaly for anomaly in self.anomalies if anomaly.rule == rule][:_SHOWN_PER_RULE_MAX]
            lines += [f"    {anomaly}" for anomaly in shown]
            if cases > len(shown):
                lines.append(f"    and {cases - len(shown):,} more")
        return "\n".join(lines)


def check(events: Iterable[Event]) -> Verdict:
    """Check the whole history against every rule."""
    history = HistoryIndex(events)
    check_writes(history)
    check_transactions(history)
    check_reads(history)
    check_monotonicity(history)
    return Verdict(tuple(history.anomalies), _count(history))


def _count(history: HistoryIndex) -> Counts:
    unknown = history.of(Unknown)
    ends = Counter(transaction.end for transaction in history.transactions.values())
    return Counts(
        events=history.events,
        kills=len(history.of(BrokerKilled)),
        sent=len(history.of(Sent)),
        acknowledged=len(history.of(Acknowledged)),
        failed=len(history.of(Failed)),
        unknown=len(unknown),
        unknown_found=sum(event.value in history.partitions[event.partition].offsets_of for event in unknown),
        duplicates_allowed=_duplicates_allowed(history),
        polled=len(history.of(Polled)),
        polled_again=_polled_again(history),
        committed=len(history.of(Committed)),
        commits_unknown=len(history.of(CommitUnknown)),
        resumed=len(history.of(Resumed)),
        latest_seen=len(history.of(LatestSeen)),
        topics_created=len(history.of(TopicCreated)),
        transactions=ends.total(),
        transactions_committed=ends[TransactionEnd.COMMITTED],
        transactions_aborted=ends[TransactionEnd.ABORTED],
        transactions_unknown=ends[TransactionEnd.UNKNOWN],
        transactions_left=ends[TransactionEnd.NONE],
    )


def _duplicates_allowed(history: HistoryIndex) -> int:
    return sum(
        len(offsets) - 1
        for partition in history.partitions.values()
        for value, offsets in partition.offsets_of.items()
        if len(offsets) > 1
        and (partition.producer_of.get(value) not in history.idempotent or partition.is_of_several_epochs(offsets))
    )


def _polled_again(history: HistoryIndex) -> int:
    again = 0
    for partition in history.partitions.values():
        in_groups = [(event.group, event.offset) for event in partition.polled if event.group]
        again += len(in_groups) - len(set(in_groups))
    return again
