"""A clock that moves only when a test advances it."""


class FakeClock:
    """The `Clock` port. Wall time and monotonic time move together, and only by `advance`."""

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self._started_ms = now_ms
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_s(self) -> float:
        return (self._now_ms - self._started_ms) / 1000

    def advance(self, by_ms: int) -> int:
        """Advance both clocks. Returns the new wall time."""
        if by_ms < 0:
            raise ValueError("a clock cannot be moved back")
        self._now_ms += by_ms
        return self._now_ms
