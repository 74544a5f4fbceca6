"""Accounting of quotas: token buckets, and the throttle time of a client that has used up its bucket.

A bucket gains `rate` tokens per second up to its burst, and every byte, percent of time or partition takes one. A
client without tokens has to wait until the debt is paid at its rate. The burst is what Kafka's windows
(quota.window.num, quota.window.size.seconds) permit at once: the rate times all windows but the current one.

Kafka counts bytes in sampled windows instead, and the throttle time of one large request is the same. But a sample
that expires takes its debt with it: rates of requests as large as some windows are off by more than 5 %. A bucket
forgets nothing, so the rate in the long run is exact (KIP-599 uses one for this reason).

A bucket that is full holds no information, so idle buckets are dropped. All times are in seconds.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import NamedTuple

# Buckets that are checked for expiry when another one is made.
_CHECKED_PER_NEW = 2


class QuotaWindows(NamedTuple):
    """The time over which a rate is measured: some windows, of which the last is the current one."""

    window_count: int
    window_s: float

    @property
    def burst_s(self) -> float:
        """Time that a client may be ahead of its rate: all windows but the current one."""
        return max(1, self.window_count - 1) * self.window_s


class TokenBucket:
    """The rest of one quota of one client. `rate` is an argument, since a quota may change at any time."""

    __slots__ = ("_burst_s", "_tokens", "_updated_s")

    def __init__(self, rate: float, burst_s: float, now_s: float) -> None:
        self._burst_s = burst_s
        self._tokens = rate * burst_s
        self._updated_s = now_s

    def take(self, amount: float, rate: float, now_s: float) -> float:
        """Take tokens, whether there are enough or not, and return the time until the debt is paid, 0 without one."""
        tokens = self._tokens = self._refill(rate, now_s) - amount
        return -tokens / rate if tokens < 0 else 0.0

    def try_take(self, amount: float, rate: float, now_s: float) -> float:
        """Take tokens if there are enough and return 0, otherwise return the time until there will be.

        An amount above the burst is taken from a full bucket: it would never have enough.
        """
        tokens = self._refill(rate, now_s)
        missing = min(amount, rate * self._burst_s) - tokens
        # Clients that wait for the tokens come back some microseconds early, by rounding.
        if missing > rate * 1e-6:
            return missing / rate
        self._tokens = tokens - amount
        return 0.0

    def debt_s(self, rate: float, now_s: float) -> float:
        """Return the time until the debt is paid, 0 without one."""
        tokens = self._refill(rate, now_s)
        return -tokens / rate if tokens < 0 else 0.0

    def is_full(self, rate: float, now_s: float) -> bool:
        return self._refill(rate, now_s) >= rate * self._burst_s

    def _refill(self, rate: float, now_s: float) -> float:
        elapsed_s = max(0.0, now_s - self._updated_s)
        self._updated_s = now_s
        self._tokens = min(rate * self._burst_s, self._tokens + rate * elapsed_s)
        return self._tokens


class QuotaMeters:
    """The buckets of all clients that share one kind of quota, at most `buckets_max`: the oldest makes room."""

    def __init__(self, burst_s: float, buckets_max: int = 10_000) -> None:
        self._burst_s = burst_s
        self._buckets_max = buckets_max
        # With the rate that was last used, in the order of their last use.
        self._buckets: OrderedDict[Hashable, tuple[TokenBucket, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def bucket(self, owner: Hashable, rate: float, now_s: float) -> TokenBucket:
        """Return the bucket of `owner`, a full one if it had none."""
        known = self._buckets.get(owner)
        bucket = self._new(rate, now_s) if known is None else known[0]
        self._buckets[owner] = bucket, rate
        self._buckets.move_to_end(owner)
        return bucket

    def _new(self, rate: float, now_s: float) -> TokenBucket:
        buckets = self._buckets
        for _ in range(min(_CHECKED_PER_NEW, len(buckets))):
            owner, (bucket, last_rate) = next(iter(buckets.items()))
            if bucket.is_full(last_rate, now_s):
                del buckets[owner]
            else:
                buckets.move_to_end(owner)
        if len(buckets) >= self._buckets_max:
            buckets.popitem(last=False)
        return TokenBucket(rate, self._burst_s, now_s)
