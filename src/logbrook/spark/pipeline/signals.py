"""SIGINT and SIGTERM while a pipeline runs: the first asks for an end, the second makes one."""

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """`asked` is set by the first. Only the main thread can have them; in another one nothing is changed."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._before = {one: signal.getsignal(one) for one in _SIGNALS}
        self.install()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if threading.current_thread() is threading.main_thread():
            for one, handler in self._before.items():
                signal.signal(one, handler)

    def install(self) -> None:
        """Also after Spark has started, which takes SIGINT for itself."""
        if threading.current_thread() is threading.main_thread():
            for one in _SIGNALS:
                signal.signal(one, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - a handler is called so
        if self.asked.is_set():
            # Spark's Java ends with its standard input, which is ours.
            os._exit(128 + number)
        self.asked.set()
