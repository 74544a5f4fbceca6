"""The clock (wall time for records, monotonic time for durations) and randomness."""

import secrets
import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Return the wall time in milliseconds since 1970, the unit of Kafka's timestamps."""

    def monotonic_s(self) -> float:
        """Return monotonic seconds from an arbitrary start, for durations only."""


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    # Called several times per request: the function itself, without another call around it.
    monotonic_s = staticmethod(time.monotonic)


class Random(Protocol):
    def token(self, length: int) -> bytes:
        """Return `length` unpredictable bytes."""


class SystemRandom:
    def token(self, length: int) -> bytes:
        return secrets.token_bytes(length)
