"""Tasks that run beside requests, and pauses between attempts."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class BackgroundTasks:
    """The tasks of one component, on the event loop. An error that a task raises is reported to the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, owner: str) -> None:
        self._loop = loop
        self._owner = owner
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    async def stop(self) -> None:
        """Cancel all tasks, and return when they have ended."""
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            message = f"a background task of {self._owner} failed"
            self._loop.call_exception_handler({"message": message, "exception": error, "task": task})


async def pause(seconds: float) -> None:
    """Wait before another attempt."""
    over = asyncio.Event()
    timer = asyncio.get_running_loop().call_later(seconds, over.set)
    try:
        await over.wait()
    finally:
        timer.cancel()
