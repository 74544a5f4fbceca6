"""Which error code tells a client of which error. Clients decide by it whether to try again, so it matters.

Every typed error of the subsystems is here, or a parent of it is; a test proves it. What is not here is our own bug.
"""

from logbrook.config.kafka_settings import InvalidSettingError
from logbrook.core import fetch_sessions
from logbrook.core.groups import errors as groups
from logbrook.core.metadata import errors as metadata
from logbrook.core.transactions import errors as transactions
from logbrook.model import InvalidPartitionError, InvalidTopicNameError, LogbrookError, NothingNamedSoError
from logbrook.protocol.error_codes import ErrorCode
from logbrook.records import errors as records
from logbrook.server import leader_epoch
from logbrook.storage import errors as storage

_CODES: dict[type[LogbrookError], ErrorCode] = {
    InvalidTopicNameError: ErrorCode.INVALID_TOPIC_EXCEPTION,
    InvalidPartitionError: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    NothingNamedSoError: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    InvalidSettingError: ErrorCode.INVALID_CONFIG,
    metadata.TopicExistsError: ErrorCode.TOPIC_ALREADY_EXISTS,
    metadata.TopicNotFoundError: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    metadata.UnknownTopicIdError: ErrorCode.UNKNOWN_TOPIC_ID,
    metadata.TopicCollisionError: ErrorCode.INVALID_TOPIC_EXCEPTION,
    metadata.InvalidPartitionsError: ErrorCode.INVALID_PARTITIONS,
    groups.CoordinatorLoadingError: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    groups.CoordinatorNotAvailableError: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    groups.InvalidGroupIdError: ErrorCode.INVALID_GROUP_ID,
    groups.OversizedFieldError: ErrorCode.INVALID_REQUEST,
    groups.InvalidSessionTimeoutError: ErrorCode.INVALID_SESSION_TIMEOUT,
    groups.UnknownMemberIdError: ErrorCode.UNKNOWN_MEMBER_ID,
    groups.MemberIdRequiredError: ErrorCode.MEMBER_ID_REQUIRED,
    groups.FencedInstanceIdError: ErrorCode.FENCED_INSTANCE_ID,
    groups.IllegalGenerationError: ErrorCode.ILLEGAL_GENERATION,
    groups.RebalanceInProgressError: ErrorCode.REBALANCE_IN_PROGRESS,
    groups.InconsistentGroupProtocolError: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    groups.GroupMaxSizeReachedError: ErrorCode.GROUP_MAX_SIZE_REACHED,
    groups.TooManyGroupsError: ErrorCode.POLICY_VIOLATION,
    groups.GroupIdNotFoundError: ErrorCode.GROUP_ID_NOT_FOUND,
    groups.NonEmptyGroupError: ErrorCode.NON_EMPTY_GROUP,
    groups.GroupSubscribedToTopicError: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    groups.OffsetMetadataTooLargeError: ErrorCode.OFFSET_METADATA_TOO_LARGE,
    transactions.CoordinatorLoadingError: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    transactions.CoordinatorNotAvailableError: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    transactions.InvalidTransactionalIdError: ErrorCode.INVALID_REQUEST,
    transactions.InvalidTransactionTimeoutError: ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    transactions.TooManyTransactionalIdsError: ErrorCode.POLICY_VIOLATION,
    transactions.ConcurrentTransactionsError: ErrorCode.CONCURRENT_TRANSACTIONS,
    transactions.TransactionalProducerFencedError: ErrorCode.PRODUCER_FENCED,
    transactions.InvalidProducerIdMappingError: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    transactions.InvalidTransactionStateError: ErrorCode.INVALID_TXN_STATE,
    transactions.TransactionalIdNotFoundError: ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    transactions.InvalidPatternError: ErrorCode.INVALID_REGULAR_EXPRESSION,
    fetch_sessions.FetchSessionNotFoundError: ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    fetch_sessions.InvalidFetchSessionEpochError: ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    leader_epoch.FencedLeaderEpochError: ErrorCode.FENCED_LEADER_EPOCH,
    leader_epoch.UnknownLeaderEpochError: ErrorCode.UNKNOWN_LEADER_EPOCH,
    records.CorruptBatchError: ErrorCode.CORRUPT_MESSAGE,
    records.UnsupportedMagicError: ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    records.InvalidBatchError: ErrorCode.INVALID_RECORD,
    records.RecordsError: ErrorCode.CORRUPT_MESSAGE,
    storage.OffsetOutOfRangeError: ErrorCode.OFFSET_OUT_OF_RANGE,
    storage.BatchTooLargeError: ErrorCode.MESSAGE_TOO_LARGE,
    storage.PartitionNotFoundError: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    storage.PartitionExistsError: ErrorCode.TOPIC_ALREADY_EXISTS,
    storage.ProducerFencedError: ErrorCode.INVALID_PRODUCER_EPOCH,
    storage.OutOfOrderSequenceError: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    # A full disk, a disk that failed, bytes that went bad: clients may try again, an operator has to look.
    storage.StorageError: ErrorCode.KAFKA_STORAGE_ERROR,
}


def error_code(error: LogbrookError) -> ErrorCode:
    """The code that tells a client of `error`, or of the kind of error it is."""
    for kind in type(error).__mro__:
        code = _CODES.get(kind)
        if code is not None:
            return code
    return ErrorCode.UNKNOWN_SERVER_ERROR
