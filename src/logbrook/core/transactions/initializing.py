"""The rules of InitProducerId for a transactional id.

A request without a producer id and epoch is of a new producer, which fences its predecessors. A request with them is of
a producer that continues after an error (KIP-360); it must have the current epoch, or the previous one if it did not
receive the reply with the current one. An open transaction is aborted first, with an epoch that no client gets, so that
the old producer cannot write any more; the new one gets a still higher epoch.

Kafka ignores the epoch while a transaction is open, so a producer that was replaced long ago can abort a transaction of
its successor. Here it is fenced.
"""

from logbrook.core.coordinator import ProducerIdentity
from logbrook.core.transactions.errors import ConcurrentTransactionsError, TransactionalProducerFencedError
from logbrook.core.transactions.messages import InitRequest
from logbrook.core.transactions.transaction import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    Transaction,
    TransactionState,
    is_exhausted,
)
from logbrook.model.identifiers import ProducerEpoch, ProducerId


def first_initialization(request: InitRequest, producer_id: ProducerId, now_ms: int) -> Transaction:
    """Return the first state of an unknown or expired transactional id. The request's producer id is ignored."""
    return Transaction(
        request.transactional_id,
        producer_id,
        ProducerEpoch(0),
        request.timeout_ms,
        TransactionState.EMPTY,
        last_update_ms=now_ms,
    )


def initialize(
    transaction: Transaction,
    request: InitRequest,
    new_producer_id: ProducerId | None,
    now_ms: int,
    aborted: ProducerIdentity | None,
) -> Transaction:
    """Return the transaction with a new epoch or, if it is open, prepared to be aborted.

    `aborted` is the producer of the transaction that was aborted for this request. If the transactional id has changed
    since, another request was faster: its producer must not be fenced by one whose client may be gone. Raises
    TransactionalProducerFencedError or ConcurrentTransactionsError.
    """
    is_new = request.producer_id == NO_PRODUCER_ID
    if not is_new and not _has_matching_producer_id(transaction, request):
        raise _fenced(transaction, request)
    is_aborted = aborted is not None and _is_aborted(transaction, aborted)
    if transaction.state.is_prepared or (is_new and aborted is not None and not is_aborted):
        raise ConcurrentTransactionsError(request.transactional_id)
    is_current = is_new or transaction.belongs_to(request.producer_id, request.producer_epoch)
    if transaction.state is TransactionState.ONGOING:
        if not is_current:
            raise _fenced(transaction, request)
        return transaction.fenced(now_ms)
    if is_current or is_aborted:
        last_producer_epoch = NO_EPOCH if is_new else request.producer_epoch
        rotated_id = new_producer_id if transaction.is_exhausted else None
        return transaction.initialized(request.timeout_ms, last_producer_epoch, now_ms, rotated_id)
    if transaction.belonged_to(request.producer_id, request.producer_epoch):
        return transaction.initialized_again(request.timeout_ms, now_ms)
    raise _fenced(transaction, request)


def _has_matching_producer_id(transaction: Transaction, request: InitRequest) -> bool:
    """Return True if the producer id is the current one, or the previous one whose epochs were exhausted."""
    return request.producer_id == transaction.producer_id or (
        request.producer_id == transaction.previous_producer_id and is_exhausted(request.producer_epoch)
    )


def _is_aborted(transaction: Transaction, aborted: ProducerIdentity) -> bool:
    """Return True if the last change was the completed abort of the transaction of `aborted`."""
    return transaction.state is TransactionState.COMPLETE_ABORT and transaction.belongs_to(*aborted)


def _fenced(transaction: Transaction, request: InitRequest) -> TransactionalProducerFencedError:
    return TransactionalProducerFencedError(
        request.transactional_id, request.producer_id, request.producer_epoch, transaction.producer_epoch
    )
