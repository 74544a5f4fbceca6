"""What went wrong, for the person in front of the screen: a sentence that says what to do about it."""

import re

from logbrook.client import BrokerError, ConnectFailedError, TimedOutError
from logbrook.model import LogbrookError
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.errors import ProtocolError, UnsupportedApiError, UnsupportedVersionError

_ERRNO = re.compile(r"\[Errno -?\d+\] ")
_ADVICE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition (any more)",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group (any more)",
    ErrorCode.TOPIC_ALREADY_EXISTS: "a topic of that name is there already",
    ErrorCode.NON_EMPTY_GROUP: "it has active members; stop them first",
    ErrorCode.MESSAGE_TOO_LARGE: "the message is larger than the topic's max.message.bytes",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the log does not have that offset",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "no broker coordinates it just now; try again",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader just now; try again",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "the cluster does not allow it",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "the cluster does not allow it",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "the cluster does not allow it",
}


def sentence_of(error: LogbrookError) -> str:
    told = str(error)
    match error:
        case BrokerError() if error.code in _ADVICE:
            told = f"{error.what}: {_ADVICE[error.code]}"
        case BrokerError():
            # Brokers put their own words behind the code, which say more than it does.
            words = told.removeprefix(f"{error.what}: {error.code.name}").strip()
            told = f"{error.what}: {words.removeprefix('(').removesuffix(')') or error.code.name}"
        case ConnectFailedError():
            told = _ERRNO.sub("", told) + "; is the broker running?"
        case TimedOutError():
            told += " to answer"
        case UnsupportedApiError() | UnsupportedVersionError():
            told = f"this cluster cannot do it: {error}"
        case ProtocolError():
            told = f"what answers there does not speak Kafka's protocol as it should: {error}"
    return told
