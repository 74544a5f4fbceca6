"""Ctrl-C at a moment at which work can be left tidily."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StoppedError(Exception):
    """Ctrl-C was pressed, and nothing is half done."""


class HeldInterrupt:
    """Within `with`, the first Ctrl-C is held until `allowed`, where it is a StoppedError. A second is not held: it is
    a KeyboardInterrupt wherever it comes."""

    def __init__(self) -> None:
        self._is_pressed = False
        self._is_allowed = False

    def __enter__(self) -> "HeldInterrupt":
        self._before = signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Around what may be interrupted, such as waiting for input. Raises StoppedError."""
        self._is_allowed = True
        try:
            if self._is_pressed:
                raise StoppedError
            yield
        finally:
            self._is_allowed = False

    def _press(self, _number: int, _frame: FrameType | None) -> None:
        was_pressed, self._is_pressed = self._is_pressed, True
        if was_pressed:
            raise KeyboardInterrupt
        if self._is_allowed:
            raise StoppedError
