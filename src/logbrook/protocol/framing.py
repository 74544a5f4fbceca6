"""Frames: a length of four bytes, then a message with its header.

`FrameReader` provides the memory that the socket receives into, so a large request is never copied: it is decoded where
it was received. Memory is taken as bytes arrive; the announced length alone reserves nothing.
"""

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from logbrook.ports.buffer_pool import BUFFER_BYTES, BufferPool
from logbrook.protocol.encoding import Piece, Pieces, ResponsePieces, assemble
from logbrook.protocol.errors import FrameTooLargeError, MalformedMessageError
from logbrook.protocol.reader import Reader, read_text, skip_tags

_LENGTH = Struct(">i")
_REQUEST_START = Struct(">hhi")
_LENGTH_AND_API_KEY = Struct(">ih")
_RESPONSE_START = Struct(">ii")
_CORRELATION_ID_BYTES = 4
REQUEST_START_BYTES = _REQUEST_START.size
_CLIENT_ID_LENGTH = Struct(">h")
_CLIENT_ID_AT = REQUEST_START_BYTES + _CLIENT_ID_LENGTH.size
# The first bytes of a TLS connection. As a request it would be one of 369 MB, which only Produce may have.
_TLS_HANDSHAKE = 0x1603
_TLS_CLIENT_HELLO = 1
# A partial frame gets twice the memory of the bytes received. At first it gets 16 times, unless memory is scarce, so
# that 1 MB need not grow.
_GROWTH = 2
_FIRST_GROWTH = 16
_FRAME_BYTES_MIN = 4096
# Large enough for many small requests, and no larger, because frames that start in it are copied.
_CHUNK_BYTES = 64 * 1024


class RequestStart(NamedTuple):
    """The header fields that requests of every version start with."""

    api_key: int
    api_version: int
    correlation_id: int


class ReceiveBuffers:
    """Receive memory shared by the connections of one thread.

    Every frame starts in `chunk`. Small frames are copied out of it; a large frame gets a buffer of `pool`.
    """

    def __init__(self, chunk_bytes: int = _CHUNK_BYTES, pool: BufferPool | None = None) -> None:
        self.chunk = memoryview(bytearray(chunk_bytes))
        self.pool = pool or BufferPool()
        # Set by the owner while memory is scarce: a frame then gets little more than the bytes that have arrived.
        self.is_scarce = False

    def take(self, size: int) -> memoryview:
        """Return memory for a frame. Larger buffers of the pool would be much more than the bytes that have arrived."""
        return self.pool.take(size) if size <= BUFFER_BYTES else memoryview(bytearray(size))


class FrameReader:
    """Splits a byte stream into frames. `buffer()` is where the socket writes; then call `received(count)`.

    `buffers` may be shared by all readers of a thread, as long as no other reader is used between the two calls.
    `size_max_of(api_key)` is the largest frame of that API; it is called before the frame is given any memory.
    """

    # The least number of bytes of a frame; they decide its largest size.
    START_BYTES = REQUEST_START_BYTES

    __slots__ = ("_buffers", "_filled", "_frame", "_frame_size", "_rest", "_size_max_of")

    def __init__(self, buffers: ReceiveBuffers, size_max_of: Callable[[int], int]) -> None:
        self._buffers = buffers
        self._size_max_of = size_max_of
        # The first bytes of a frame, fewer than its length field and START_BYTES.
        self._rest = b""
        # A frame that is received in parts, in memory of its own.
        self._frame: memoryview | None = None
        self._frame_size = 0
        self._filled = 0

    @property
    def is_within_frame(self) -> bool:
        """True if a frame is received in part."""
        return self._frame is not None or bool(self._rest)

    @property
    def frame_bytes(self) -> int:
        """Size of the frame that is received in part, as far as it is known; 0 if there is none."""
        return self._frame_size if self._frame is not None else len(self._rest)

    @property
    def held_bytes(self) -> int:
        """Memory taken for the frame that is received in part."""
        return 0 if self._frame is None else len(self._frame)

    @property
    def growth_bytes(self) -> int:
        """Memory that `buffer` is going to take, because that of the frame is full; 0 if it is not."""
        frame = self._frame
        if frame is None or self._filled < len(frame):
            return 0
        return min(self._frame_size, _GROWTH * len(frame)) - len(frame)

    def buffer(self) -> memoryview:
        """Return the memory for the next bytes of the stream."""
        if self._frame is not None:
            if self._filled == len(self._frame):
                self._grow(self._frame)
            return self._frame[self._filled :]
        chunk = self._buffers.chunk
        length = len(self._rest)
        if not length:
            return chunk
        chunk[:length] = self._rest
        return chunk[length:]

    def received(self, count: int) -> list[memoryview]:
        """Return the frames that are complete now. Raises FrameTooLargeError or MalformedMessageError."""
        if self._frame is not None:
            self._filled += count
            if self._filled < self._frame_size:
                return []
            frame, self._frame = self._frame, None
            return [frame]
        stop = len(self._rest) + count
        self._rest = b""
        frames: list[memoryview] = []
        self._split(stop, frames)
        return frames

    def _split(self, stop: int, frames: list[memoryview]) -> None:
        """Add the complete frames in the first `stop` bytes of the chunk to `frames`, and keep the rest."""
        chunk, position = self._buffers.chunk, 0
        while (available := stop - position - _LENGTH.size) >= self.START_BYTES:
            size = self._frame_size_at(chunk, position)
            position += _LENGTH.size
            if available < size:
                first = 0 if self._buffers.is_scarce else min(_FIRST_GROWTH * available, BUFFER_BYTES)
                frame = self._buffers.take(min(size, max(first, _GROWTH * available, _FRAME_BYTES_MIN)))
                frame[:available] = chunk[position:stop]
                self._frame, self._frame_size, self._filled = frame, size, available
                return
            frames.append(memoryview(bytearray(chunk[position : position + size])))
            position += size
        if position < stop:
            self._rest = bytes(chunk[position:stop])

    def _frame_size_at(self, chunk: memoryview, position: int) -> int:
        """Return the size of the frame at `position`. Raises FrameTooLargeError or MalformedMessageError."""
        size, api_key = _LENGTH_AND_API_KEY.unpack_from(chunk, position)
        if size >> 16 == _TLS_HANDSHAKE and api_key & 0xFF == _TLS_CLIENT_HELLO:
            raise MalformedMessageError("the beginning of TLS, on a listener without it")
        if size < self.START_BYTES:
            raise MalformedMessageError(f"a request of {size} bytes; its header has at least {self.START_BYTES}")
        size_max = self._size_max_of(api_key)
        if size > size_max:
            raise FrameTooLargeError(size, size_max)
        return int(size)

    def _grow(self, frame: memoryview) -> None:
        self._frame = self._buffers.take(min(self._frame_size, _GROWTH * len(frame)))
        self._frame[: self._filled] = frame


class SaslFrameReader(FrameReader):
    """The frames of a client that authenticates: requests, or tokens without a header while `has_tokens()` is true."""

    __slots__ = ("START_BYTES", "_has_tokens", "_token_bytes_max")

    def __init__(
        self,
        buffers: ReceiveBuffers,
        size_max_of: Callable[[int], int],
        has_tokens: Callable[[], bool],
        token_bytes_max: int,
    ) -> None:
        super().__init__(buffers, size_max_of)
        self._has_tokens = has_tokens
        self._token_bytes_max = token_bytes_max

    def _split(self, stop: int, frames: list[memoryview]) -> None:
        self.START_BYTES = 0 if self._has_tokens() else REQUEST_START_BYTES
        super()._split(stop, frames)

    def _frame_size_at(self, chunk: memoryview, position: int) -> int:
        if not self._has_tokens():
            return super()._frame_size_at(chunk, position)
        (size,) = _LENGTH.unpack_from(chunk, position)
        if size < 0:
            raise MalformedMessageError(f"a token of {size} bytes")
        if size > self._token_bytes_max:
            raise FrameTooLargeError(size, self._token_bytes_max)
        return int(size)


def frame_token(token: bytes) -> tuple[ResponsePieces, int]:
    """Return a token of SASL with its length in front, and its size in bytes."""
    return [_LENGTH.pack(len(token)) + token], _LENGTH.size + len(token)


def frame_response(correlation_id: int, body: Pieces, *, has_tags: bool) -> tuple[ResponsePieces, int]:
    """Return a response with its length and header in front, and its size in bytes."""
    joined: ResponsePieces
    joined, size = assemble(body)  # type: ignore[assignment]  # a list of fewer types
    size += _CORRELATION_ID_BYTES + has_tags
    head = _RESPONSE_START.pack(size, correlation_id) + b"\x00" * has_tags
    if joined and isinstance(joined[0], bytes):
        joined[0] = head + joined[0]
    else:
        joined.insert(0, head)
    return joined, size + _LENGTH.size


def frame_request(start: RequestStart, client_id: str | None, body: Pieces, *, has_tags: bool) -> list[Piece]:
    """Return a request with its length and header in front."""
    client = b"\xff\xff"
    if client_id is not None:
        name = client_id.encode()
        client = _CLIENT_ID_LENGTH.pack(len(name)) + name
    joined, size = assemble([_REQUEST_START.pack(*start) + client + b"\x00" * has_tags, *body])
    return [_LENGTH.pack(size), *joined]


def read_request_start(frame: memoryview) -> RequestStart:
    # As `_make` does, without the call.
    return tuple.__new__(RequestStart, _REQUEST_START.unpack_from(frame))


def read_request_body(frame: memoryview, *, has_tags: bool) -> tuple[str, Reader]:
    """Return the client id, empty if it is null, and a reader positioned after the header.

    Raises MalformedMessageError.
    """
    end = len(frame)
    if end < _CLIENT_ID_AT:
        raise MalformedMessageError(f"the request ends at byte {end}, in its header")
    (length,) = _CLIENT_ID_LENGTH.unpack_from(frame, REQUEST_START_BYTES)
    position = _CLIENT_ID_AT + length if length > 0 else _CLIENT_ID_AT
    if length < -1 or position > end:
        raise MalformedMessageError(f"a client id of {length} bytes is claimed, {end - _CLIENT_ID_AT} are left")
    client_id = read_text(frame[_CLIENT_ID_AT:position]) if length > 0 else ""
    if not has_tags:
        return client_id, Reader(frame, position)
    if position < end and not frame[position]:
        return client_id, Reader(frame, position + 1)
    reader = Reader(frame, position)
    skip_tags(reader)
    return client_id, reader
