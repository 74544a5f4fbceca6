"""A client of simulated brokers: one request at a time over one connection."""

import asyncio
from struct import Struct
from typing import TypeVar

from logbrook.protocol.decoding import decode
from logbrook.protocol.encoding import encode
from logbrook.protocol.framing import RequestStart, frame_request
from logbrook.protocol.reader import Reader, read_int32, skip_tags
from logbrook.protocol.schema import ApiMessage

R = TypeVar("R", bound=ApiMessage)

_LENGTH = Struct(">i")
_ELEMENTS_MAX = 1_000_000


class SimulatedClient(asyncio.Protocol):
    """Connect with `connect`. Every request raises OSError when the connection is lost, or TimeoutError."""

    def __init__(self, name: str = "client") -> None:
        self._name = name
        self._received = bytearray()
        self._correlation_id = 0
        self._response: asyncio.Future[bytes] | None = None
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def connect(cls, host: str, port: int, name: str = "client") -> "SimulatedClient":
        """Raises OSError."""
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(lambda: cls(name), host, port, local_addr=(name, 0))
        return client

    async def request(self, message: ApiMessage, response: type[R], version: int, timeout_s: float = 5.0) -> R:
        """Send a request and return its response. After an error the connection is closed."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the connection is closed")
        self._correlation_id += 1
        start = RequestStart(message.API_KEY, version, self._correlation_id)
        has_tags = version >= message.FLEXIBLE_SINCE
        self._response = asyncio.get_running_loop().create_future()
        self._transport.writelines(frame_request(start, self._name, encode(message, version), has_tags=has_tags))
        try:
            async with asyncio.timeout(timeout_s):
                frame = await self._response
        except BaseException:
            self.close()
            raise
        reader = Reader(memoryview(frame), elements_max=_ELEMENTS_MAX)
        assert read_int32(reader) == self._correlation_id, "a response to another request"
        if version >= response.FLEXIBLE_SINCE:
            skip_tags(reader)
        return decode(response, version, reader)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # The protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._received)[0]
            if len(self._received) < end:
                return
            frame = bytes(self._received[_LENGTH.size : end])
            del self._received[:end]
            if self._response is not None and not self._response.done():
                self._response.set_result(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._response is not None and not self._response.done():
            self._response.set_exception(exc or ConnectionResetError("the broker closed the connection"))
