"""The retry policy: when a failed operation is tried again, and when it is given up.

The wait before a retry doubles from `backoff_s` up to `backoff_s_max`, varied by `jitter` so that clients that failed
together do not all retry at the same moment. The last error is raised when it is not retriable, when the next try
would begin after the time limit, or when the tries are used up.

    RetryPolicy(timeout_s=30).run(lambda: client.produce("orders", 0, batch))

Code that schedules its own waits gets the time of the next try from `Retries`, or, if it also counts failures itself,
the length of the wait from `RetryPolicy.delay_s`.
"""

import random as system_random
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from threading import Event
from time import monotonic
from typing import NamedTuple, TypeVar

from logbrook.client.errors import BrokerError, ClientError, ConnectFailedError
from logbrook.protocol.error_classes import RETRY_SOON
from logbrook.protocol.error_codes import ErrorCode

T = TypeVar("T")

_SOON_FACTOR = 0.1
_DOUBLINGS_MAX = 30


class FailedTry(NamedTuple):
    """A try that failed and will be repeated after `wait_s`; `failures` counts it too."""

    error: ClientError
    failures: int
    wait_s: float


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Limits and waits of retries; a value without state. The defaults are those of Kafka's clients.

    `timeout_s` counts from the first try, None for no limit. `tries_max` counts the first one too, and
    `connect_tries_max` limits those that end in ConnectFailedError. Errors that are not `retriable`, and codes in
    `final`, are raised at once.
    """

    timeout_s: float | None = None
    tries_max: int | None = None
    connect_tries_max: int | None = None
    backoff_s: float = 0.1
    backoff_s_max: float = 1.0
    jitter: float = 0.2
    retriable: Callable[[ClientError], bool] = attrgetter("is_retriable")
    final: frozenset[ErrorCode] = frozenset()
    # Called before each wait, for a log line.
    on_retry: Callable[[FailedTry], None] | None = None
    clock: Callable[[], float] = field(default=monotonic, compare=False)
    random: Callable[[], float] = field(default=system_random.random, compare=False)

    def is_retriable(self, error: ClientError) -> bool:
        """Return True if `error` is `retriable` and not `final`, whatever the number of tries."""
        return self.retriable(error) and not (isinstance(error, BrokerError) and error.code in self.final)

    def delay_s(self, failures: int, error: ClientError | None = None) -> float:
        """Return the wait after the given number of failures in a row, at least 1."""
        delay_s: float = self.backoff_s * 2 ** min(failures - 1, _DOUBLINGS_MAX)
        delay_s *= 1 + self.jitter * (2 * self.random() - 1)
        is_soon = isinstance(error, BrokerError) and error.code in RETRY_SOON
        return min(delay_s, self.backoff_s_max) * (_SOON_FACTOR if is_soon else 1)

    def run(self, operation: Callable[[], T], *, wait: Callable[[float], None] | None = None) -> T:
        """Call `operation` until it returns, and return its result. Raises its last ClientError when it is given up.

        `wait` is called with the time, on the policy's clock, at which the next try is due. The default sleeps.
        """
        retries = Retries(self)
        while True:
            try:
                return operation()
            except ClientError as error:
                retry_at_s = retries.next_try_at_s(error)
            (wait or self._sleep_until)(retry_at_s)

    def _sleep_until(self, moment_s: float) -> None:
        Event().wait(max(0.0, moment_s - self.clock()))


class Retries:
    """The failures of one operation under a policy. The time limit counts from when this is made."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._failures = 0
        self._connect_failures = 0
        self._give_up_at_s = None if policy.timeout_s is None else policy.clock() + policy.timeout_s

    def next_try_at_s(self, error: ClientError) -> float:
        """Count a failure, and return the time on the policy's clock to try again. Raises `error` if it is the last."""
        policy = self._policy
        self._failures += 1
        self._connect_failures += isinstance(error, ConnectFailedError)
        wait_s = policy.delay_s(self._failures, error)
        retry_at_s = policy.clock() + wait_s
        is_late = self._give_up_at_s is not None and retry_at_s > self._give_up_at_s
        if is_late or self._is_exhausted or not policy.is_retriable(error):
            raise error
        if policy.on_retry is not None:
            policy.on_retry(FailedTry(error, self._failures, wait_s))
        return retry_at_s

    @property
    def _is_exhausted(self) -> bool:
        tries_max, connect_tries_max = self._policy.tries_max, self._policy.connect_tries_max
        return (tries_max is not None and self._failures >= tries_max) or (
            connect_tries_max is not None and self._connect_failures >= connect_tries_max
        )
