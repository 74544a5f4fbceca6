"""From bytes to frames and back: four bytes of length, then a message with its header.

`FrameReader` hands out the memory that the socket is to write into, so a large request is never copied: it is received
where it will be read from. Memory is taken as bytes arrive. A frame that merely announces itself costs nothing.
"""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import NamedTuple

from logbrook.ports.lent_memory import PIECE_BYTES
from logbrook.protocol.encoding import Piece, Pieces, assemble
from logbrook.protocol.errors import FrameTooLargeError, MalformedMessageError
from logbrook.protocol.frame_memory import FrameMemory
from logbrook.protocol.reader import Reader

_LENGTH = Struct(">i")
_REQUEST_START = Struct(">hhi")
_CORRELATION_ID = Struct(">i")
REQUEST_START_BYTES = _REQUEST_START.size
# A frame is given twice the memory of what has come of it; at first more, so that a batch of 1 MB need not grow.
_GROWTH = 2
_FIRST_GROWTH = 16
_FRAME_BYTES_MIN = 4096


class RequestStart(NamedTuple):
    """What every request begins with, whatever its version."""

    api_key: int
    api_version: int
    correlation_id: int


class FrameReader:
    """Give `buffer()` to the socket, say with `received(count)` how much came, and get the frames that are complete.

    `memory` may be shared by all readers of a thread, as long as nothing comes between the two calls. `size_max_of`
    says how long a frame may be that begins as a request does; it is asked before the frame is given any memory.
    """

    # The least that a frame has, which tells how long it may be.
    START_BYTES = REQUEST_START_BYTES

    __slots__ = ("_filled", "_frame", "_frame_size", "_memory", "_rest", "_size_max_of")

    def __init__(self, memory: FrameMemory, size_max_of: Callable[[RequestStart], int]) -> None:
        self._memory = memory
        self._size_max_of = size_max_of
        # The beginning of a frame, too short to tell its size.
        self._rest = b""
        self._frame: memoryview | None = None
        self._frame_size = 0
        self._filled = 0

    @property
    def is_within_frame(self) -> bool:
        """Whether a frame has begun and not ended."""
        return self._frame is not None or bool(self._rest)

    @property
    def held_bytes(self) -> int:
        """The memory that the frame being received has taken so far."""
        return 0 if self._frame is None else len(self._frame)

    def buffer(self) -> memoryview:
        """Where the next bytes are to be written."""
        if self._frame is not None:
            if self._filled == len(self._frame):
                self._grow(self._frame)
            return self._frame[self._filled :]
        length = len(self._rest)
        chunk = self._memory.chunk
        chunk[:length] = self._rest
        return chunk[length:]

    def received(self, count: int) -> list[memoryview]:
        """The frames that are complete now. Raises FrameTooLargeError or MalformedMessageError."""
        if self._frame is not None:
            self._filled += count
            if self._filled < self._frame_size:
                return []
            frame, self._frame = self._frame, None
            return [frame]
        stop = len(self._rest) + count
        self._rest = b""
        return list(self._split(stop))

    def _split(self, stop: int) -> Iterator[memoryview]:
        chunk, position = self._memory.chunk, 0
        while (available := stop - position - _LENGTH.size) >= self.START_BYTES:
            (size,) = _LENGTH.unpack_from(chunk, position)
            if size < self.START_BYTES:
                raise MalformedMessageError(f"a request of {size} bytes, where its header alone has more")
            position += _LENGTH.size
            size_max = self._size_max(chunk[position:])
            if size > size_max:
                raise FrameTooLargeError(size, size_max)
            if available < size:
                first = min(_FIRST_GROWTH * available, PIECE_BYTES)
                self._frame = self._memory.pieces.take(min(size, max(first, _GROWTH * available, _FRAME_BYTES_MIN)))
                self._frame[:available] = chunk[position:stop]
                self._frame_size, self._filled = size, available
                return
            yield memoryview(bytearray(chunk[position : position + size]))
            position += size
        self._rest = bytes(chunk[position:stop])

    def _size_max(self, start: memoryview) -> int:
        return self._size_max_of(read_request_start(start))

    def _grow(self, frame: memoryview) -> None:
        self._frame = self._memory.pieces.take(min(self._frame_size, _GROWTH * len(frame)))
        self._frame[: self._filled] = frame


def read_request_start(frame: memoryview) -> RequestStart:
    return RequestStart._make(_REQUEST_START.unpack_from(frame))


def frame_response(correlation_id: int, body: Pieces, *, has_tags: bool) -> tuple[list[Piece], int]:
    """A response with its header and length in front, and the number of its bytes."""
    pieces: Pieces = [b"", _CORRELATION_ID.pack(correlation_id) + b"\x00" * has_tags, *body]
    joined, size = assemble(pieces)
    first = joined[0]
    assert not isinstance(first, memoryview)
    joined[0] = _LENGTH.pack(size) + first
    return joined, size + _LENGTH.size


def frame_request(start: RequestStart, client_id: str | None, body: Pieces, *, has_tags: bool) -> list[Piece]:
    """A request with its header and length in front."""
    client = b"\xff\xff" if client_id is None else Struct(">h").pack(len(client_id.encode())) + client_id.encode()
    joined, size = assemble([_REQUEST_START.pack(*start) + client + b"\x00" * has_tags, *body])
    return [_LENGTH.pack(size), *joined]


def request_reader(frame: memoryview) -> Reader:
    """A reader placed after the start of a request's header."""
    return Reader(frame, REQUEST_START_BYTES)
