"""The clock: wall time for records, monotonic time for durations."""

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970, the unit of Kafka's timestamps."""
        ...

    def monotonic_s(self) -> float:
        """Seconds from an arbitrary start, never going back: for measuring durations only."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()
