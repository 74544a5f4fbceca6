"""A TCP proxy on its own thread that cuts and stalls connections at any byte, as networks do.

A broker that advertises the proxy's address is reached through it only. The cuts are placed by counting bytes:
alternately in the middle of a request, so that the broker has half of it, and before a response, so that the broker has
executed the request that the client will retry.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from tests.interop.waiting import wait_until

_CHUNK_BYTES = 64 * 1024
_CLOSE_S_MAX = 10.0


class CuttingProxy:
    """`target` is HOST:PORT, and may change; the first `cuts` times `every_bytes` have passed, connections are cut.

    Once, after `stall_at_bytes`, nothing passes for `stall_s`, on connections that are there and on new ones.
    """

    def __init__(
        self, *, cuts: int = 0, every_bytes: int = 0, stall_at_bytes: int | None = None, stall_s: float = 0.0
    ) -> None:
        self.target = ""
        self.cuts_done = 0
        self.bytes_passed = 0
        self._cuts = cuts
        self._every_bytes = every_bytes
        self._cut_at = every_bytes
        self._stall_at = stall_at_bytes
        self._stall_s = stall_s
        self._passable = asyncio.Event()
        self._passable.set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cutting-proxy", daemon=True)
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    def wait_for_bytes(self, count: int) -> None:
        """Wait until this many more bytes have passed. Raises AssertionError after a timeout."""
        goal = self.bytes_passed + count
        wait_until(lambda: self.bytes_passed >= goal, f"{count} bytes pass the proxy")

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(_CLOSE_S_MAX)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(_CLOSE_S_MAX)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_S_MAX)
        assert not self._thread.is_alive(), "the proxy does not stop"
        self._loop.close()

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for connection in list(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, client_reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._forward(client_reader, client)
        except asyncio.CancelledError:
            # Only `_stop` cancels the task, and it only waits for its end.
            pass
        finally:
            self._connections.discard(task)
            client.transport.abort()

    async def _forward(self, client_reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        host, _, port = self.target.rpartition(":")
        try:
            broker_reader, broker = await asyncio.open_connection(host, int(port))
        except OSError:
            return
        pumps = {
            asyncio.create_task(self._pump(client_reader, broker, self._cut_request)),
            asyncio.create_task(self._pump(broker_reader, client, self._cut_answer)),
        }
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            broker.transport.abort()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        cut: Callable[[bytes, asyncio.StreamWriter], Awaitable[bool]],
    ) -> None:
        """Forward bytes until the end of input, a closed peer, or a cut."""
        with suppress(OSError):
            while data := await reader.read(_CHUNK_BYTES):
                self.bytes_passed += len(data)
                self._stall_if_due()
                await self._passable.wait()
                if await cut(data, writer):
                    return
                writer.write(data)
                await writer.drain()

    def _stall_if_due(self) -> None:
        if self._stall_at is not None and self.bytes_passed >= self._stall_at:
            self._stall_at = None
            self._passable.clear()
            self._loop.call_later(self._stall_s, self._passable.set)

    async def _cut_request(self, data: bytes, broker: asyncio.StreamWriter) -> bool:
        if not self._is_due(is_answer=False):
            return False
        broker.write(data[: len(data) // 2])
        await broker.drain()
        return True

    async def _cut_answer(self, data: bytes, client: asyncio.StreamWriter) -> bool:
        return self._is_due(is_answer=True)

    def _is_due(self, *, is_answer: bool) -> bool:
        is_answers_turn = self.cuts_done % 2 == 1
        if self.cuts_done >= self._cuts or self.bytes_passed < self._cut_at or is_answer != is_answers_turn:
            return False
        self.cuts_done += 1
        self._cut_at = self.bytes_passed + self._every_bytes
        return True
