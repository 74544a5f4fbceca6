"""The thread of the embedded broker: an event loop with one `BrokerServer`, from its start to its stop or kill."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import uvloop

from logbrook.model import LogbrookError
from logbrook.server.broker import BrokerServer
from logbrook.testing.broker_faults import FaultableFiles

T = TypeVar("T")

THREAD_NAME = "logbrook-broker"

_START_S_MAX = 60.0


class BrokerThread:
    """One run of a broker. Its methods are called by the thread of the test, `start` once and before all others."""

    def __init__(self, new_server: Callable[[], Coroutine[Any, Any, BrokerServer]], files: FaultableFiles) -> None:
        """`new_server` returns a started server; it runs on the event loop."""
        self._new_server = new_server
        self._files = files
        self._is_ready = threading.Event()
        self._failure: BaseException | None = None
        self._is_killed = False
        # Set while the event loop may run; None unless it is paused.
        self._resumed: threading.Event | None = None
        self._loop: asyncio.AbstractEventLoop
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
        self.server: BrokerServer

    def start(self) -> None:
        """Raises the error that prevented the start."""
        self._thread.start()
        if not self._is_ready.wait(_START_S_MAX):
            raise TimeoutError(f"the broker did not start within {_START_S_MAX:g} s")
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    @property
    def ident(self) -> int | None:
        """The id of the thread."""
        return self._thread.ident

    @property
    def is_paused(self) -> bool:
        return self._resumed is not None

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the event loop and return its result. Raises RuntimeError while the broker is paused."""
        if self.is_paused:
            work.close()
            raise RuntimeError("the broker is paused: call resume() first")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def pause(self) -> None:
        """Block the event loop until `resume`."""
        if self.is_paused:
            return
        blocked, self._resumed = threading.Event(), threading.Event()
        self._loop.call_soon_threadsafe(self._block, blocked, self._resumed)
        blocked.wait()

    def resume(self) -> None:
        if self._resumed is not None:
            self._resumed.set()
            self._resumed = None

    def stop(self) -> None:
        """Stop the server cleanly, and end the thread."""
        self.resume()
        try:
            self.call(self.server.stop())
        finally:
            self._end()

    def kill(self) -> None:
        """Abandon the server: no write after this call reaches the disk, and no response its client."""
        self._is_killed = True
        self.resume()
        try:
            # Whatever is in progress fails now.
            with suppress(LogbrookError, OSError):
                self.call(self._abandon())
        finally:
            self._end()

    async def _abandon(self) -> None:
        self._disconnect()
        await self.server.abandon()

    def _disconnect(self) -> None:
        """Cut the disk and all clients off, in one turn of the event loop."""
        self._files.kill()
        self.server.listener.suspend()

    def _block(self, blocked: threading.Event, resumed: threading.Event) -> None:
        blocked.set()
        resumed.wait()
        if self._is_killed:
            # Before any of the requests that have arrived meanwhile is processed.
            self._disconnect()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            self._loop = runner.get_loop()
            try:
                self.server = runner.run(self._new_server())
            except BaseException as error:
                self._failure = error
                return
            finally:
                self._is_ready.set()
            self._loop.run_forever()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
