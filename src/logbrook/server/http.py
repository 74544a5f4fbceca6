"""The HTTP/1.1 listener for operators and Prometheus. h11 parses and frames the messages, asyncio does the I/O.

A connection carries one request and is then closed, so nothing that follows a request is taken for another one. Clients
are bounded: by the number of connections; by `timeout_s` for the request to arrive, and again for each piece of the
response that the client is slow to read; by `HEAD_BYTES_MAX`, beyond which an incomplete head is rejected; and by
`BODY_BYTES_MAX`. Bodies are read and ignored.

Health checks must not fail because of other clients. At most `connections_max` requests are answered at a time, except
for the handler's `health_paths`, for which `_HEALTH_RESERVE` further connections are accepted. When all are in use, the
oldest that has no complete request, or whose response is sent, gives way to a new one.

The Host header must be an IP address, a name without dots or one of `hosts`. Other names are refused (421), because by
DNS rebinding a page of any site can reach this listener under that site's own name. Nobody owns a name without dots.

The handler first identifies the client, then answers. A request whose client is not identified does not count as being
answered, and gives way as well: failed authentications, which are answered late, cannot keep other clients out.

After the response the sending side is closed and further input is discarded for `timeout_s`. Closing at once would make
the kernel reset the connection, and the client could lose a response that was sent before its request was read in full.
"""

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any, NamedTuple, Protocol, cast
from urllib.parse import urlsplit

import h11

from logbrook.model.event_log import event_logger
from logbrook.server.api import RequestContext
from logbrook.server.security.tls_acceptor import TlsAcceptor, TlsAcceptorFactory, listening_sockets

HEAD_BYTES_MAX = 8 * 1024
BODY_BYTES_MAX = 64 * 1024

PLAIN_TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
JSON_LINES = "application/x-ndjson"
PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"

_CONNECTIONS_MAX = 32
_HEALTH_RESERVE = 8
_TIMEOUT_S = 10.0
_WRITE_BUFFER_BYTES = 256 * 1024
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Connection": "close"}

_logger = event_logger(__name__)


class HttpError(Exception):
    """The request is answered with this status and the exception's text."""

    def __init__(self, status: HTTPStatus, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.headers = headers or {}


class HttpPeer(NamedTuple):
    """The client's address, and its certificate if it presented one, as `ssl` decodes it."""

    host: str = ""
    certificate: Mapping[str, Any] | None = None
    has_tls: bool = False


class HttpRequest(NamedTuple):
    """The head of a request. Header names are in lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    peer: HttpPeer = HttpPeer()


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response. A body that is a generator is sent piece by piece as it is produced."""

    status: HTTPStatus
    body: bytes | AsyncGenerator[bytes, None]
    content_type: str = PLAIN_TEXT
    headers: Mapping[str, str] = field(default_factory=dict)


class HttpHandler(Protocol):
    """The application behind the listener. Requests for `health_paths` are answered however many others there are."""

    health_paths: Collection[str]

    async def identify(self, request: HttpRequest) -> RequestContext:
        """Return the context of the request, with the client's principal. Raises HttpError."""

    async def answer(self, request: HttpRequest, context: RequestContext) -> HttpResponse: ...

    async def settle(self) -> None:
        """Return when nothing that was requested is still running."""


def text_response(status: HTTPStatus, text: str) -> HttpResponse:
    return HttpResponse(status, f"{text}\n".encode("utf-8", "replace"))


class HttpListener:
    """Accepts connections for a handler. Owned by the broker, on its event loop; `start` and `stop` it once each."""

    def __init__(
        self,
        handler: HttpHandler,
        hosts: Collection[str] = (),
        *,
        connections_max: int = _CONNECTIONS_MAX,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self.handler = handler
        self.timeout_s = timeout_s
        self._hosts = frozenset(host.lower() for host in hosts)
        self._connections_max = connections_max
        # From the oldest to the newest.
        self.connections: dict[_HttpConnection, None] = {}
        self._server: asyncio.Server | TlsAcceptor | None = None

    async def start(self, host: str, port: int, new_acceptor: TlsAcceptorFactory | None = None) -> tuple[str, int]:
        """Listen, with TLS if there is an acceptor for it, and return the bound address.

        Raises OSError, with the address as its file name.
        """
        loop = asyncio.get_running_loop()

        def new_connection() -> _HttpConnection:
            return _HttpConnection(self, loop)

        try:
            if new_acceptor is None:
                self._server = await loop.create_server(new_connection, host, port, reuse_address=True)
            else:
                self._server = new_acceptor(await listening_sockets(loop, host, port), new_connection)
                await self._server.start_serving()
        except OSError as error:
            error.filename = f"{host}:{port}"
            raise
        address = self._server.sockets[0].getsockname()
        return str(address[0]), int(address[1])

    async def stop(self) -> None:
        """Wait for the handler's work, which must not be interrupted, then abort all connections."""
        if self._server is not None:
            self._server.close()
        await self.handler.settle()
        for connection in [*self.connections]:
            await connection.stop()

    def register(self, connection: "_HttpConnection") -> bool:
        """Return False if there are too many connections and all of them are being answered."""
        if len(self.connections) >= self._connections_max + _HEALTH_RESERVE:
            idle = [other for other in self.connections if not other.is_answering]
            if not idle:
                return False
            min(idle, key=lambda other: other.has_request).abort()
        self.connections[connection] = None
        return True

    def check_host(self, request: HttpRequest) -> None:
        """Raises HttpError for a Host that is refused."""
        host = _host_name(request.headers.get("host", ""))
        if "." in host and not _is_address(host) and host not in self._hosts:
            raise HttpError(
                HTTPStatus.MISDIRECTED_REQUEST,
                f"this broker is not known as {host!r}: use its IP address, or the host of metrics.listen or "
                "network.advertise",
            )

    def check_load(self, request: HttpRequest) -> None:
        """Raises HttpError for too many requests at a time."""
        answering = sum(connection.is_answering for connection in self.connections)
        if answering >= self._connections_max and request.path not in self.handler.health_paths:
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, f"{answering} requests are being answered; try again later")


class _HttpConnection(asyncio.Protocol):
    """One request and its response. The response task starts when the request is complete, invalid or late."""

    def __init__(self, listener: HttpListener, loop: asyncio.AbstractEventLoop) -> None:
        self._listener = listener
        self._loop = loop
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._peer = HttpPeer()
        self._request: HttpRequest | None = None
        self._is_identified = False
        self._body_bytes = 0
        self._task: asyncio.Task[None] | None = None
        self._is_writable = asyncio.Event()
        self._is_writable.set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_client_done = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        address = transport.get_extra_info("peername")
        has_tls = transport.get_extra_info("ssl_object") is not None
        self._peer = HttpPeer(str(address[0]) if address else "", transport.get_extra_info("peercert"), has_tls)
        if not self._listener.register(self):
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
        self._timer = self._loop.call_later(self._listener.timeout_s, self._time_out)

    @property
    def has_request(self) -> bool:
        """True once the request is complete, invalid or late."""
        return self._task is not None

    @property
    def is_answering(self) -> bool:
        return self._is_identified and self._task is not None and not self._task.done()

    def abort(self) -> None:
        """Close the connection at once and release its place."""
        self._listener.connections.pop(self, None)
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._listener.connections.pop(self, None)
        self._stop_timer()
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        if self._task is not None:
            return
        self._http.receive_data(data)
        try:
            if self._is_request_complete():
                assert self._request is not None
                self._listener.check_host(self._request)
                self._begin()
        except HttpError as error:
            self._begin(error)
        except h11.RemoteProtocolError as error:
            self._begin(HttpError(HTTPStatus(error.error_status_hint), f"invalid HTTP request: {error}"))

    def eof_received(self) -> bool:
        # A client may close its sending side and still wait for its response.
        self._is_client_done = True
        return self._task is not None and not self._task.done() and not self._peer.has_tls

    def pause_writing(self) -> None:
        self._is_writable.clear()

    def resume_writing(self) -> None:
        self._is_writable.set()

    async def stop(self) -> None:
        self._transport.abort()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _is_request_complete(self) -> bool:
        """Consume what was received. Raises HttpError or h11.RemoteProtocolError."""
        while (event := self._http.next_event()) is not h11.NEED_DATA:
            if isinstance(event, h11.EndOfMessage):
                return True
            if isinstance(event, h11.Request):
                self._request = _read_head(event)._replace(peer=self._peer)
            elif isinstance(event, h11.Data):
                self._body_bytes += len(event.data)
                _check_body(self._body_bytes)
        return False

    def _begin(self, error: HttpError | None = None) -> None:
        self._stop_timer()
        self._task = self._loop.create_task(self._respond(error))

    async def _respond(self, error: HttpError | None) -> None:
        try:
            await self._write(await self._answer(error))
        except TimeoutError:
            self._transport.abort()
        except Exception:
            # A bug in the handler. Once the response has begun, only aborting it shows that it is incomplete.
            # Without the headers, which may have a password.
            request = self._request
            _logger.exception("http request failed", request=request and f"{request.method} {request.path}")
            if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                await self._write(
                    text_response(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error; see the broker's log")
                )
            else:
                self._transport.abort()
        if self._is_client_done:
            self._transport.close()
        elif self._transport.is_closing():
            pass
        elif self._peer.has_tls:
            # TLS has no half-closed connections; closing waits for the client's reply.
            self._transport.close()
        else:
            self._transport.write_eof()
            self._timer = self._loop.call_later(self._listener.timeout_s, self._transport.abort)

    async def _answer(self, error: HttpError | None) -> HttpResponse:
        try:
            if error is not None:
                raise error
            assert self._request is not None
            handler = self._listener.handler
            context = await handler.identify(self._request)
            self._listener.check_load(self._request)
            self._is_identified = True
            return await handler.answer(self._request, context)
        except HttpError as refusal:
            return HttpResponse(refusal.status, f"{refusal}\n".encode("utf-8", "replace"), headers=refusal.headers)

    async def _write(self, response: HttpResponse) -> None:
        body, status = response.body, response.status
        headers = {"Content-Type": response.content_type, **_HEADERS, **response.headers}
        if isinstance(body, bytes):
            headers["Content-Length"] = str(len(body))
        await self._send(
            h11.Response(status_code=status.value, headers=list(headers.items()), reason=status.phrase.encode())
        )
        if self._request is None or self._request.method != "HEAD":
            if isinstance(body, bytes):
                await self._send(h11.Data(data=body))
            else:
                async with aclosing(body):
                    async for piece in body:
                        await self._send(h11.Data(data=piece))
        await self._send(h11.EndOfMessage())

    async def _send(self, event: h11.Event) -> None:
        """Raises TimeoutError when the client does not read."""
        if data := self._http.send(event):
            self._transport.write(data)
        if not self._is_writable.is_set():
            async with asyncio.timeout(self._listener.timeout_s):
                await self._is_writable.wait()

    def _time_out(self) -> None:
        self._timer = None
        self._begin(HttpError(HTTPStatus.REQUEST_TIMEOUT, f"no complete request in {self._listener.timeout_s:g} s"))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _read_head(request: h11.Request) -> HttpRequest:
    """Raises HttpError."""
    if not request.http_version.startswith(b"1."):
        raise HttpError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "use HTTP/1.1")
    headers = {name.decode("ascii"): value.decode("latin-1") for name, value in request.headers}
    _check_body(int(headers.get("content-length", "0")))
    target = request.target.decode("ascii")
    if not target.startswith("/"):
        raise HttpError(HTTPStatus.BAD_REQUEST, "the request target must be a path")
    path, _, query = target.partition("?")
    return HttpRequest(request.method.decode("ascii"), path, query, headers)


def _host_name(host: str) -> str:
    """Return the name or address in a Host header, without its port. Raises HttpError."""
    try:
        return (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    except ValueError:
        raise HttpError(HTTPStatus.BAD_REQUEST, "the Host header is invalid") from None


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _check_body(size: int) -> None:
    if size > BODY_BYTES_MAX:
        raise HttpError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body may have at most {BODY_BYTES_MAX} bytes")
