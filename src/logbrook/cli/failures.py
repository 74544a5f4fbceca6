"""The end of a command: error messages, exit codes, Ctrl-C and SIGTERM.

An error is one sentence on standard error that says what happened and what to do next. Exit codes: 1 for a failure, 2
for wrong usage, 130 for an interrupted command, 143 for one that cleaned up after SIGTERM. A closed output pipe
(`| head`) is not an error.
"""

import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import typer

from logbrook.cli.output import discard_output, escape_controls
from logbrook.client import (
    BrokerError,
    ConnectFailedError,
    DeliveryTimedOutError,
    NetworkError,
    NotKafkaError,
    TimedOutError,
)
from logbrook.model import LogbrookError
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.errors import ProtocolError, UnsupportedApiError, UnsupportedVersionError

FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130
TERMINATED = 143

_ADVICE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "it does not exist; `logbrook topic list` shows the topics",
    ErrorCode.GROUP_ID_NOT_FOUND: "it does not exist; `logbrook group list` shows the groups",
    ErrorCode.TOPIC_ALREADY_EXISTS: "it already exists; `logbrook topic describe` shows it",
    ErrorCode.NON_EMPTY_GROUP: "it has active members; stop them first (`logbrook group describe` lists them)",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "members of the group read the topic; stop them first (`logbrook group "
    "describe` lists them)",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "it does not exist; `logbrook transaction list` shows the transactional ids",
    ErrorCode.MESSAGE_TOO_LARGE: "a record is larger than the topic's max.message.bytes; raise it with "
    "`logbrook topic config`",
    ErrorCode.RECORD_LIST_TOO_LARGE: "a record is larger than the topic's segment.bytes",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the offset is outside the log; `logbrook topic describe` shows its start and end",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "its coordinator is not available; try again",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader; try again",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "this user is not authorized for the topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "this user is not authorized for the group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "this user is not authorized for the cluster",
    ErrorCode.SECURITY_DISABLED: "the cluster has no authorizer, so there are no ACLs; a Logbrook broker has one with "
    "--authorization",
}
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_ERRNO = re.compile(r"\[Errno -?\d+\] ")
# Errors whose message from the broker needs no addition.
_EXPLAINED_BY_BROKER = frozenset(
    {
        ErrorCode.FEATURE_UPDATE_FAILED,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.UNACCEPTABLE_CREDENTIAL,
    }
)


class StoppedError(Exception):
    """Ctrl-C was pressed or SIGTERM received; raised where the work is in a consistent state."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"stopped by signal {signal_number}")
        self.interrupt = TerminatedError() if signal_number == signal.SIGTERM else KeyboardInterrupt()
        self.exit_code = interrupt_exit_code(self.interrupt)


class HeldInterrupt:
    """Context manager that holds back the first Ctrl-C or SIGTERM until `allowed`, where it raises StoppedError.

    A second one is not held back: it raises KeyboardInterrupt or TerminatedError at once.
    """

    def __init__(self) -> None:
        self._received: int | None = None
        self._is_allowed = False

    def __enter__(self) -> "HeldInterrupt":
        self._previous_handlers = {number: signal.signal(number, self._on_signal) for number in _STOP_SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Mark a block that may be interrupted, such as waiting for input. Raises StoppedError."""
        self._is_allowed = True
        try:
            if self._received is not None:
                raise StoppedError(self._received)
            yield
        finally:
            self._is_allowed = False

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        is_second = self._received is not None
        self._received = number
        if is_second:
            raise StoppedError(number).interrupt
        if self._is_allowed:
            raise StoppedError(number)


class TerminatedError(KeyboardInterrupt):
    """SIGTERM was received. It is a KeyboardInterrupt, so that the same code cleans up as after Ctrl-C."""


@contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """Raise TerminatedError in the block when SIGTERM arrives; further ones are ignored while it cleans up."""

    def terminate(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise TerminatedError

    previous_handler = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous_handler)


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Hold back Ctrl-C and SIGTERM until the end of the block. The process must not have other threads."""
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)


def interrupt_exit_code(interrupt: KeyboardInterrupt) -> int:
    return TERMINATED if isinstance(interrupt, TerminatedError) else INTERRUPTED


@contextmanager
def report_failures() -> Iterator[None]:
    """Run the work of a command: errors are printed as one sentence and end it with the right exit code."""
    try:
        yield
        sys.stdout.flush()
    except LogbrookError as error:
        fail(describe_error(error))
    except BrokenPipeError:
        discard_output()
        raise typer.Exit(0) from None
    except KeyboardInterrupt as interrupt:
        typer.echo("stopped", err=True)
        raise typer.Exit(interrupt_exit_code(interrupt)) from None


def refuse(option: str, reason: str) -> NoReturn:
    """End the command because of an invalid option or argument."""
    typer.echo(f"error: {option}: {escape_controls(reason)}", err=True)
    raise typer.Exit(WRONG_USAGE)


def fail(message: str, code: int = FAILED) -> NoReturn:
    typer.echo(f"error: {escape_controls(message)}", err=True)
    raise typer.Exit(code)


def describe_error(error: LogbrookError) -> str:
    """Say what happened and what to do about it."""
    message = str(error)
    match error:
        case ConnectFailedError():
            message = describe_network_error(error) + (
                "; is a broker running there? `logbrook serve` starts one; --bootstrap, LOGBROOK_BOOTSTRAP or "
                "`logbrook context` select another"
            )
        case BrokerError() if error.code in _EXPLAINED_BY_BROKER:
            message = f"{error.operation}: {error.message or error.code.name}"
        case BrokerError() if error.code in _ADVICE:
            message = f"{error.operation}: {_ADVICE[error.code]}"
        case DeliveryTimedOutError():
            message += "; the batch may or may not have been written"
        case TimedOutError():
            message += " to answer; is it a Kafka broker, and is it overloaded?"
        case UnsupportedApiError() | UnsupportedVersionError():
            message = f"the cluster does not support this: {error}"
        case NotKafkaError():
            message += "; --bootstrap, LOGBROOK_BOOTSTRAP or `logbrook context` select another address"
        case ProtocolError():
            message = f"the server does not speak Kafka's protocol correctly: {error}"
    return message


def describe_network_error(error: NetworkError) -> str:
    """Say what happened, without the number of an operating system error."""
    return _ERRNO.sub("", str(error))
