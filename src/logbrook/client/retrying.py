"""Asking again: what is worth it, how long to wait in between, and when to give up."""

from collections.abc import Callable
from threading import Event
from time import monotonic
from typing import TypeVar

from logbrook.client.errors import (
    BrokerError,
    ClientError,
    ConnectFailedError,
    ConnectionClosedError,
    TimedOutError,
    UnexpectedAnswerError,
)
from logbrook.client.partition_queue import backoff_s
from logbrook.protocol.error_codes import ErrorCode

T = TypeVar("T")

# Errors of the way to a broker.
LOST = (ConnectFailedError, ConnectionClosedError, TimedOutError, UnexpectedAnswerError)
# A transaction that has just ended is in the way for a moment only.
_SOON = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNSTABLE_OFFSET_COMMIT})
_SOONER = 0.1


def is_retriable(error: ClientError) -> bool:
    return error.is_retriable if isinstance(error, BrokerError) else isinstance(error, LOST)


def persist(
    ask: Callable[[], T],
    within_s: float,
    *,
    wait: Callable[[float], None] | None = None,
    final: frozenset[ErrorCode] = frozenset(),
) -> T:
    """Ask until there is an answer or the time is up, and then raise the last error.

    Codes that are `final` are answers. `wait` is called with the moment, of the monotonic clock, to wait for.
    """
    wait = wait or _wait_until
    give_up_at_s = monotonic() + within_s
    tries = 0
    while True:
        try:
            return ask()
        except ClientError as error:
            code = error.code if isinstance(error, BrokerError) else None
            again_at_s = monotonic() + backoff_s(tries) * (_SOONER if code in _SOON else 1)
            if code in final or not is_retriable(error) or again_at_s > give_up_at_s:
                raise
        tries += 1
        wait(again_at_s)


def _wait_until(moment_s: float) -> None:
    Event().wait(max(0.0, moment_s - monotonic()))
