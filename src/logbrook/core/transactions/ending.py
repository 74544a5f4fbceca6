"""The rules of EndTxn, as a table: transaction state x epoch of the request x decision -> action.

Before EndTxn v5 an end keeps the producer epoch. If a client retries EndTxn, begins the next transaction after the
reply, and the first request arrives only then, that request ends the next transaction (KAFKA-17754). From v5 on every
end bumps the epoch (KIP-890), which excludes this: a request with the epoch before the bump (PREVIOUS) can only be a
retry.

From v5 on a client may abort without an open transaction (Empty, CompleteCommit or CompleteAbort), because it cannot
tell whether a transaction began if its first write was not acknowledged. The abort bumps the epoch, which fences
unacknowledged writes that arrive later.
"""

from enum import Enum, auto

from logbrook.core.coordinator import ProducerIdentity
from logbrook.core.transactions.errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    InvalidTransactionStateError,
    TransactionalProducerFencedError,
)
from logbrook.core.transactions.transaction import Transaction, TransactionState
from logbrook.model.identifiers import ProducerEpoch, ProducerId


class EpochRelation(Enum):
    """Relation of the producer id and epoch of a request to those of the transactional id."""

    CURRENT = auto()
    # The producer id and epoch before the last end bumped them.
    PREVIOUS = auto()


class EndAction(Enum):
    """Answer of the coordinator to EndTxn."""

    # Write PrepareCommit or PrepareAbort.
    PREPARE = auto()
    # The request is a retry of an end that is completed: answer it again.
    ANSWER_AGAIN = auto()
    # The request is a retry of an end whose markers are being written: CONCURRENT_TRANSACTIONS.
    RETRY_LATER = auto()
    # INVALID_TXN_STATE.
    REJECT = auto()
    # PRODUCER_FENCED, or INVALID_PRODUCER_ID_MAPPING if the producer id has changed too.
    FENCE = auto()


_EMPTY = TransactionState.EMPTY
_ONGOING = TransactionState.ONGOING
_PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
_PREPARE_ABORT = TransactionState.PREPARE_ABORT
_COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
_COMPLETE_ABORT = TransactionState.COMPLETE_ABORT
_CURRENT, _PREVIOUS = EpochRelation.CURRENT, EpochRelation.PREVIOUS
_COMMIT, _ABORT = True, False

# Before EndTxn v5 only the current epoch is accepted.
_ACTIONS_WITHOUT_BUMP: dict[tuple[TransactionState, bool], EndAction] = {
    (_EMPTY, _COMMIT): EndAction.REJECT,
    (_EMPTY, _ABORT): EndAction.REJECT,
    (_ONGOING, _COMMIT): EndAction.PREPARE,
    (_ONGOING, _ABORT): EndAction.PREPARE,
    (_PREPARE_COMMIT, _COMMIT): EndAction.RETRY_LATER,
    (_PREPARE_COMMIT, _ABORT): EndAction.REJECT,
    (_PREPARE_ABORT, _COMMIT): EndAction.REJECT,
    (_PREPARE_ABORT, _ABORT): EndAction.RETRY_LATER,
    (_COMPLETE_COMMIT, _COMMIT): EndAction.ANSWER_AGAIN,
    (_COMPLETE_COMMIT, _ABORT): EndAction.REJECT,
    (_COMPLETE_ABORT, _COMMIT): EndAction.REJECT,
    (_COMPLETE_ABORT, _ABORT): EndAction.ANSWER_AGAIN,
}

_ACTIONS_WITH_BUMP: dict[tuple[TransactionState, EpochRelation, bool], EndAction] = {
    (_EMPTY, _CURRENT, _COMMIT): EndAction.REJECT,
    (_EMPTY, _CURRENT, _ABORT): EndAction.PREPARE,
    (_EMPTY, _PREVIOUS, _COMMIT): EndAction.FENCE,
    (_EMPTY, _PREVIOUS, _ABORT): EndAction.FENCE,
    (_ONGOING, _CURRENT, _COMMIT): EndAction.PREPARE,
    (_ONGOING, _CURRENT, _ABORT): EndAction.PREPARE,
    (_ONGOING, _PREVIOUS, _COMMIT): EndAction.FENCE,
    (_ONGOING, _PREVIOUS, _ABORT): EndAction.FENCE,
    (_PREPARE_COMMIT, _CURRENT, _COMMIT): EndAction.FENCE,
    (_PREPARE_COMMIT, _CURRENT, _ABORT): EndAction.FENCE,
    (_PREPARE_COMMIT, _PREVIOUS, _COMMIT): EndAction.RETRY_LATER,
    (_PREPARE_COMMIT, _PREVIOUS, _ABORT): EndAction.REJECT,
    (_PREPARE_ABORT, _CURRENT, _COMMIT): EndAction.FENCE,
    (_PREPARE_ABORT, _CURRENT, _ABORT): EndAction.FENCE,
    (_PREPARE_ABORT, _PREVIOUS, _COMMIT): EndAction.REJECT,
    (_PREPARE_ABORT, _PREVIOUS, _ABORT): EndAction.RETRY_LATER,
    (_COMPLETE_COMMIT, _CURRENT, _COMMIT): EndAction.REJECT,
    (_COMPLETE_COMMIT, _CURRENT, _ABORT): EndAction.PREPARE,
    (_COMPLETE_COMMIT, _PREVIOUS, _COMMIT): EndAction.ANSWER_AGAIN,
    (_COMPLETE_COMMIT, _PREVIOUS, _ABORT): EndAction.REJECT,
    (_COMPLETE_ABORT, _CURRENT, _COMMIT): EndAction.REJECT,
    (_COMPLETE_ABORT, _CURRENT, _ABORT): EndAction.PREPARE,
    (_COMPLETE_ABORT, _PREVIOUS, _COMMIT): EndAction.REJECT,
    (_COMPLETE_ABORT, _PREVIOUS, _ABORT): EndAction.ANSWER_AGAIN,
}


def end_transaction(
    transaction: Transaction,
    producer: ProducerIdentity,
    next_producer_id: ProducerId | None,
    now_ms: int,
    *,
    is_commit: bool,
    bumps_epoch: bool,
) -> Transaction | None:
    """Return the transaction in its Prepare state, or None if this end is already completed. Raises TransactionError.

    `next_producer_id` is the new producer id of a transaction whose epochs are exhausted, if `bumps_epoch`.
    """
    if bumps_epoch:
        action = _ACTIONS_WITH_BUMP[transaction.state, _epoch_relation(transaction, producer), is_commit]
    else:
        check_producer(transaction, *producer)
        action = _ACTIONS_WITHOUT_BUMP[transaction.state, is_commit]

    match action:
        case EndAction.FENCE:
            check_producer(transaction, *producer)
            raise _fenced(transaction, producer.producer_epoch)
        case EndAction.REJECT:
            rejected = "be committed" if is_commit else "be aborted"
            raise InvalidTransactionStateError(transaction.transactional_id, transaction.state, rejected)
        case EndAction.RETRY_LATER:
            raise ConcurrentTransactionsError(transaction.transactional_id)
        case EndAction.ANSWER_AGAIN:
            return None
        case EndAction.PREPARE if not bumps_epoch:
            return transaction.decided(now_ms, is_commit=is_commit)
        case EndAction.PREPARE:
            assert next_producer_id is not None or not transaction.is_exhausted, "a new producer id is needed"
            rotated_id = next_producer_id if transaction.is_exhausted else None
            return transaction.decided_with_bump(rotated_id, now_ms, is_commit=is_commit)


def check_producer(transaction: Transaction, producer_id: ProducerId, producer_epoch: ProducerEpoch) -> None:
    """Raises InvalidProducerIdMappingError or TransactionalProducerFencedError unless it is the current producer."""
    if producer_id != transaction.producer_id:
        raise InvalidProducerIdMappingError(transaction.transactional_id, producer_id)
    if producer_epoch != transaction.producer_epoch:
        raise _fenced(transaction, producer_epoch)


def _epoch_relation(transaction: Transaction, producer: ProducerIdentity) -> EpochRelation:
    """Raises as `check_producer` does if the request is neither of the current nor of the previous identity."""
    if transaction.belonged_to(*producer):
        return EpochRelation.PREVIOUS
    check_producer(transaction, *producer)
    return EpochRelation.CURRENT


def _fenced(transaction: Transaction, producer_epoch: ProducerEpoch) -> TransactionalProducerFencedError:
    return TransactionalProducerFencedError(
        transaction.transactional_id, transaction.producer_id, producer_epoch, transaction.producer_epoch
    )
