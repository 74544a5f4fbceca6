"""The error names of the JSON protocol: RustLog's, and a few for errors that RustLog does not have.

Every typed error of the subsystems has a name here, or one of its base classes has; a test proves it.
"""

from enum import StrEnum
from typing import Any

from logbrook.config.kafka_settings import InvalidSettingError
from logbrook.core import metadata
from logbrook.core.acls import InvalidAclError
from logbrook.core.cluster.features import InvalidLevelError, UnsupportedLevelError
from logbrook.core.cluster.placement import InvalidReplicationFactorError
from logbrook.core.coordinator import CoordinatorLoadingError, CoordinatorNotAvailableError, NotCoordinatorError
from logbrook.core.groups import errors as groups
from logbrook.core.quota_entities import InvalidQuotaError
from logbrook.core.users import UnknownCredentialError
from logbrook.model import InvalidPartitionError, InvalidTopicNameError, LogbrookError, UnknownPartitionNameError
from logbrook.ports.metadata_store import MetadataStoreError
from logbrook.protocol.errors import ProtocolError
from logbrook.protocol.json_frames import InvalidRequestError, RecordTooLargeError
from logbrook.records.errors import RecordsError, RejectedRecordsError
from logbrook.server.cluster import errors as cluster_errors
from logbrook.server.cluster.identity_file import WrongNodeError
from logbrook.server.cluster.membership import WrongClusterError
from logbrook.server.cluster.peer_security import InvalidPeerSecurityError
from logbrook.server.errors import RequestRefusedError, find_by_class
from logbrook.server.security.authorizer import AuthorizationFailedError
from logbrook.server.security.errors import AuthenticationFailedError, InvalidSecurityError
from logbrook.server.security.quotas import ThrottlingQuotaExceededError
from logbrook.server.security.state import SecurityStateFullError
from logbrook.server.topic_changes import ChangePendingError
from logbrook.storage import errors as storage

# The message may quote what an untrusted client sent.
_MESSAGE_LENGTH_MAX = 1_000


class JsonError(StrEnum):
    TOPIC_NOT_FOUND = "TopicNotFound"
    PARTITION_NOT_FOUND = "PartitionNotFound"
    OFFSET_OUT_OF_RANGE = "OffsetOutOfRange"
    RECORD_TOO_LARGE = "RecordTooLarge"
    STORAGE_ERROR = "StorageError"
    CORRUPTED_DATA = "CorruptedData"
    INSUFFICIENT_SPACE = "InsufficientSpace"
    INVALID_REQUEST = "InvalidRequest"
    BROKEN_FRAME = "BrokenFrame"
    TOPIC_EXISTS = "TopicExists"
    GROUP_IN_USE = "GroupInUse"
    NOT_READY = "NotReady"
    NOT_AUTHORIZED = "NotAuthorized"
    NOT_AUTHENTICATED = "NotAuthenticated"
    INTERNAL_ERROR = "InternalError"


# The same request may succeed later without a change by the client.
RETRIABLE = frozenset({JsonError.STORAGE_ERROR, JsonError.INSUFFICIENT_SPACE, JsonError.NOT_READY})

_ERRORS: dict[type[LogbrookError], JsonError] = {
    metadata.TopicNotFoundError: JsonError.TOPIC_NOT_FOUND,
    metadata.UnknownTopicIdError: JsonError.TOPIC_NOT_FOUND,
    metadata.TopicExistsError: JsonError.TOPIC_EXISTS,
    metadata.MetadataError: JsonError.INVALID_REQUEST,
    MetadataStoreError: JsonError.NOT_READY,
    InvalidReplicationFactorError: JsonError.INVALID_REQUEST,
    InvalidTopicNameError: JsonError.INVALID_REQUEST,
    InvalidPartitionError: JsonError.PARTITION_NOT_FOUND,
    UnknownPartitionNameError: JsonError.PARTITION_NOT_FOUND,
    InvalidSettingError: JsonError.INVALID_REQUEST,
    # Quotas are set over Kafka's protocol only, and mutations of clients of this protocol are not counted.
    InvalidQuotaError: JsonError.INVALID_REQUEST,
    ThrottlingQuotaExceededError: JsonError.NOT_READY,
    InvalidRequestError: JsonError.INVALID_REQUEST,
    RecordTooLargeError: JsonError.RECORD_TOO_LARGE,
    RequestRefusedError: JsonError.INVALID_REQUEST,
    AuthorizationFailedError: JsonError.NOT_AUTHORIZED,
    InvalidAclError: JsonError.INVALID_REQUEST,
    ProtocolError: JsonError.BROKEN_FRAME,
    CoordinatorLoadingError: JsonError.NOT_READY,
    CoordinatorNotAvailableError: JsonError.NOT_READY,
    NotCoordinatorError: JsonError.NOT_READY,
    ChangePendingError: JsonError.NOT_READY,
    AuthenticationFailedError: JsonError.NOT_AUTHENTICATED,
    InvalidSecurityError: JsonError.INVALID_REQUEST,
    # Users, ACLs and quotas are set over Kafka's protocol only.
    SecurityStateFullError: JsonError.INVALID_REQUEST,
    InvalidPeerSecurityError: JsonError.INVALID_REQUEST,
    UnknownCredentialError: JsonError.INVALID_REQUEST,
    # The JSON protocol has no leaders: a client of a cluster connects to another broker.
    cluster_errors.NotLeaderError: JsonError.NOT_READY,
    cluster_errors.NotEnoughReplicasError: JsonError.NOT_READY,
    cluster_errors.NotEnoughReplicasAfterAppendError: JsonError.NOT_READY,
    cluster_errors.ReplicationTimedOutError: JsonError.NOT_READY,
    cluster_errors.OffsetNotAvailableError: JsonError.NOT_READY,
    InvalidLevelError: JsonError.INVALID_REQUEST,
    UnsupportedLevelError: JsonError.INVALID_REQUEST,
    WrongClusterError: JsonError.INVALID_REQUEST,
    WrongNodeError: JsonError.INVALID_REQUEST,
    groups.RebalanceInProgressError: JsonError.GROUP_IN_USE,
    groups.UnknownMemberIdError: JsonError.GROUP_IN_USE,
    groups.IllegalGenerationError: JsonError.GROUP_IN_USE,
    groups.GroupError: JsonError.INVALID_REQUEST,
    RejectedRecordsError: JsonError.INVALID_REQUEST,
    RecordsError: JsonError.CORRUPTED_DATA,
    storage.PartitionNotFoundError: JsonError.PARTITION_NOT_FOUND,
    storage.OffsetOutOfRangeError: JsonError.OFFSET_OUT_OF_RANGE,
    storage.BatchTooLargeError: JsonError.RECORD_TOO_LARGE,
    storage.DiskFullError: JsonError.INSUFFICIENT_SPACE,
    storage.CorruptLogError: JsonError.CORRUPTED_DATA,
    storage.CorruptFileError: JsonError.CORRUPTED_DATA,
    storage.StorageError: JsonError.STORAGE_ERROR,
}


def json_error(error: LogbrookError) -> JsonError:
    return find_by_class(error, _ERRORS) or JsonError.INTERNAL_ERROR


def error_object(error: LogbrookError, request_name: str | None) -> dict[str, Any]:
    """Return the payload of an error frame."""
    code = json_error(error)
    payload: dict[str, Any] = {
        "error": code.value,
        "message": _printable(str(error)[:_MESSAGE_LENGTH_MAX]),
        "retriable": code in RETRIABLE,
        "request": request_name,
    }
    if isinstance(error, storage.OffsetOutOfRangeError):
        payload |= {"log_start_offset": error.log_start_offset, "log_end_offset": error.log_end_offset}
    if isinstance(error, storage.BatchTooLargeError | RecordTooLargeError):
        payload |= {"size": error.size, "size_max": error.size_max}
    return payload


def _printable(text: str) -> str:
    """Replace lone surrogates, which a client can send and UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()
