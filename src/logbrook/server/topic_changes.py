"""Changes of topics as tasks: a change that has begun is finished, whether or not its client waits for it.

Changes of one topic are made one after the other. Those of different topics are not: the creation of a large topic does
not delay others.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from logbrook.model import LogbrookError
from logbrook.model.event_log import event_logger

T = TypeVar("T")

_logger = event_logger(__name__)


class ChangePendingError(LogbrookError):
    """The change has begun and is not complete: the client waits no longer, or the broker stops."""


class RequestDeadline:
    """The end of a request's `timeout_ms`, which all its changes share. Without a limit if that is not positive."""

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout_ms: int) -> None:
        self._loop = loop
        self._timeout_ms = timeout_ms
        self._deadline_s = loop.time() + timeout_ms / 1000

    def remaining_ms(self) -> int | None:
        """Return the time that a change may take, None without a limit. Raises ChangePendingError if there is none."""
        if self._timeout_ms <= 0:
            return None
        remaining_ms = int(1000 * (self._deadline_s - self._loop.time()))
        if remaining_ms <= 0:
            raise ChangePendingError(f"not begun within {self._timeout_ms} ms; send the request again")
        return remaining_ms


class TopicChanges:
    """The changes in progress, owned by `Topics`, on the event loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        # A lock lives as long as a change holds it or waits for it.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def run(self, change: Coroutine[Any, Any, T], timeout_ms: int | None = None) -> T:
        """Return the result of `change`, which goes on if the caller is cancelled.

        Raises what it raises, or ChangePendingError after `timeout_ms`.
        """
        task = asyncio.get_running_loop().create_task(change)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            if timeout_ms is None:
                return await asyncio.shield(task)
            return await asyncio.wait_for(asyncio.shield(task), timeout_ms / 1000)
        except TimeoutError:
            task.add_done_callback(_log_result)
            raise ChangePendingError(f"not complete after {timeout_ms} ms; the broker continues") from None
        except asyncio.CancelledError:
            task.add_done_callback(_log_result)
            raise

    @asynccontextmanager
    async def one_at_a_time(self, topic: str) -> AsyncIterator[None]:
        """Wait for the other changes of the topic."""
        lock = self._locks.get(topic)
        if lock is None:
            lock = self._locks[topic] = asyncio.Lock()
        async with lock:
            yield

    def is_changing(self, topic: str) -> bool:
        lock = self._locks.get(topic)
        return lock is not None and lock.locked()

    async def finish(self) -> None:
        """Wait until no change is in progress."""
        while self._tasks:
            await asyncio.wait(self._tasks)


def _log_result(task: "asyncio.Task[Any]") -> None:
    """Log the error of a change for which no client waits."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _logger.error("topic change failed after its client stopped waiting", error=error)
