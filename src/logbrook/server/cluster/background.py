"""Tasks that run beside requests, and pauses between attempts."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class BackgroundTasks:
    """The tasks of one component, on the event loop. An error that a task raises is reported to the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, owner: str) -> None:
        self._loop = loop
        self._owner = owner
        # In order: a set of objects would have another one in every run of a simulation.
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(coroutine)
        self._tasks[task] = None
        task.add_done_callback(self._on_done)
        return task

    async def stop(self) -> None:
        """Cancel all tasks, and return when they have ended."""
        while self._tasks:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.wait(list(self._tasks))

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
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
