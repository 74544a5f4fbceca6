"""Outages of a cluster: how long a query waits for the brokers to come back, and what it logs meanwhile.

A query whose cluster has answered before keeps trying, for five minutes by default: brokers restart, and leaders move
to other brokers. A query whose servers have never answered fails within seconds, because they are probably wrong.
"""

from collections.abc import Callable
from dataclasses import replace
from time import monotonic, time

from logbrook.client.retry import FailedTry, RetryPolicy
from logbrook.model.event_log import event_logger
from logbrook.spark.outage_notes import OutageNote, write_note

OUTAGE_TIMEOUT_S = 300.0
LOG_INTERVAL_S = 60.0
# Kafka's default of socket.connection.setup.timeout.ms.
CONNECT_TIMEOUT_S = 10.0

_START_TIMEOUT_S = 3.0
# The first failure may be that of a stale leader, which has been looked up again before the second.
_START_CONNECT_TRIES = 2
_BRIEF_RETRIES = 3
_BRIEF_WAIT_S = 0.2

_logger = event_logger(__name__)


def outage_retry(
    servers: str, timeout_s: float = OUTAGE_TIMEOUT_S, retries: int | None = None, interval_s: float | None = None
) -> RetryPolicy:
    """Return the policy for a cluster that has answered before: keep trying for `timeout_s`.

    `retries` limits the number of retries too. With `interval_s` the waits have this length instead of growing.
    """
    tries_max = None if retries is None else retries + 1
    policy = RetryPolicy(timeout_s=timeout_s, tries_max=tries_max, on_retry=_outage_log(servers))
    return policy if interval_s is None else _at_interval(policy, interval_s)


def start_retry() -> RetryPolicy:
    """Return the policy for servers that have never answered: give up within seconds."""
    return RetryPolicy(timeout_s=_START_TIMEOUT_S, connect_tries_max=_START_CONNECT_TRIES)


def brief_retry(retries: int | None = None, interval_s: float | None = None) -> RetryPolicy:
    """Return the policy for errors that no outage explains: the answer of a broker that lags behind the others."""
    policy = RetryPolicy(tries_max=1 + (_BRIEF_RETRIES if retries is None else retries))
    return _at_interval(policy, _BRIEF_WAIT_S if interval_s is None else interval_s)


def _at_interval(policy: RetryPolicy, interval_s: float) -> RetryPolicy:
    return replace(policy, backoff_s=interval_s, backoff_s_max=interval_s, jitter=0.0)


class LogInterval:
    """Limits a repeated log line to one per `interval_s`."""

    def __init__(self, interval_s: float = LOG_INTERVAL_S, clock: Callable[[], float] = monotonic) -> None:
        self._interval_s = interval_s
        self._clock = clock
        self._due_at_s = float("-inf")

    def is_due(self) -> bool:
        """Return True if the line may be logged now, and count it as logged."""
        now_s = self._clock()
        if now_s < self._due_at_s:
            return False
        self._due_at_s = now_s + self._interval_s
        return True


class OutageLog:
    """Logs failed tries, one line a minute, from the second failure in a row on.

    The first may only mean that the broker has closed an idle connection, or that a leader has moved. The driver gets a
    note of each failure (`outage_notes`).
    """

    def __init__(self, servers: str, clock: Callable[[], float] = monotonic) -> None:
        self._servers = servers
        self._interval = LogInterval(clock=clock)
        self._since_ms = 0
        self._failed_ms = 0

    def __call__(self, failed: FailedTry) -> None:
        now_ms = round(time() * 1000)
        previous_ms, self._failed_ms = self._failed_ms, now_ms
        if failed.failures == 1:
            self._since_ms = now_ms
            return
        write_note(OutageNote.of_failures(self._servers, str(failed.error), self._since_ms, previous_ms, now_ms))
        if self._interval.is_due():
            _logger.warning(
                "cluster unreachable, retrying",
                servers=self._servers,
                failures=failed.failures,
                error=str(failed.error),
            )


# One per cluster, so that all tasks of a process share the minute.
_outage_logs: dict[str, OutageLog] = {}


def _outage_log(servers: str) -> OutageLog:
    return _outage_logs.setdefault(servers, OutageLog(servers))
