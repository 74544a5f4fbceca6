"""Waiting for other threads and processes, with a time limit and an error message."""

from collections.abc import Callable
from threading import Event
from time import monotonic

WITHIN_S = 20.0
_STEP_S = 0.005


class Deadline:
    """A time limit for a condition."""

    def __init__(self, within_s: float = WITHIN_S) -> None:
        self._at = monotonic() + within_s

    @property
    def left_s(self) -> float:
        return max(0.0, self._at - monotonic())

    @property
    def has_passed(self) -> bool:
        return monotonic() >= self._at

    def check(self, failure: str) -> None:
        """Raise AssertionError if the time is up."""
        if self.has_passed:
            raise AssertionError(f"it took too long: {failure}")


def wait_until(happened: Callable[[], bool], failure: str, within_s: float = WITHIN_S) -> None:
    """Wait until a condition holds. Raises AssertionError if it does not in time."""
    never = Event()
    deadline = Deadline(within_s)
    while not happened():
        deadline.check(failure)
        never.wait(_STEP_S)
