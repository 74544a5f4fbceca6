"""Waiting for what happens in other threads and processes, with a limit."""

from collections.abc import Callable
from threading import Event
from time import monotonic

_STEP_S = 0.002


def wait_until(happened: Callable[[], bool], timeout_s: float) -> bool:
    """Whether it happened within the time; the last look is after it."""
    never = Event()
    deadline = monotonic() + timeout_s
    while not happened():
        if monotonic() >= deadline:
            return happened()
        never.wait(_STEP_S)
    return True


def pause(seconds: float) -> None:
    """Let time pass on purpose: the moment of a kill is a number of seconds, nothing is waited for."""
    Event().wait(seconds)
