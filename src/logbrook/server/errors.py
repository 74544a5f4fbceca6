"""The Kafka error code and message that report an error to a client.

Clients decide by the code whether to retry. Every typed error of the subsystems has a code here, or one of its base
classes has; a test proves it. A handler that rejects a request by a rule of the protocol itself raises
`RequestRefusedError` with the code that Kafka uses. Any other exception is a bug of the broker.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, Protocol, TypeVar

from logbrook.config.kafka_settings import InvalidSettingError
from logbrook.core import acls, coordinator, fetch_sessions, metadata, quota_entities, users
from logbrook.core.cluster import features, partition, placement
from logbrook.core.groups import errors as groups
from logbrook.core.replication import leader
from logbrook.core.transactions import errors as transactions
from logbrook.model import InvalidPartitionError, InvalidTopicNameError, LogbrookError, UnknownPartitionNameError
from logbrook.ports import metadata_store
from logbrook.protocol.error_codes import ErrorCode
from logbrook.records import errors as records
from logbrook.server import leader_epoch, session, topic_changes
from logbrook.server.cluster import errors as cluster_errors
from logbrook.server.cluster import identity_file, membership, peer_security
from logbrook.server.security import errors as security_errors
from logbrook.server.security import quotas as security_quotas
from logbrook.server.security import state as security_state
from logbrook.storage import errors as storage

T = TypeVar("T")

# Old versions have no room for more than 32767 bytes, and the message may quote what an untrusted client sent.
MESSAGE_LENGTH_MAX = 1_000


class RequestRefusedError(LogbrookError):
    """The request breaks a rule of the protocol; `code` is Kafka's error code for it."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class HasErrorCode(Protocol):
    """A response, or the part of one that belongs to a topic, partition or group. Some have an `error_message` too."""

    error_code: int


class ErrorReply(NamedTuple):
    """The error code and, for responses that have room for one, the error message."""

    code: ErrorCode
    message: str


_CODES: dict[type[LogbrookError], ErrorCode] = {
    InvalidTopicNameError: ErrorCode.INVALID_TOPIC_EXCEPTION,
    InvalidPartitionError: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    UnknownPartitionNameError: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    InvalidSettingError: ErrorCode.INVALID_CONFIG,
    metadata.TopicExistsError: ErrorCode.TOPIC_ALREADY_EXISTS,
    metadata.TopicNotFoundError: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    metadata.UnknownTopicIdError: ErrorCode.UNKNOWN_TOPIC_ID,
    metadata.TopicCollisionError: ErrorCode.INVALID_TOPIC_EXCEPTION,
    metadata.InvalidPartitionsError: ErrorCode.INVALID_PARTITIONS,
    # The change may or may not have taken effect.
    metadata_store.MetadataStoreError: ErrorCode.REQUEST_TIMED_OUT,
    partition.InvalidReassignmentError: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    placement.InvalidReplicationFactorError: ErrorCode.INVALID_REPLICATION_FACTOR,
    leader.NotAReplicaError: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    leader.StaleReplicaEpochError: ErrorCode.STALE_BROKER_EPOCH,
    coordinator.CoordinatorLoadingError: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    coordinator.CoordinatorNotAvailableError: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    coordinator.NotCoordinatorError: ErrorCode.NOT_COORDINATOR,
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
    groups.GroupBytesExceededError: ErrorCode.GROUP_MAX_SIZE_REACHED,
    groups.TooManyGroupsError: ErrorCode.POLICY_VIOLATION,
    groups.GroupIdNotFoundError: ErrorCode.GROUP_ID_NOT_FOUND,
    groups.NonEmptyGroupError: ErrorCode.NON_EMPTY_GROUP,
    groups.GroupSubscribedToTopicError: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    groups.OffsetMetadataTooLargeError: ErrorCode.OFFSET_METADATA_TOO_LARGE,
    groups.OffsetBytesExceededError: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
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
    quota_entities.InvalidQuotaError: ErrorCode.INVALID_REQUEST,
    security_quotas.ThrottlingQuotaExceededError: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    topic_changes.ChangePendingError: ErrorCode.REQUEST_TIMED_OUT,
    acls.InvalidAclError: ErrorCode.INVALID_REQUEST,
    users.UnknownCredentialError: ErrorCode.RESOURCE_NOT_FOUND,
    session.NotAuthenticatedError: ErrorCode.ILLEGAL_SASL_STATE,
    session.SessionExpiredError: ErrorCode.SASL_AUTHENTICATION_FAILED,
    security_state.SecurityStateFullError: ErrorCode.POLICY_VIOLATION,
    security_errors.AuthenticationFailedError: ErrorCode.SASL_AUTHENTICATION_FAILED,
    features.InvalidLevelError: ErrorCode.INVALID_UPDATE_VERSION,
    # Errors of a start, which no client gets.
    security_errors.InvalidSecurityError: ErrorCode.INVALID_REQUEST,
    peer_security.InvalidPeerSecurityError: ErrorCode.INVALID_REQUEST,
    features.UnsupportedLevelError: ErrorCode.UNSUPPORTED_VERSION,
    membership.WrongClusterError: ErrorCode.INVALID_REQUEST,
    identity_file.WrongNodeError: ErrorCode.INVALID_REQUEST,
    cluster_errors.NotLeaderError: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    cluster_errors.NotEnoughReplicasError: ErrorCode.NOT_ENOUGH_REPLICAS,
    cluster_errors.NotEnoughReplicasAfterAppendError: ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    cluster_errors.ReplicationTimedOutError: ErrorCode.REQUEST_TIMED_OUT,
    cluster_errors.OffsetNotAvailableError: ErrorCode.OFFSET_NOT_AVAILABLE,
    leader_epoch.FencedLeaderEpochError: ErrorCode.FENCED_LEADER_EPOCH,
    leader_epoch.UnknownLeaderEpochError: ErrorCode.UNKNOWN_LEADER_EPOCH,
    records.CorruptBatchError: ErrorCode.CORRUPT_MESSAGE,
    records.UnsupportedMagicError: ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    records.InvalidBatchError: ErrorCode.INVALID_RECORD,
    records.RejectedRecordsError: ErrorCode.INVALID_RECORD,
    records.InvalidTimestampsError: ErrorCode.INVALID_TIMESTAMP,
    # A producer splits the batch and sends it again.
    records.RecordsTooLargeError: ErrorCode.MESSAGE_TOO_LARGE,
    records.TooManyRecordsError: ErrorCode.MESSAGE_TOO_LARGE,
    records.RecordsError: ErrorCode.CORRUPT_MESSAGE,
    storage.OffsetOutOfRangeError: ErrorCode.OFFSET_OUT_OF_RANGE,
    storage.BatchTooLargeError: ErrorCode.MESSAGE_TOO_LARGE,
    storage.PartitionNotFoundError: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    storage.PartitionExistsError: ErrorCode.TOPIC_ALREADY_EXISTS,
    storage.InvalidProducerEpochError: ErrorCode.INVALID_PRODUCER_EPOCH,
    storage.OutOfOrderSequenceError: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    # Disk full, I/O errors and corruption: clients may retry, the operator has to act.
    storage.StorageError: ErrorCode.KAFKA_STORAGE_ERROR,
}


def find_by_class(error: LogbrookError, table: Mapping[type[LogbrookError], T]) -> T | None:
    """Return the entry of the error's class, or of its nearest base class that has one."""
    return next((table[error_class] for error_class in type(error).__mro__ if error_class in table), None)


def error_code(error: LogbrookError) -> ErrorCode:
    """Return the code of the error's class, or of its nearest base class that has one."""
    if isinstance(error, RequestRefusedError):
        return error.code
    return find_by_class(error, _CODES) or ErrorCode.UNKNOWN_SERVER_ERROR


def error_reply(error: LogbrookError) -> ErrorReply:
    """Return the code and the message, truncated to `MESSAGE_LENGTH_MAX`, that report `error`."""
    return ErrorReply(error_code(error), str(error)[:MESSAGE_LENGTH_MAX])


def report_error(error: LogbrookError, response: HasErrorCode) -> None:
    """Set the error code of the response and, if it has room for one, the error message."""
    response.error_code = error_code(error)
    if hasattr(response, "error_message"):
        response.error_message = error_reply(error).message


@contextmanager
def errors_in(response: HasErrorCode) -> Iterator[None]:
    """Report a LogbrookError that the block raises in `response`."""
    try:
        yield
    except LogbrookError as error:
        report_error(error, response)
