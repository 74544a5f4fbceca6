"""Transactions: who may write under a transactional id, and what becomes of what was written.

`coordinator` is the way in. `results` is what goes in and out, `errors` what can be refused. Behind it, `transaction`
holds the facts of one transactional id and the transitions, `initializing` and `ending` the rules of the two requests
that are more than a transition, `open_transactions` what is not completed, `listing` and `pattern` what operators are
shown, `records` the format in which all of it is kept.
"""

from logbrook.core.transactions.coordinator import TransactionCoordinator
from logbrook.core.transactions.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadingError,
    CoordinatorNotAvailableError,
    CorruptTransactionRecordError,
    InvalidPatternError,
    InvalidProducerIdMappingError,
    InvalidTransactionalIdError,
    InvalidTransactionStateError,
    InvalidTransactionTimeoutError,
    TooManyTransactionalIdsError,
    TransactionalIdNotFoundError,
    TransactionalProducerFencedError,
    TransactionError,
)
from logbrook.core.transactions.results import (
    Due,
    EndDecision,
    Ended,
    InitDecision,
    Initialized,
    InitRequest,
    Markers,
    Record,
    TransactionDescription,
    TransactionListing,
)
from logbrook.core.transactions.transaction import TransactionState

__all__ = [
    "ConcurrentTransactionsError",
    "CoordinatorLoadingError",
    "CoordinatorNotAvailableError",
    "CorruptTransactionRecordError",
    "Due",
    "EndDecision",
    "Ended",
    "InitDecision",
    "InitRequest",
    "Initialized",
    "InvalidPatternError",
    "InvalidProducerIdMappingError",
    "InvalidTransactionStateError",
    "InvalidTransactionTimeoutError",
    "InvalidTransactionalIdError",
    "Markers",
    "Record",
    "TooManyTransactionalIdsError",
    "TransactionCoordinator",
    "TransactionDescription",
    "TransactionError",
    "TransactionListing",
    "TransactionState",
    "TransactionalIdNotFoundError",
    "TransactionalProducerFencedError",
]
