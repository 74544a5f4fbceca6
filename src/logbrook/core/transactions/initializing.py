"""The rules of InitProducerId: who becomes the producer of a transactional id.

A producer that says nothing about itself is a new one, and fences whoever was there before. One that says which
producer it is wants to go on after an error (KIP-360), and may only if nobody else came since: it must have the
present epoch, or the one before it if it did not learn of the present one. What is open is aborted first, with an
epoch that nobody gets, so that the old producer cannot write any more, and the new one is told a yet higher one.

Kafka does not look at the epoch while a transaction is open, so there a producer that was replaced long ago can abort
a transaction of its successor. Here it is fenced.
"""

from logbrook.core.transactions.errors import ConcurrentTransactionsError, TransactionalProducerFencedError
from logbrook.core.transactions.results import InitRequest
from logbrook.core.transactions.transaction import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    PRODUCER_EPOCH_MAX,
    Transaction,
    TransactionState,
    is_exhausted,
)


def first_initialization(request: InitRequest, producer_id: int, now_ms: int) -> Transaction:
    """A transactional id that was never seen, or was forgotten. A producer may believe to be known."""
    return Transaction(
        request.transactional_id, producer_id, 0, request.timeout_ms, TransactionState.EMPTY, last_update_ms=now_ms
    )


def initialize(
    transaction: Transaction, request: InitRequest, new_producer_id: int | None, now_ms: int, *, after_abort: bool
) -> Transaction:
    """With its new epoch, or, if it is open, decided to be aborted. Raises TransactionalProducerFencedError or
    ConcurrentTransactionsError."""
    is_new = request.producer_id == NO_PRODUCER_ID
    if not is_new and not _may_be(transaction, request):
        raise _fenced(transaction, request)
    if transaction.state.is_prepared:
        raise ConcurrentTransactionsError(request.transactional_id)
    is_current = is_new or transaction.belongs_to(request.producer_id, request.producer_epoch)
    if transaction.state is TransactionState.ONGOING:
        if not is_current:
            raise _fenced(transaction, request)
        return transaction.fenced(now_ms)
    if is_current or (after_abort and _was_aborted(transaction, request)):
        last_producer_epoch = NO_EPOCH if is_new else request.producer_epoch
        if not transaction.is_exhausted:
            return transaction.initialized(request.timeout_ms, last_producer_epoch, now_ms)
        assert new_producer_id is not None, "needs_producer_id said so"
        return transaction.initialized_as(new_producer_id, request.timeout_ms, last_producer_epoch, now_ms)
    if transaction.belonged_to(request.producer_id, request.producer_epoch):
        return transaction.initialized_again(request.timeout_ms, now_ms)
    raise _fenced(transaction, request)


def _may_be(transaction: Transaction, request: InitRequest) -> bool:
    """Whether the producer id is the present one, or one whose epochs were used up just before."""
    return request.producer_id == transaction.producer_id or (
        request.producer_id == transaction.previous_producer_id and is_exhausted(request.producer_epoch)
    )


def _was_aborted(transaction: Transaction, request: InitRequest) -> bool:
    """Whether nothing has happened since the producer's open transaction was aborted for its own initialization."""
    epoch_of_abort = min(request.producer_epoch + 1, PRODUCER_EPOCH_MAX)
    return transaction.state is TransactionState.COMPLETE_ABORT and transaction.belongs_to(
        request.producer_id, epoch_of_abort
    )


def _fenced(transaction: Transaction, request: InitRequest) -> TransactionalProducerFencedError:
    return TransactionalProducerFencedError(
        request.transactional_id, request.producer_id, request.producer_epoch, transaction.producer_epoch
    )
