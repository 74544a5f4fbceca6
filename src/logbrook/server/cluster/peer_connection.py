"""A connection to another broker on the event loop: requests are sent at once and answered in order.

Bytes are received into the memory of the response that they belong to, and not copied.

Every request raises OSError if the connection is lost, TimeoutError (an OSError) if there is no response in time, or
ProtocolError if the response cannot be decoded. After any of them the connection is reset: the kernel drops what the
other broker has not received, so that a request that failed does not arrive later.
"""

import asyncio
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Any, Self, TypeVar, cast

from logbrook.client.security import PLAINTEXT_SECURITY, ClientSecurity
from logbrook.protocol.decoding import decode
from logbrook.protocol.encoding import encode
from logbrook.protocol.framing import RequestStart, frame_request
from logbrook.protocol.reader import Reader, read_int32, skip_tags
from logbrook.protocol.schema import ApiMessage
from logbrook.server.cluster.peer_security import PeerAuthentication, peer_context, peer_tls_error

R = TypeVar("R", bound=ApiMessage)

# The kernel would try for two minutes.
CONNECT_S_MAX = 2.0
_LENGTH = Struct(">i")
# SO_LINGER of 0 s.
_NO_LINGER = struct.pack("ii", 1, 0)
_FRAME_BYTES_MAX = 256 << 20
# Small responses, and the beginning of each.
_START_BYTES = 4096
# Memory up to this size is kept for a later response: the kernel clears every page of fresh memory.
_KEPT_BYTES_MAX = 8 << 20
_ELEMENTS_MAX = 10_000_000


class PeerConnection(asyncio.BufferedProtocol):
    """Connect with `connect`. `client_id` names this broker in the logs of the other one.

    `on_lost()` is called when the other broker closes the connection, or the network does. With `reuses_memory` a
    response is valid until the request after the next one is sent, also if the connection is authenticated again in
    between. There is one request at a time then.
    """

    def __init__(self, client_id: str) -> None:
        self.on_lost: Callable[[], None] = lambda: None
        self.reuses_memory = False
        self._client_id = client_id
        self._start = memoryview(bytearray(_START_BYTES))
        # The memory of the last two large responses, the older one first.
        self._memories = deque([self._start[:0], self._start[:0]])
        # The memory of the response that is being received, None while its length is unknown, and the bytes it has.
        self._frame: memoryview | None = None
        self._filled = 0
        self._correlation_id = 0
        self._responses: deque[asyncio.Future[memoryview]] = deque()
        self._transport: asyncio.Transport | None = None
        self._is_closed_here = False
        self._authentication: PeerAuthentication | None = None
        self._is_authenticating = False

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        client_id: str,
        local_host: str | None = None,
        timeout_s: float = CONNECT_S_MAX,
        security: ClientSecurity = PLAINTEXT_SECURITY,
    ) -> Self:
        """`local_host` is the address to connect from. Raises OSError, TimeoutError if nothing answers.

        PeerSecurityError, an OSError, if TLS or SASL fails.
        """
        local = None if local_host is None else (local_host, 0)
        async with asyncio.timeout(timeout_s):
            context = await peer_context(security)
            tls: dict[str, Any] = {} if context is None else {"ssl": context, "server_hostname": host}
            try:
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: cls(client_id), host, port, local_addr=local, **tls
                )
            except ssl.SSLError as error:
                raise peer_tls_error(host, port, error, security) from error
            if security.sasl is not None:
                await connection._authenticate(PeerAuthentication(security.sasl, host, port))
        return connection

    async def _authenticate(self, authentication: PeerAuthentication) -> None:
        try:
            await authentication.authenticate(self._request)
        except BaseException:
            self.close()
            if self._transport is not None:
                # The other broker does not wait for an orderly end of TLS.
                self._transport.abort()
            raise
        self._authentication = authentication

    @property
    def is_closed(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    async def request(self, message: ApiMessage, response: type[R], version: int, timeout_s: float = 5.0) -> R:
        """Send a request and return its response."""
        if self._authentication is not None:
            self._is_authenticating = True
            try:
                await self._authentication.renew_if_due(self._request)
            finally:
                self._is_authenticating = False
        return await self._request(message, response, version, timeout_s)

    async def _request(self, message: ApiMessage, response: type[R], version: int, timeout_s: float = 5.0) -> R:
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the connection is closed")
        self._correlation_id += 1
        correlation_id = self._correlation_id
        start = RequestStart(message.API_KEY, version, correlation_id)
        has_tags = version >= message.FLEXIBLE_SINCE
        future: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._responses.append(future)
        self._transport.writelines(frame_request(start, self._client_id, encode(message, version), has_tags=has_tags))
        try:
            async with asyncio.timeout(timeout_s):
                frame = await future
            reader = Reader(frame, elements_max=_ELEMENTS_MAX)
            if read_int32(reader) != correlation_id:
                raise ConnectionResetError("a response to another request")
            if version >= response.FLEXIBLE_SINCE:
                skip_tags(reader)
            return decode(response, version, reader)
        except BaseException:
            self._reset()
            raise

    def close(self) -> None:
        if self._transport is not None:
            self._is_closed_here = True
            self._transport.close()

    def _reset(self) -> None:
        # Requests that share the connection fail one after the other: the first one resets it.
        if self._transport is not None and not self._transport.is_closing():
            self._is_closed_here = True
            connected = self._transport.get_extra_info("socket")
            if connected is not None:
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            self._transport.abort()

    # The protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        memory = self._start if self._frame is None else self._frame
        return memory[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._frame is None:
            self._begin_frames()
        elif self._filled == len(self._frame):
            frame, self._frame, self._filled = self._frame, None, 0
            self._respond(frame)

    def _begin_frames(self) -> None:
        """Take the responses that are complete, and memory for one that is not."""
        start, end = self._start, self._filled
        position = self._filled = 0
        while end - position >= _LENGTH.size:
            length = _LENGTH.unpack_from(start, position)[0]
            if not 0 <= length <= _FRAME_BYTES_MAX:
                self.close()
                return
            position += _LENGTH.size
            received = min(end - position, length)
            frame = self._take(length)
            frame[:received] = start[position : position + received]
            if received < length:
                self._frame, self._filled = frame, received
                return
            position += length
            self._respond(frame)
        self._filled = end - position
        start[: self._filled] = bytes(start[position:end])

    def _take(self, length: int) -> memoryview:
        if not self.reuses_memory or self._is_authenticating or length > _KEPT_BYTES_MAX:
            return memoryview(bytearray(length))
        memory = self._memories.popleft()
        if len(memory) < length:
            memory = memoryview(bytearray(length))
        self._memories.append(memory)
        return memory[:length]

    def _respond(self, frame: memoryview) -> None:
        if self._responses:
            future = self._responses.popleft()
            if not future.done():
                future.set_result(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._is_closed_here:
            self.on_lost()
        while self._responses:
            future = self._responses.popleft()
            if not future.done():
                future.set_exception(exc or ConnectionResetError("the broker closed the connection"))
