"""The door for operators and for Prometheus: HTTP on a port of its own, one request per connection, on the event loop.

A connection has so many seconds for its request, and again for every piece of its answer that it is slow to take; there
are only so many connections. After the answer the connection is half-closed and what still comes is thrown away, so
that an answer which comes before the whole request was read is not lost with it.
"""

import asyncio
import logging
from contextlib import aclosing
from http import HTTPStatus
from typing import cast

from logbrook.server.http_messages import (
    RefusedError,
    Request,
    Response,
    encode_chunk,
    encode_head,
    find_head,
    parse_head,
    text_response,
)
from logbrook.server.metrics.scrape import Observed
from logbrook.server.operations import Operations

_CONNECTIONS_MAX = 32
_PATIENCE_S = 10.0
_WRITE_BUFFER_BYTES = 256 * 1024

_logger = logging.getLogger(__name__)


class HttpListener:
    """`start` it once the broker is put together, and `stop` it before the data directory is let go of."""

    def __init__(
        self, broker: Observed, *, connections_max: int = _CONNECTIONS_MAX, patience_s: float = _PATIENCE_S
    ) -> None:
        self.operations = Operations(broker)
        self.patience_s = patience_s
        self._connections_max = connections_max
        self.connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Returns the address that was taken. Raises OSError, with the address for a file name."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: _Connection(self, loop), host, port, reuse_address=True)
        except OSError as error:
            error.filename = f"{host}:{port}"
            raise
        address = self._server.sockets[0].getsockname()
        return str(address[0]), int(address[1])

    async def stop(self) -> None:
        """Hang up on everyone. Maintenance that was asked for is finished first: it must not be cut short."""
        if self._server is not None:
            self._server.close()
        await self.operations.settle()
        for connection in [*self.connections]:
            await connection.stop()

    def opened(self, connection: "_Connection") -> bool:
        if len(self.connections) >= self._connections_max:
            return False
        self.connections.add(connection)
        return True


class _Connection(asyncio.Protocol):
    """One request. Its states: a head, a body that is skipped, an answer under way, whatever else comes."""

    def __init__(self, host: HttpListener, loop: asyncio.AbstractEventLoop) -> None:
        self._host = host
        self._loop = loop
        self._received = bytearray()
        self._request: Request | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_writable = asyncio.Event()
        self._is_writable.set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_answer_begun = False
        self._is_client_done = False

    @property
    def is_answering(self) -> bool:
        return self._task is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not self._host.opened(self):
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
        self._timer = self._loop.call_later(self._host.patience_s, self._run_out_of_patience)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._host.connections.discard(self)
        self._stop_timer()
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        if self.is_answering:
            return
        self._received += data
        try:
            if self._request is None:
                end = find_head(self._received)
                if end is None:
                    return
                self._request = parse_head(self._received[:end])
                del self._received[:end]
        except RefusedError as refused:
            self._begin(refused)
            return
        if len(self._received) >= self._request.body_length:
            self._begin()

    def eof_received(self) -> bool:
        # A client may close its side and still wait for its answer; one that asked for nothing gets nothing.
        self._is_client_done = True
        return self._task is not None and not self._task.done()

    def pause_writing(self) -> None:
        self._is_writable.clear()

    def resume_writing(self) -> None:
        self._is_writable.set()

    async def stop(self) -> None:
        self._transport.abort()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _begin(self, refused: RefusedError | None = None) -> None:
        self._received.clear()
        self._stop_timer()
        self._task = self._loop.create_task(self._respond(refused))

    async def _respond(self, refused: RefusedError | None) -> None:
        try:
            await self._write(await self._answer(refused))
        except TimeoutError:
            self._transport.abort()
        except Exception:
            # Our own bug. If the answer has begun, cutting it off is the only way to say that it is not whole.
            _logger.exception("an HTTP request failed: %s", self._request)
            if self._is_answer_begun:
                self._transport.abort()
            else:
                await self._write(text_response(HTTPStatus.INTERNAL_SERVER_ERROR, "a bug; the broker's log has more"))
        if self._is_client_done:
            self._transport.close()
        elif not self._transport.is_closing():
            self._transport.write_eof()
            self._timer = self._loop.call_later(self._host.patience_s, self._transport.abort)

    async def _answer(self, refused: RefusedError | None) -> Response:
        if refused is not None:
            return text_response(refused.status, str(refused))
        assert self._request is not None
        return await self._host.operations.answer(self._request)

    async def _write(self, response: Response) -> None:
        request, body = self._request, response.body
        is_chunked = request is not None and request.knows_chunks and not isinstance(body, bytes)
        self._is_answer_begun = True
        self._transport.write(encode_head(response, chunked=is_chunked))
        if request is not None and request.method == "HEAD":
            return
        if isinstance(body, bytes):
            await self._send(body)
            return
        async with aclosing(body):
            async for piece in body:
                if piece:
                    await self._send(encode_chunk(piece) if is_chunked else piece)
        if is_chunked:
            await self._send(encode_chunk(b""))

    async def _send(self, data: bytes) -> None:
        """Raises TimeoutError when the client does not take it."""
        self._transport.write(data)
        if not self._is_writable.is_set():
            async with asyncio.timeout(self._host.patience_s):
                await self._is_writable.wait()

    def _run_out_of_patience(self) -> None:
        self._timer = None
        self._begin(RefusedError(HTTPStatus.REQUEST_TIMEOUT, "the request took too long to come"))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
