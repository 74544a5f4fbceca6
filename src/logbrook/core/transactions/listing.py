"""What operators are shown of transactions (KIP-664, KIP-994, KIP-1152)."""

from collections.abc import Callable, Collection, Iterable

from logbrook.core.transactions.pattern import Pattern
from logbrook.core.transactions.results import TransactionDescription, TransactionListing
from logbrook.core.transactions.transaction import Transaction


def list_transactions(
    transactions: Iterable[Transaction],
    states: Collection[str],
    producer_ids: Collection[int],
    open_longer_than_ms: int,
    pattern: str | None,
    now_ms: int,
) -> list[TransactionListing]:
    """Those to which all filters say yes. Raises InvalidPatternError."""
    conditions: list[Callable[[Transaction], bool]] = []
    if states:
        conditions.append(lambda each: each.state in states)
    if producer_ids:
        conditions.append(lambda each: each.producer_id in producer_ids)
    if open_longer_than_ms >= 0:
        conditions.append(lambda each: each.state.is_open and now_ms - each.start_ms > open_longer_than_ms)
    if pattern:
        matches = Pattern(pattern).matches
        conditions.append(lambda each: matches(each.transactional_id))
    return [
        TransactionListing(each.transactional_id, each.producer_id, each.state)
        for each in transactions
        if all(condition(each) for condition in conditions)
    ]


def describe(transaction: Transaction) -> TransactionDescription:
    return TransactionDescription(
        transaction.transactional_id,
        transaction.state,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.timeout_ms,
        transaction.start_ms,
        tuple(sorted(transaction.partitions)),
    )
