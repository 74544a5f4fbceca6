"""Waiting for what other threads and processes do, with a limit and a reason: nothing here hopes."""

from collections.abc import Callable
from threading import Event
from time import monotonic

WITHIN_S = 20.0
_STEP_S = 0.005


class Deadline:
    """A moment that things have to happen before."""

    def __init__(self, within_s: float = WITHIN_S) -> None:
        self._at = monotonic() + within_s

    @property
    def left_s(self) -> float:
        return max(0.0, self._at - monotonic())

    @property
    def has_passed(self) -> bool:
        return monotonic() >= self._at

    def check(self, what: str) -> None:
        """Raises AssertionError when it has passed."""
        if self.has_passed:
            raise AssertionError(f"it took too long: {what}")


def wait_until(happened: Callable[[], bool], what: str, within_s: float = WITHIN_S) -> None:
    """Raises AssertionError if it does not happen in time."""
    never = Event()
    deadline = Deadline(within_s)
    while not happened():
        deadline.check(what)
        never.wait(_STEP_S)
