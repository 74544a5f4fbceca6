"""Use of quotas by one request: its time on the event loop, and its throttle time."""

from collections.abc import Callable, Coroutine, Generator
from types import CoroutineType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logbrook.server.api import HandlerResult, RequestContext


class RequestUsage:
    """Of one request in flight, from its arrival to its encoded response."""

    __slots__ = ("_now_s", "busy_s", "context", "throttled_until_s")

    def __init__(self, context: "RequestContext", now_s: Callable[[], float]) -> None:
        self.context = context
        self._now_s = now_s
        # Time that was used and is not counted yet, in seconds.
        self.busy_s = 0.0
        # The end of the throttle time on the event loop's clock, 0 if the client is not throttled.
        self.throttled_until_s = 0.0

    def add_since(self, started_s: float) -> None:
        self.busy_s += self._now_s() - started_s

    def timed(self, result: "HandlerResult") -> "HandlerResult":
        """Return the result of a handler; a coroutine as one that adds the time of its steps."""
        return self._run(result) if isinstance(result, CoroutineType) else result

    async def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return await _TimedSteps(self, work, self._now_s)


class _TimedSteps:
    """Awaits a coroutine, and adds the time of each of its steps."""

    def __init__(self, usage: RequestUsage, work: Coroutine[Any, Any, Any], now_s: Callable[[], float]) -> None:
        self._usage = usage
        self._work = work
        self._now_s = now_s

    def __await__(self) -> Generator[Any, Any, Any]:
        error: BaseException | None = None
        while True:
            started_s = self._now_s()
            try:
                # Futures send no values: the next step takes the result from the future itself.
                awaited = self._work.send(None) if error is None else self._work.throw(error)
            except StopIteration as end:
                return end.value
            finally:
                self._usage.add_since(started_s)
            try:
                yield awaited
                error = None
            except BaseException as raised:  # A cancellation, for example: it is raised where the coroutine waits.
                error = raised
