"""The metrics of transactions. There are none while the transactions of the past are being read back."""

from collections import Counter
from collections.abc import Iterator

from logbrook.core.transactions import TransactionState
from logbrook.server.metrics.declaration import LabelValues, Metric, Number, gauge, gauges
from logbrook.server.metrics.scrape import Scrape


def _states(scrape: Scrape) -> Iterator[tuple[LabelValues, Number]]:
    transactions = scrape.services.transactions
    if transactions.coordinator.is_loading:
        return
    counts = Counter(one.state for one in transactions.coordinator.list_transactions(now_ms=transactions.now_ms))
    for state in TransactionState:
        yield (state.value,), counts[state]


def _oldest_open(scrape: Scrape) -> float:
    transactions = scrape.services.transactions
    return (transactions.coordinator.oldest_open_ms(transactions.now_ms) or 0) / 1000


TRANSACTIONS: tuple[Metric, ...] = (
    gauges("logbrook_transactional_ids", "Transactional ids, by the state of their transaction.", ("state",), _states),
    gauge(
        "logbrook_transactions_oldest_open_seconds",
        "How long ago the oldest transaction began that is not ended; 0 when there is none.",
        _oldest_open,
    ),
)
