"""Enforcement of client quotas: what requests use is counted, and clients that exceed a quota are throttled (KIP-219).

A throttled client gets its response at once, with the throttle time in it, and its connection is muted: nothing more is
read from it until the time has passed. A client that waits as it is told does not notice.

    produce     bytes of requests, when they arrive: requests that follow on the same connection wait
    fetch       bytes of records; a response above the quota is sent without any, and the client asks again
    request     time on the event loop, in percent of it; the throttle time is at most one window
    mutation    partitions created and deleted (KIP-599): refused or, in old versions, throttled
    connection  connections per address (KIP-612): one above the quota is closed after the throttle time

Fetches of followers, and other requests between brokers, are exempt. A quota holds for each broker. While no quota is
set, a request costs one look at `ClientQuotas.has_client_quotas`.
"""

import asyncio
from math import ceil
from typing import TYPE_CHECKING

from logbrook.config import NetworkConfig
from logbrook.core.client_quotas import ClientQuotas, QuotaLimit
from logbrook.core.quota_entities import QuotaKey
from logbrook.core.quota_meters import QuotaMeters, QuotaWindows
from logbrook.model import LogbrookError
from logbrook.ports import Clock
from logbrook.protocol.messages.fetch import FetchResponse
from logbrook.server.probe import QuotaKind, ServerProbe
from logbrook.server.security.request_usage import RequestUsage

if TYPE_CHECKING:
    from logbrook.server.api import RequestContext, Response

_THROTTLE_MS_MAX = _BYTES_MAX = 2**31 - 1


class QuotaEnforcement:
    """One per broker, on the event loop."""

    def __init__(
        self,
        quotas: ClientQuotas,
        config: NetworkConfig,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        probe: ServerProbe,
    ) -> None:
        windows = QuotaWindows(config.quota_windows, config.quota_window_ms / 1000)
        self.quotas = quotas
        self._loop = loop
        self._clock = clock
        self._probe = probe
        self._burst_s = windows.burst_s
        self._window_s = windows.window_s
        # A client that disappears while it is muted is not noticed, and counts as a connection until then.
        self._mute_s_max = config.connection_idle_ms / 1000
        self._produced = QuotaMeters(windows.burst_s)
        self._fetched = QuotaMeters(windows.burst_s)
        self._time = QuotaMeters(windows.burst_s)
        # As in Kafka, the burst of mutations has the current window too.
        self._mutated = QuotaMeters(windows.window_count * windows.window_s)
        self._connected = QuotaMeters(windows.burst_s)

    def begin(self, context: "RequestContext", produced_bytes: int) -> RequestUsage:
        """Count a request that has arrived. `produced_bytes` is 0 if it is not a Produce request."""
        usage = RequestUsage(context, self._clock.monotonic_s)
        if produced_bytes and (limit := self._limit(QuotaKey.PRODUCER_BYTE_RATE, context)) is not None:
            now_s = self._clock.monotonic_s()
            wait_s = self._produced.bucket(limit.owner, limit.rate, now_s).take(produced_bytes, limit.rate, now_s)
            self._throttle(usage, wait_s, QuotaKind.PRODUCE)
        return usage

    def finish(self, usage: RequestUsage, response: "Response") -> None:
        """Set the throttle time of a response, and mute its connection if a quota is exceeded."""
        time_s = self.count_time(usage)
        if response is None:
            return
        handler_s = getattr(response, "throttle_time_ms", 0) / 1000
        if handler_s >= time_s:
            kind = QuotaKind.FETCH if isinstance(response, FetchResponse) else QuotaKind.MUTATION
            self._throttle(usage, handler_s, kind)
        else:
            self._throttle(usage, time_s, QuotaKind.REQUEST)
        if usage.throttled_until_s and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = _milliseconds(usage.throttled_until_s - self._loop.time())

    def count_time(self, usage: RequestUsage) -> float:
        """Count the time that the request has used since it was last counted, and return the throttle time."""
        limit = self._limit(QuotaKey.REQUEST_PERCENTAGE, usage.context)
        if limit is None:
            return 0.0
        now_s = self._clock.monotonic_s()
        percent, usage.busy_s = 100 * usage.busy_s, 0.0
        wait_s = self._time.bucket(limit.owner, limit.rate, now_s).take(percent, limit.rate, now_s)
        return min(wait_s, self._window_s)

    def fetch(self, context: "RequestContext") -> "FetchQuota | None":
        """Return the quota of a fetch, None without one."""
        if not self.quotas.has_client_quotas:
            return None
        limit = self._limit(QuotaKey.CONSUMER_BYTE_RATE, context)
        return None if limit is None else FetchQuota(self._fetched, limit, self._clock, self._burst_s)

    def mutations(self, context: "RequestContext", strict_since: int) -> "MutationQuota":
        """Return the quota of a request that creates or deletes partitions.

        From version `strict_since` on, mutations above the quota are refused; in older ones they are throttled.
        """
        limit = self._limit(QuotaKey.CONTROLLER_MUTATION_RATE, context) if self.quotas.has_client_quotas else None
        return MutationQuota(self._mutated, limit, self._clock, is_strict=context.version >= strict_since)

    def connection_delay_s(self, address: str) -> float:
        """Count a new connection and return 0, or return the time after which it is closed."""
        rate = self.quotas.connection_rate(address)
        if rate is None:
            return 0.0
        now_s = self._clock.monotonic_s()
        delay_s = min(self._connected.bucket(address, rate, now_s).try_take(1, rate, now_s), self._window_s)
        if delay_s:
            self._probe.count_throttled(QuotaKind.CONNECTION, delay_s)
        return delay_s

    def _limit(self, key: QuotaKey, context: "RequestContext") -> QuotaLimit | None:
        return self.quotas.limit(key, context.session.principal.name, context.client_id)

    def _throttle(self, usage: RequestUsage, wait_s: float, kind: QuotaKind) -> None:
        if not wait_s:
            return
        self._probe.count_throttled(kind, wait_s)
        now_s, session = self._loop.time(), usage.context.session
        usage.throttled_until_s = max(usage.throttled_until_s, now_s + wait_s)
        session.muted_until_s = max(session.muted_until_s, now_s + min(wait_s, self._mute_s_max))


class FetchQuota:
    """The quota of one fetch for the records that it returns."""

    def __init__(self, meters: QuotaMeters, limit: QuotaLimit, clock: Clock, burst_s: float) -> None:
        self._meters = meters
        self._limit = limit
        self._clock = clock
        # The largest response that does not have to wait if nothing was fetched for some time.
        self.bytes_max = min(_BYTES_MAX, max(1, int(limit.rate * burst_s)))

    def take(self, size: int) -> int:
        """Count the bytes of a response and return 0, or return the time that it has to wait for, in milliseconds."""
        if not size:
            return 0
        owner, rate = self._limit
        now_s = self._clock.monotonic_s()
        return _milliseconds(self._meters.bucket(owner, rate, now_s).try_take(size, rate, now_s))


class MutationQuota:
    """The quota of one request for the partitions that it creates or deletes."""

    def __init__(self, meters: QuotaMeters, limit: QuotaLimit | None, clock: Clock, *, is_strict: bool) -> None:
        self._meters = meters
        self._limit = limit
        self._clock = clock
        self._is_strict = is_strict
        self._is_exceeded = False

    @property
    def is_limited(self) -> bool:
        return self._limit is not None

    def take(self, partitions: int) -> None:
        """Count partitions. Raises ThrottlingQuotaExceededError if the quota is used up and strict."""
        limit = self._limit
        if limit is None:
            return
        now_s = self._clock.monotonic_s()
        bucket = self._meters.bucket(limit.owner, limit.rate, now_s)
        debt_s = bucket.debt_s(limit.rate, now_s)
        if debt_s and self._is_strict:
            self._is_exceeded = True
            raise ThrottlingQuotaExceededError(debt_s)
        if bucket.take(partitions, limit.rate, now_s) and not self._is_strict:
            self._is_exceeded = True

    @property
    def throttle_time_ms(self) -> int:
        """The time for which the client has to wait, 0 if nothing was refused or throttled."""
        if self._limit is None or not self._is_exceeded:
            return 0
        now_s = self._clock.monotonic_s()
        bucket = self._meters.bucket(self._limit.owner, self._limit.rate, now_s)
        return _milliseconds(bucket.debt_s(self._limit.rate, now_s))


def _milliseconds(wait_s: float) -> int:
    """Return a time rounded up, so that a client that waits for it is not early."""
    return min(_THROTTLE_MS_MAX, max(0, ceil(min(wait_s, _THROTTLE_MS_MAX) * 1000)))


class ThrottlingQuotaExceededError(LogbrookError):
    """A client creates or deletes partitions faster than its quota permits."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(f"the quota {QuotaKey.CONTROLLER_MUTATION_RATE} is exceeded; try again in {wait_s:.1f} s")
