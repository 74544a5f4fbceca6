"""Calls of gRPC over HTTP/2, as far as etcd needs them: requests with one response, and streams in both directions.

A gRPC message has a prefix: the compressed flag, always 0 here, and the length in four bytes. A call ends with a status
in the trailers of its response, or in its headers (Trailers-Only).

    https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md

A call raises GrpcError if the server has answered with an error, and OSError if the connection is lost, if the server
has closed the call, or if it did not answer a ping in time.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from ssl import SSLContext
from struct import Struct
from typing import Any, Self, cast
from urllib.parse import unquote

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    PingAckReceived,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
    WindowUpdated,
)
from h2.exceptions import H2Error
from h2.settings import SettingCodes

OK, CANCELLED, UNKNOWN, DEADLINE_EXCEEDED, UNAVAILABLE, UNAUTHENTICATED = 0, 1, 2, 4, 14, 16

Headers = Sequence[tuple[str, str]]

_PREFIX = Struct(">BL")
_MESSAGE_BYTES_MAX = 1 << 30
# HTTP/2 flow-control window: the bytes that the server may have in flight.
_WINDOW_BYTES = 1 << 20
# Pings find a server that is gone without closing its connections. etcd refuses more than one in 5 s, and those on a
# connection without a call.
_PING_S = 6.0
_PING_TIMEOUT_S = 3.0


# Without checks and changes of headers: these names and values are correct, and it takes a third of a call's CPU time.
_CONFIGURATION = H2Configuration(
    client_side=True,
    validate_inbound_headers=False,
    validate_outbound_headers=False,
    normalize_inbound_headers=False,
    normalize_outbound_headers=False,
)


class GrpcError(Exception):
    """The status of a call that has failed."""

    def __init__(self, code: int, details: str) -> None:
        super().__init__(details or f"status {code}")
        self.code = code
        self.details = details


class GrpcConnection(asyncio.Protocol):
    """A connection to a server, on the event loop. Connect with `connect`."""

    def __init__(self, authority: str, scheme: str) -> None:
        self._authority = authority
        self._scheme = scheme
        self._http = H2Connection(_CONFIGURATION)
        self._transport: asyncio.Transport | None = None
        self._calls: dict[int, GrpcCall] = {}
        # False if no new call may be made.
        self._is_open = True
        self._ping_timer: asyncio.TimerHandle | None = None
        self._pong_timer: asyncio.TimerHandle | None = None
        self._is_writable = True

    @classmethod
    async def connect(cls, host: str, port: int, tls: SSLContext | None) -> Self:
        """Raises OSError."""
        scheme = "http" if tls is None else "https"
        authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: cls(authority, scheme), host, port, ssl=tls
        )
        return connection

    @property
    def is_open(self) -> bool:
        return self._is_open

    def open(self, path: str, headers: Headers = ()) -> "GrpcCall":
        """Begin a call. Raises OSError."""
        if not self._is_open:
            raise ConnectionResetError("the connection is closed")
        request = [
            (":method", "POST"),
            (":scheme", self._scheme),
            (":path", path),
            (":authority", self._authority),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            *headers,
        ]
        try:
            number = self._http.get_next_available_stream_id()
            self._http.send_headers(number, request)
        except H2Error as error:
            self._fail(ConnectionResetError(str(error)))
            raise ConnectionResetError(str(error)) from None
        self.flush()
        call = self._calls[number] = GrpcCall(self, self._http, number)
        return call

    def close(self) -> None:
        self._fail(ConnectionResetError("the connection was closed"))

    def flush(self) -> None:
        """Send what the protocol has to send."""
        data = self._http.data_to_send()
        if data and self._transport is not None:
            self._transport.write(data)

    def forget(self, number: int) -> None:
        """A call is over."""
        self._calls.pop(number, None)

    @property
    def is_writable(self) -> bool:
        return self._is_writable

    # The protocol of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._http.initiate_connection()
        self._http.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW_BYTES})
        self._http.increment_flow_control_window(_WINDOW_BYTES)
        self.flush()
        self._ping_timer = asyncio.get_running_loop().call_later(_PING_S, self._ping)

    def data_received(self, data: bytes) -> None:
        try:
            for event in self._http.receive_data(data):
                self._handle(event)
        except H2Error as error:
            self._fail(ConnectionResetError(f"HTTP/2 protocol error: {error}"))
            return
        self.flush()

    def pause_writing(self) -> None:
        self._is_writable = False

    def resume_writing(self) -> None:
        self._is_writable = True
        self._wake_senders()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc or ConnectionResetError("the server closed the connection"))

    def _handle(self, event: Event) -> None:
        if isinstance(event, DataReceived):
            # On receipt, so there is no back-pressure: the messages of a call are queued until they are read.
            self._http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            self._with_call(event.stream_id, lambda call: call.on_data(event.data))
        elif isinstance(event, ResponseReceived | TrailersReceived):
            self._with_call(event.stream_id, lambda call: call.on_headers(_decoded(event.headers)))
        elif isinstance(event, StreamEnded):
            self._with_call(event.stream_id, GrpcCall.on_end)
        elif isinstance(event, StreamReset):
            reset = ConnectionResetError(f"the server has closed the call: error {event.error_code}")
            self._with_call(event.stream_id, lambda call: call.fail(reset))
        elif isinstance(event, WindowUpdated | RemoteSettingsChanged):
            self._wake_senders()
        elif isinstance(event, PingAckReceived) and self._pong_timer is not None:
            self._pong_timer.cancel()
            self._pong_timer = None
        elif isinstance(event, ConnectionTerminated):
            # h2 accepts no frames after a GOAWAY, not even those of calls that the server would finish.
            self._fail(ConnectionResetError(f"the server shuts the connection down: error {event.error_code}"))

    def _with_call(self, number: int, action: "Callable[[GrpcCall], None]") -> None:
        call = self._calls.get(number)
        if call is not None:
            action(call)

    def _wake_senders(self) -> None:
        for call in self._calls.values():
            call.wake()

    def _ping(self) -> None:
        loop = asyncio.get_running_loop()
        self._ping_timer = loop.call_later(_PING_S, self._ping)
        if self._calls and self._pong_timer is None:
            self._http.ping(bytes(8))
            self.flush()
            late = TimeoutError("the server does not answer")
            self._pong_timer = loop.call_later(_PING_TIMEOUT_S, self._fail, late)

    def _fail(self, error: Exception) -> None:
        """End the connection and all its calls."""
        self._is_open = False
        for timer in (self._ping_timer, self._pong_timer):
            if timer is not None:
                timer.cancel()
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.fail(error)
        if self._transport is not None:
            # Not `close`, which waits until everything is sent.
            self._transport.abort()


class GrpcCall:
    """A call in progress. Created by `GrpcConnection.open`; end it with `close`."""

    def __init__(self, connection: GrpcConnection, http: H2Connection, number: int) -> None:
        self._connection = connection
        self._http = http
        self._number = number
        self._received = bytearray()
        self._messages: deque[bytes] = deque()
        self._error: Exception | None = None
        self._status: tuple[int, str] | None = None
        self._is_ended = False
        self._changed = asyncio.Event()

    async def send(self, message: bytes, *, is_last: bool = False) -> None:
        """Send a message, as far as the server takes bytes. Raises GrpcError or OSError."""
        data = memoryview(_PREFIX.pack(0, len(message)) + message)
        while True:
            self._check()
            try:
                room = self._room()
                part, data = data[:room], data[room:]
                if part:
                    self._http.send_data(self._number, bytes(part), end_stream=is_last and not data)
            except H2Error as error:
                raise ConnectionResetError(f"HTTP/2 protocol error: {error}") from None
            self._connection.flush()
            if not data:
                return
            if not part:
                await self._wait()

    async def receive(self) -> bytes | None:
        """Return the next message, None after the last one. Raises GrpcError or OSError."""
        while not self._messages:
            if self._error is not None:
                raise self._error
            if self._is_ended:
                return None
            await self._wait()
        return self._messages.popleft()

    def close(self) -> None:
        """End the call. No effect if it is over."""
        if self._error is None and not self._is_ended and self._connection.is_open:
            self._http.reset_stream(self._number, ErrorCodes.CANCEL)
            self._connection.flush()
        self._connection.forget(self._number)
        self.fail(ConnectionResetError("the call was closed"))

    # Events

    def on_data(self, data: bytes) -> None:
        received = self._received
        received += data
        while len(received) >= _PREFIX.size:
            is_compressed, length = _PREFIX.unpack_from(received)
            if is_compressed or length > _MESSAGE_BYTES_MAX:
                self.fail(ConnectionResetError("the server has sent an invalid message"))
                return
            end = _PREFIX.size + length
            if len(received) < end:
                break
            self._messages.append(bytes(memoryview(received)[_PREFIX.size : end]))
            del received[:end]
        self.wake()

    def on_headers(self, headers: dict[str, str]) -> None:
        status = headers.get(":status", "200")
        if status != "200":
            self._status = (UNAVAILABLE, f"HTTP status {status}")
        elif "grpc-status" in headers:
            self._status = (int(headers["grpc-status"]), unquote(headers.get("grpc-message", "")))

    def on_end(self) -> None:
        """The server has sent everything."""
        self._connection.forget(self._number)
        code, details = self._status or (UNKNOWN, "the server has ended a call without a status")
        if code != OK:
            self.fail(GrpcError(code, details))
        elif self._error is None:
            self._is_ended = True
            self.wake()

    def fail(self, error: Exception) -> None:
        if self._error is None and not self._is_ended:
            self._error = error
        self.wake()

    def wake(self) -> None:
        self._changed.set()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
        if self._is_ended:
            raise ConnectionResetError("the server has ended the call")

    def _room(self) -> int:
        if not self._connection.is_writable:
            return 0
        window = int(self._http.local_flow_control_window(self._number))
        return max(0, min(window, int(self._http.max_outbound_frame_size)))

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()


def _decoded(headers: Iterable[tuple[Any, Any]]) -> dict[str, str]:
    return {bytes(name).decode(): bytes(value).decode(errors="replace") for name, value in headers}
