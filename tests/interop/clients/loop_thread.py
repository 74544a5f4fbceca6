"""An event loop on its own thread, for asyncio clients."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future
from threading import Event, Thread
from typing import Any, TypeVar

T = TypeVar("T")

_STOP_S_MAX = 10.0
_BLOCK_S_MAX = 60.0


class LoopThread:
    """Runs until it is closed."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], within_s: float) -> T:
        """Return the coroutine's result. Raises its exception, or TimeoutError."""
        # The loop itself may be blocked, and then it does not notice the timeout.
        return self.start(asyncio.wait_for(work, within_s)).result(within_s + _STOP_S_MAX)

    def start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def block(self) -> Event:
        """Block the loop until the event is set."""
        released = Event()
        self._loop.call_soon_threadsafe(released.wait, _BLOCK_S_MAX)
        return released

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_S_MAX)
        assert not self._thread.is_alive(), "the loop does not stop"
        self._loop.close()
