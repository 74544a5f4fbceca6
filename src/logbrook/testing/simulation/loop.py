"""An event loop with virtual time: it never waits, and jumps to the next timer when nothing is ready."""

import asyncio
import selectors
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context, copy_context
from heapq import heappop, heappush
from typing import Any, TypeVar

from logbrook.testing.simulation.network import SimulatedNetwork

T = TypeVar("T")
_STEP_S = 1e-6
# The wall clock at the start of a simulation: 2026-01-01T00:00:00Z.
_STARTED_S = 1_767_225_600.0


def simulate(main: Callable[["SimulationLoop"], Coroutine[Any, Any, T]], loop: "SimulationLoop | None" = None) -> T:
    """Run `main(loop)` in simulated time, and return its result.

    `time.monotonic` and `time.time` have the simulated time meanwhile, for libraries that do not ask the event loop.
    """
    simulated = loop or SimulationLoop()
    with _clocks_of(simulated), asyncio.Runner(loop_factory=lambda: simulated) as runner:
        return runner.run(main(simulated))


@contextmanager
def _clocks_of(loop: "SimulationLoop") -> Iterator[None]:
    real = (time.monotonic, time.time)
    time.monotonic, time.time = loop.time, lambda: _STARTED_S + loop.time()
    try:
        yield
    finally:
        time.monotonic, time.time = real


class SimulationStuckError(Exception):
    """Every task waits, and there is no timer: in reality they would wait forever."""

    def __init__(self, reason: str = "nothing is ready and no timer is set: all tasks wait forever") -> None:
        super().__init__(reason)


class SimulatedHandle(asyncio.TimerHandle):
    """A callback that is ready or waits for its time. `TimerHandle` asks the loop three times whether it debugs."""

    __slots__ = ()

    def __init__(
        self,
        when_s: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        self._when = when_s
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = copy_context() if context is None else context
        self._cancelled = False
        # For the rest of `TimerHandle`.
        self._scheduled = False
        self._repr = self._source_traceback = None

    def run(self) -> None:
        """Run the callback unless it was cancelled. Errors go to the loop's exception handler."""
        if self._cancelled:
            return
        try:
            self._context.run(self._callback, *self._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            message = f"exception in callback {self._callback!r}"
            self._loop.call_exception_handler({"message": message, "exception": error, "handle": self})


class SimulationLoop(asyncio.SelectorEventLoop):
    """Time starts at 0, and moves between callbacks: to the next timer, or by a microsecond if one is due already.

    Without the microsecond, code that waits for a time that is too short to be added to a float would wait forever.
    Connections are those of `network`.

    Timers that are due at the same time run in the order in which they were set. Work for an executor runs on the loop,
    after `executor_latency_s`.
    """

    def __init__(
        self,
        network: SimulatedNetwork | None = None,
        executor_latency_s: float = 0.0,
        steps_max: int | None = None,
    ) -> None:
        """After `steps_max` moves of the time, SimulationStuckError is raised."""
        self.now_s = 0.0
        self.network = network or SimulatedNetwork()
        self.network.attach(self)
        self._executor_latency_s = executor_latency_s
        self._steps_left = self._steps_max = steps_max
        # Time, number and handle of each timer.
        self._timers: list[tuple[float, int, SimulatedHandle]] = []
        self._timer_number = 0
        super().__init__(_NoSelector())

    def time(self) -> float:
        return self.now_s

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = SimulatedHandle(self.now_s, callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    # There is one thread.
    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now_s + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = SimulatedHandle(when, callback, args, self, context)
        self._timer_number += 1
        heappush(self._timers, (when, self._timer_number, timer))
        return timer

    def _run_once(self) -> None:
        """Move the time, and run the callbacks that are ready then. Raises SimulationStuckError.

        It replaces that of asyncio, which took a sixth of the time of a simulation: nothing waits for descriptors, and
        timers that were cancelled stay until they are due.
        """
        ready: deque[SimulatedHandle] = self._ready  # type: ignore[attr-defined]
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heappop(timers)
        if ready or self._stopping:  # type: ignore[attr-defined]
            self.now_s += _STEP_S
        elif timers:
            self.now_s = max(self.now_s + _STEP_S, timers[0][0])
        else:
            raise SimulationStuckError
        if self._steps_left is not None:
            self._steps_left -= 1
            if self._steps_left < 0:
                # As many again to end the tasks.
                self._steps_left = self._steps_max
                raise SimulationStuckError(f"the simulation does not end, after {self.now_s:.0f} s")
        now_s = self.now_s
        while timers and timers[0][0] <= now_s:
            ready.append(heappop(timers)[2])
        for _ in range(len(ready)):
            ready.popleft().run()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A timer is dropped when it is due."""

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        del executor
        future = self.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:
                # The caller gets it, as from a thread.
                future.set_exception(error)

        self.call_later(self._executor_latency_s, run)
        return future

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **options: Any
    ) -> Any:
        """Listen on the simulated network; options of sockets have no effect."""
        server = self.network.listen(protocol_factory, host, port)
        if options.get("start_serving", True):
            await server.start_serving()
        return server

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **options: Any
    ) -> Any:
        """Connect to a server of the simulated network, from the host in `local_addr`. Raises OSError."""
        local_host = (options.get("local_addr") or ("client", 0))[0]
        return await self.network.connect(protocol_factory, local_host, host, port)

    # There are no descriptors, so nothing has to be woken from a wait.

    def _make_self_pipe(self) -> None:
        pass

    def _close_self_pipe(self) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


class _NoSelector(selectors.BaseSelector):
    """There are no descriptors."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        raise NotImplementedError(f"a simulation never waits: {timeout}")

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        raise NotImplementedError(f"a simulation has no descriptors: {fileobj!r}, {events}, {data!r}")

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        raise KeyError(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return {}
