"""What a client of the JSON protocol is told of which error: RustLog's names, and a few that it had no need of.

Every typed error of the subsystems is here, or a parent of it is; a test proves it.
"""

from enum import StrEnum
from typing import Any

from logbrook.config.kafka_settings import InvalidSettingError
from logbrook.core.groups import errors as groups
from logbrook.core.metadata import errors as metadata
from logbrook.model import InvalidPartitionError, InvalidTopicNameError, LogbrookError, NothingNamedSoError
from logbrook.protocol.errors import ProtocolError
from logbrook.protocol.json_frames import InvalidRequestError, RecordTooLargeError
from logbrook.records.errors import RecordsError
from logbrook.server.refusals import RefusedError
from logbrook.storage import errors as storage

# What is quoted in a message was chosen by a stranger.
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
    INTERNAL_ERROR = "InternalError"


# The same request may succeed later, though nothing but time or an operator changes.
RETRIABLE = frozenset({JsonError.STORAGE_ERROR, JsonError.INSUFFICIENT_SPACE, JsonError.NOT_READY})

_ERRORS: dict[type[LogbrookError], JsonError] = {
    metadata.TopicNotFoundError: JsonError.TOPIC_NOT_FOUND,
    metadata.UnknownTopicIdError: JsonError.TOPIC_NOT_FOUND,
    metadata.TopicExistsError: JsonError.TOPIC_EXISTS,
    metadata.MetadataError: JsonError.INVALID_REQUEST,
    InvalidTopicNameError: JsonError.INVALID_REQUEST,
    InvalidPartitionError: JsonError.PARTITION_NOT_FOUND,
    NothingNamedSoError: JsonError.PARTITION_NOT_FOUND,
    InvalidSettingError: JsonError.INVALID_REQUEST,
    InvalidRequestError: JsonError.INVALID_REQUEST,
    RecordTooLargeError: JsonError.RECORD_TOO_LARGE,
    RefusedError: JsonError.INVALID_REQUEST,
    ProtocolError: JsonError.BROKEN_FRAME,
    groups.CoordinatorLoadingError: JsonError.NOT_READY,
    groups.CoordinatorNotAvailableError: JsonError.NOT_READY,
    groups.RebalanceInProgressError: JsonError.GROUP_IN_USE,
    groups.UnknownMemberIdError: JsonError.GROUP_IN_USE,
    groups.IllegalGenerationError: JsonError.GROUP_IN_USE,
    groups.GroupError: JsonError.INVALID_REQUEST,
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
    for kind in type(error).__mro__:
        found = _ERRORS.get(kind)
        if found is not None:
            return found
    return JsonError.INTERNAL_ERROR


def error_object(error: LogbrookError, request_name: str | None) -> dict[str, Any]:
    """The payload of an error frame."""
    code = json_error(error)
    found: dict[str, Any] = {
        "error": code.value,
        "message": _printable(str(error)[:_MESSAGE_LENGTH_MAX]),
        "retriable": code in RETRIABLE,
        "request": request_name,
    }
    if isinstance(error, storage.OffsetOutOfRangeError):
        found |= {"log_start_offset": error.log_start_offset, "log_end_offset": error.log_end_offset}
    if isinstance(error, storage.BatchTooLargeError | RecordTooLargeError):
        found |= {"size": error.size, "size_max": error.size_max}
    return found


def _printable(text: str) -> str:
    """Halves of a character that a client sent cannot be sent back."""
    return text.encode("utf-8", "replace").decode()
