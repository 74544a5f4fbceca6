"""Metrics of consumer groups and transactions. They have no series while their coordinator is loading."""

from collections import Counter
from collections.abc import Iterator

from logbrook.core.coordinator import CoordinatorError
from logbrook.core.groups.group import GroupState
from logbrook.core.transactions.transaction import TransactionState
from logbrook.model import TopicPartition
from logbrook.server.metrics.declaration import LabelValues, Metric, Number, gauge, gauges
from logbrook.server.metrics.scrape import Scrape
from logbrook.storage.log import Log


def _group_states(scrape: Scrape) -> Iterator[tuple[LabelValues, Number]]:
    counts = Counter(group.state for group in scrape.groups)
    for state in GroupState:
        if state is not GroupState.DEAD:
            yield (state.value,), counts[state.value]


def _members(scrape: Scrape) -> Iterator[tuple[LabelValues, Number]]:
    for group in scrape.groups:
        try:
            description = scrape.services.groups.describe(group.group_id)
        except CoordinatorError:
            # The shard was unloaded during the scrape.
            continue
        if description.state != GroupState.DEAD:
            yield (group.group_id,), len(description.members)


def _committed(scrape: Scrape) -> Iterator[tuple[str, TopicPartition, int, Log]]:
    """Yield the committed offsets of partitions that exist."""
    directory = scrape.broker.directory
    for group in scrape.groups:
        try:
            offsets = scrape.services.groups.fetch_offsets(group.group_id, None)
        except CoordinatorError:
            continue
        for partition, committed in offsets.items():
            if partition in directory:
                yield group.group_id, partition, committed.offset, directory.get(partition)


def _committed_offsets(scrape: Scrape) -> Iterator[tuple[LabelValues, Number]]:
    for group_id, partition, offset, _ in _committed(scrape):
        yield (group_id, *partition), offset


def _lags(scrape: Scrape) -> Iterator[tuple[LabelValues, Number]]:
    for group_id, partition, offset, log in _committed(scrape):
        yield (group_id, *partition), max(0, log.high_watermark - offset)


_LABELS = ("group", "topic", "partition")

GROUPS: tuple[Metric, ...] = (
    gauges("logbrook_groups", "Consumer groups, by state.", ("state",), _group_states),
    gauge(
        "logbrook_group_state_bytes",
        "Memory of all groups: members, assignments and offsets. Its limit is groups.state_bytes_max.",
        lambda scrape: scrape.services.groups.count_bytes(),
    ),
    gauges("logbrook_group_members", "Members of the consumer group.", ("group",), _members),
    gauges(
        "logbrook_group_committed_offset", "The offset from which the group continues.", _LABELS, _committed_offsets
    ),
    gauges("logbrook_group_lag", "Consumer lag: the high watermark minus the committed offset.", _LABELS, _lags),
)


def _transaction_states(scrape: Scrape) -> Iterator[tuple[LabelValues, Number]]:
    transactions = scrape.services.transactions
    if not transactions.runtime.is_ready:
        return
    listed = transactions.list_transactions()
    counts = Counter(transaction.state for transaction in listed)
    for state in TransactionState:
        yield (state.value,), counts[state]


def _oldest_open(scrape: Scrape) -> float:
    transactions = scrape.services.transactions
    return (transactions.oldest_open_ms() or 0) / 1000


TRANSACTIONS: tuple[Metric, ...] = (
    gauges("logbrook_transactional_ids", "Transactional ids, by transaction state.", ("state",), _transaction_states),
    gauge(
        "logbrook_transaction_state_bytes",
        "Memory of all transactional ids and their partitions. Its limit is transactions.state_bytes_max.",
        lambda scrape: scrape.services.transactions.count_bytes(),
    ),
    gauge(
        "logbrook_transactions_oldest_open_seconds",
        "Age of the oldest open transaction; 0 if there is none.",
        _oldest_open,
    ),
)
