"""The rules of EndTxn: who may decide a transaction, and what an end means that is not the first.

Without bumps (before EndTxn v5) the epoch must be the present one, and:

    Ongoing             is decided
    Prepare, Complete   the same decision: try again, or done; the other one is refused
    Empty               is refused

A producer that sends an end late, after the answer to a retry and the begin of its next transaction, decides that
next transaction with it (KAFKA-17754). With bumps (KIP-890) this cannot be, because the next one has another epoch:

                        the epoch before            the present epoch
    Ongoing             fenced                      is decided
    Prepare             same decision: try again    fenced
                        other: refused
    Complete            same decision: done         abort: again, of nothing
                        other: refused              commit: refused
    Empty               fenced                      abort: of nothing; commit: refused

A client that failed before its first write was acknowledged does not know whether a transaction began, and so may
abort nothing; the epoch is bumped all the same, and what it wrote and lost sight of can no longer arrive.
"""

from logbrook.core.transactions.errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    InvalidTransactionStateError,
    TransactionalProducerFencedError,
)
from logbrook.core.transactions.transaction import Transaction, TransactionState


def end(
    transaction: Transaction, producer_id: int, producer_epoch: int, now_ms: int, *, is_commit: bool
) -> Transaction | None:
    """Decided; or None if it was before, in the same way."""
    check_producer(transaction, producer_id, producer_epoch)
    if transaction.state is TransactionState.ONGOING:
        return transaction.decided(now_ms, is_commit=is_commit)
    _check_ended_before(transaction, is_commit)
    return None


def end_with_bump(
    transaction: Transaction,
    producer_id: int,
    producer_epoch: int,
    next_producer_id: int | None,
    now_ms: int,
    *,
    is_commit: bool,
) -> Transaction | None:
    """Decided, with a higher epoch; or None if it was before, in the same way."""
    state = transaction.state
    was_decided = state.is_prepared or not (state.is_open or state is TransactionState.EMPTY)
    if was_decided and transaction.belonged_to(producer_id, producer_epoch):
        _check_ended_before(transaction, is_commit)
        return None
    check_producer(transaction, producer_id, producer_epoch)
    if state.is_prepared:
        raise _fenced(transaction, producer_epoch)
    if is_commit and state is not TransactionState.ONGOING:
        raise _refused(transaction, is_commit)
    assert next_producer_id is not None or not transaction.is_exhausted, "needs_producer_id said so"
    rotated_id = next_producer_id if transaction.is_exhausted else None
    return transaction.decided_with_bump(rotated_id, now_ms, is_commit=is_commit)


def check_producer(transaction: Transaction, producer_id: int, producer_epoch: int) -> None:
    """Raises InvalidProducerIdMappingError or TransactionalProducerFencedError unless it is the present one."""
    if producer_id != transaction.producer_id:
        raise InvalidProducerIdMappingError(transaction.transactional_id, producer_id)
    if producer_epoch != transaction.producer_epoch:
        raise _fenced(transaction, producer_epoch)


def _check_ended_before(transaction: Transaction, is_commit: bool) -> None:
    """Raises InvalidTransactionStateError or ConcurrentTransactionsError unless it is done, and as it was asked."""
    if transaction.state is TransactionState.EMPTY or transaction.is_commit != is_commit:
        raise _refused(transaction, is_commit)
    if transaction.state.is_prepared:
        raise ConcurrentTransactionsError(transaction.transactional_id)


def _fenced(transaction: Transaction, producer_epoch: int) -> TransactionalProducerFencedError:
    return TransactionalProducerFencedError(
        transaction.transactional_id, transaction.producer_id, producer_epoch, transaction.producer_epoch
    )


def _refused(transaction: Transaction, is_commit: bool) -> InvalidTransactionStateError:
    asked = "be committed" if is_commit else "be aborted"
    return InvalidTransactionStateError(transaction.transactional_id, transaction.state, asked)
