"""How a command ends that cannot do what it should: one sentence on standard error that says what to do next.

Exit codes: 1 for what went wrong, 2 for wrong usage, 130 for work that was interrupted. A reader that has had enough
(`| head`) is no error.
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

from logbrook.client import BrokerError, ConnectFailedError, DeliveryTimedOutError, TimedOutError
from logbrook.model import LogbrookError
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.errors import ProtocolError, UnsupportedApiError, UnsupportedVersionError

FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130

_ADVICE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "it is not there; `logbrook topic list` shows what is",
    ErrorCode.GROUP_ID_NOT_FOUND: "it is not there; `logbrook group list` shows what is",
    ErrorCode.TOPIC_ALREADY_EXISTS: "it is there already; `logbrook topic describe` shows it",
    ErrorCode.NON_EMPTY_GROUP: "it has active members; stop them first (`logbrook group describe` names them)",
    ErrorCode.MESSAGE_TOO_LARGE: "a record is larger than the topic takes; raise its max.message.bytes with "
    "`logbrook topic config`",
    ErrorCode.RECORD_LIST_TOO_LARGE: "a record is larger than the topic's segments",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the log does not have that offset; `logbrook topic describe` shows those it has",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "no broker can coordinate it just now; try again",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader just now; try again",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "the cluster does not allow it to this user",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "the cluster does not allow it to this user",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "the cluster does not allow it to this user",
}
_ERRNO = re.compile(r"\[Errno -?\d+\] ")
# Where the broker's own words say it all.
_TOLD_BY_BROKER = frozenset(
    {
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.POLICY_VIOLATION,
    }
)


@contextmanager
def told_in_a_sentence() -> Iterator[None]:
    """Around the work of a command."""
    try:
        yield
        sys.stdout.flush()
    except LogbrookError as error:
        fail(sentence_of(error))
    except BrokenPipeError:
        # What is still buffered would be written at exit, where nobody could catch the error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)
        raise typer.Exit(INTERRUPTED) from None


def refuse(option: str, sentence: str) -> NoReturn:
    """For a command line that cannot be meant so."""
    typer.echo(f"error: {option}: {sentence}", err=True)
    raise typer.Exit(WRONG_USAGE)


def fail(sentence: str) -> NoReturn:
    typer.echo(f"error: {sentence}", err=True)
    raise typer.Exit(FAILED)


def sentence_of(error: LogbrookError) -> str:
    """What happened, and what to do about it."""
    told = str(error)
    match error:
        case ConnectFailedError():
            told = _ERRNO.sub("", told) + (
                "; is a broker running there? `logbrook serve` starts one, and --bootstrap, LOGBROOK_BOOTSTRAP or "
                "`logbrook context` name another"
            )
        case BrokerError() if error.code in _TOLD_BY_BROKER:
            told = f"{error.what}: {_message(error)}"
        case BrokerError() if error.code in _ADVICE:
            told = f"{error.what}: {_ADVICE[error.code]}"
        case DeliveryTimedOutError():
            told += "; whether that batch was written is not known"
        case TimedOutError():
            told += " to answer; is it a Kafka broker, and is it well?"
        case UnsupportedApiError() | UnsupportedVersionError():
            told = f"the cluster cannot do this: {error}"
        case ProtocolError():
            told = f"what answers there does not speak Kafka's protocol as it should: {error}"
    return told


def _message(error: BrokerError) -> str:
    """The broker's words if it gave any, which stand in brackets behind the code."""
    told = str(error).removeprefix(f"{error.what}: {error.code.name}").strip()
    return told.removeprefix("(").removesuffix(")") if told else error.code.name
