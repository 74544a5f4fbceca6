"""What the transaction coordinator can refuse, one class per error of Kafka's protocol, with the facts as attributes.

Which of them a client may retry is part of the contract: the server maps the classes to wire codes one to one, and
the code decides whether a producer retries, aborts its transaction, or gives up.
"""

from logbrook.model import LogbrookError


class TransactionError(LogbrookError):
    """The coordinator refused a request."""


class CoordinatorLoadingError(TransactionError):
    """Transactions are still being read back. Retriable."""

    def __init__(self) -> None:
        super().__init__("the transaction coordinator is loading; try again")


class CoordinatorNotAvailableError(TransactionError):
    """What the answer depends on could not be written. Retriable."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__(f"the transaction of {transactional_id!r} could not be written; try again")
        self.transactional_id = transactional_id


class InvalidTransactionalIdError(TransactionError):
    """INVALID_REQUEST on the wire."""

    def __init__(self, transactional_id: str) -> None:
        what = "is longer than 32767 bytes" if transactional_id else "is empty"
        super().__init__(f"the transactional id {what}")
        self.transactional_id = transactional_id


class InvalidTransactionTimeoutError(TransactionError):
    def __init__(self, transactional_id: str, timeout_ms: int, timeout_ms_max: int) -> None:
        super().__init__(
            f"a timeout of {timeout_ms} ms for the transactions of {transactional_id!r} is outside 1 to "
            f"{timeout_ms_max} ms; lower transaction.timeout.ms of the producer"
        )
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.timeout_ms_max = timeout_ms_max


class TooManyTransactionalIdsError(TransactionError):
    """There is no place for another id. Kafka knows no such bound; POLICY_VIOLATION says it best."""

    def __init__(self, transactional_id: str, ids_max: int) -> None:
        super().__init__(f"no place for transactional id {transactional_id!r}: there are {ids_max} already")
        self.transactional_id = transactional_id
        self.ids_max = ids_max


class ConcurrentTransactionsError(TransactionError):
    """The last transaction of this id has been decided but not completed. Retriable, and soon over."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__(f"the last transaction of {transactional_id!r} is being completed; try again")
        self.transactional_id = transactional_id


class TransactionalProducerFencedError(TransactionError):
    """Another producer has taken over the transactional id, or the transaction was aborted because it took too long.
    PRODUCER_FENCED, fatal for the client."""

    def __init__(self, transactional_id: str, producer_id: int, producer_epoch: int, epoch_current: int) -> None:
        super().__init__(
            f"producer {producer_id} of transactional id {transactional_id!r} has epoch {producer_epoch}, not the "
            f"current one, {epoch_current}: another producer uses the id, or a transaction timed out"
        )
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.epoch_current = epoch_current


class InvalidProducerIdMappingError(TransactionError):
    """The transactional id is not known, or belongs to another producer id. The client initializes again."""

    def __init__(self, transactional_id: str, producer_id: int) -> None:
        super().__init__(f"transactional id {transactional_id!r} does not belong to producer {producer_id}")
        self.transactional_id = transactional_id
        self.producer_id = producer_id


class InvalidTransactionStateError(TransactionError):
    """The transaction is in a state in which it cannot be done what was asked."""

    def __init__(self, transactional_id: str, state: str, asked: str) -> None:
        super().__init__(f"the transaction of {transactional_id!r} is {state}: it cannot {asked}")
        self.transactional_id = transactional_id
        self.state = state
        self.asked = asked


class TransactionalIdNotFoundError(TransactionError):
    def __init__(self, transactional_id: str) -> None:
        super().__init__(f"there is no transactional id {transactional_id!r}")
        self.transactional_id = transactional_id


class InvalidPatternError(TransactionError):
    """A pattern for transactional ids that does not read (KIP-1152). INVALID_REGULAR_EXPRESSION on the wire."""

    def __init__(self, pattern: str, reason: str) -> None:
        super().__init__(f"the pattern {pattern!r} {reason}")
        self.pattern = pattern
        self.reason = reason


class CorruptTransactionRecordError(LogbrookError):
    """A record of __transaction_state that does not read as one."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what} {reason}")
        self.what = what
        self.reason = reason
