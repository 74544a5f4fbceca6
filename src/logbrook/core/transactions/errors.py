"""Errors of the transaction coordinator, one class per error code of Kafka's protocol.

The server maps each class to its code; the code decides whether a producer retries, aborts its transaction or fails.
The text has all facts; attributes are those that are read by callers.
"""

from logbrook.core.coordinator import CoordinatorError
from logbrook.model.identifiers import ProducerEpoch, ProducerId


class TransactionError(CoordinatorError):
    """The transaction coordinator rejected a request."""


class InvalidTransactionalIdError(TransactionError):
    """INVALID_REQUEST on the wire."""

    def __init__(self, transactional_id: str) -> None:
        problem = "is longer than 32767 bytes" if transactional_id else "is empty"
        super().__init__(f"the transactional id {problem}")


class InvalidTransactionTimeoutError(TransactionError):
    def __init__(self, transactional_id: str, timeout_ms: int, timeout_ms_max: int) -> None:
        super().__init__(
            f"a timeout of {timeout_ms} ms for the transactions of {transactional_id!r} is outside 1 to "
            f"{timeout_ms_max} ms; lower transaction.timeout.ms of the producer"
        )
        self.timeout_ms = timeout_ms
        self.timeout_ms_max = timeout_ms_max


class TooManyTransactionalIdsError(TransactionError):
    """A bound for all transactional ids is reached. Kafka has no such limit, hence POLICY_VIOLATION on the wire."""

    def __init__(self, transactional_id: str, setting: str, limit: int) -> None:
        super().__init__(
            f"cannot create transactional id {transactional_id[:100]!r}: "
            f"the limit transactions.{setting} of {limit} is reached"
        )
        self.transactional_id = transactional_id
        self.limit = limit


class ConcurrentTransactionsError(TransactionError):
    """The last transaction of this id is prepared but not completed. Retriable."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__(f"the last transaction of {transactional_id!r} is being completed; try again")


class TransactionalProducerFencedError(TransactionError):
    """Another producer initialized the transactional id, or the transaction timed out and was aborted.

    PRODUCER_FENCED on the wire, fatal for the client.
    """

    def __init__(
        self, transactional_id: str, producer_id: ProducerId, producer_epoch: ProducerEpoch, epoch_current: int
    ) -> None:
        super().__init__(
            f"producer {producer_id} of transactional id {transactional_id!r} has epoch {producer_epoch}, not the "
            f"current one, {epoch_current}: another producer uses the id, or a transaction timed out"
        )
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.epoch_current = epoch_current


class InvalidProducerIdMappingError(TransactionError):
    """The transactional id is unknown, or has another producer id. The client initializes again."""

    def __init__(self, transactional_id: str, producer_id: ProducerId) -> None:
        super().__init__(f"transactional id {transactional_id!r} does not belong to producer {producer_id}")


class InvalidTransactionStateError(TransactionError):
    """The state of the transaction does not permit the request."""

    def __init__(self, transactional_id: str, state: str, asked: str) -> None:
        super().__init__(f"the transaction of {transactional_id!r} is {state}: it cannot {asked}")
        self.state = state


class TransactionalIdNotFoundError(TransactionError):
    def __init__(self, transactional_id: str) -> None:
        super().__init__(f"there is no transactional id {transactional_id!r}")


class InvalidPatternError(TransactionError):
    """Invalid pattern for transactional ids (KIP-1152). INVALID_REGULAR_EXPRESSION on the wire."""

    def __init__(self, pattern: str, reason: str) -> None:
        super().__init__(f"the pattern {pattern!r} {reason}")
        self.pattern = pattern
