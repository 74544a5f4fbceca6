"""A connection to another broker on the event loop: requests are sent at once and answered in order.

Every request raises OSError if the connection is lost, TimeoutError (an OSError) if there is no response in time, or
ProtocolError if the response cannot be decoded. After any of them the connection is closed.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Self, TypeVar, cast

from logbrook.protocol.decoding import decode
from logbrook.protocol.encoding import encode
from logbrook.protocol.framing import RequestStart, frame_request
from logbrook.protocol.reader import Reader, read_int32, skip_tags
from logbrook.protocol.schema import ApiMessage

R = TypeVar("R", bound=ApiMessage)

# The kernel would try for two minutes.
CONNECT_S_MAX = 2.0
_LENGTH = Struct(">i")
_FRAME_BYTES_MAX = 256 << 20
_ELEMENTS_MAX = 10_000_000


class PeerConnection(asyncio.Protocol):
    """Connect with `connect`. `client_id` names this broker in the logs of the other one.

    `on_lost()` is called when the other broker closes the connection, or the network does.
    """

    def __init__(self, client_id: str) -> None:
        self.on_lost: Callable[[], None] = lambda: None
        self._client_id = client_id
        self._received = bytearray()
        self._correlation_id = 0
        self._responses: deque[asyncio.Future[bytes]] = deque()
        self._transport: asyncio.Transport | None = None
        self._is_closed_here = False

    @classmethod
    async def connect(
        cls, host: str, port: int, client_id: str, local_host: str | None = None, timeout_s: float = CONNECT_S_MAX
    ) -> Self:
        """`local_host` is the address to connect from. Raises OSError, TimeoutError if nothing answers."""
        local = None if local_host is None else (local_host, 0)
        async with asyncio.timeout(timeout_s):
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: cls(client_id), host, port, local_addr=local
            )
        return connection

    @property
    def is_closed(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    async def request(self, message: ApiMessage, response: type[R], version: int, timeout_s: float = 5.0) -> R:
        """Send a request and return its response."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the connection is closed")
        self._correlation_id += 1
        correlation_id = self._correlation_id
        start = RequestStart(message.API_KEY, version, correlation_id)
        has_tags = version >= message.FLEXIBLE_SINCE
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._responses.append(future)
        self._transport.writelines(frame_request(start, self._client_id, encode(message, version), has_tags=has_tags))
        try:
            async with asyncio.timeout(timeout_s):
                frame = await future
            reader = Reader(memoryview(frame), elements_max=_ELEMENTS_MAX)
            if read_int32(reader) != correlation_id:
                raise ConnectionResetError("a response to another request")
            if version >= response.FLEXIBLE_SINCE:
                skip_tags(reader)
            return decode(response, version, reader)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._transport is not None:
            self._is_closed_here = True
            self._transport.close()

    # The protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= _LENGTH.size:
            length = _LENGTH.unpack_from(self._received)[0]
            if not 0 <= length <= _FRAME_BYTES_MAX:
                self.close()
                return
            end = _LENGTH.size + length
            if len(self._received) < end:
                return
            frame = bytes(memoryview(self._received)[_LENGTH.size : end])
            del self._received[:end]
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
