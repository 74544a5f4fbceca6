"""A clock that stands still until a test moves it."""


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
        """Let time pass. Returns the time it is then."""
        if by_ms < 0:
            raise ValueError("time does not go back")
        self._now_ms += by_ms
        return self._now_ms
