"""Frames of the JSON protocol: a length of four bytes, a type byte, and a JSON object.

The length is big-endian and counts the type byte and the object. An object that is empty may be left out. An answer has
the type of its request plus 128; an error has one type for all requests. `docs/JSON_PROTOCOL.md`
describes the protocol for authors of clients.
"""

import json
from collections.abc import Callable, Mapping
from enum import IntEnum
from struct import Struct
from typing import Any

from logbrook.model import LogbrookError
from logbrook.protocol.errors import FrameTooLargeError, MalformedMessageError, ProtocolError
from logbrook.protocol.framing import FrameReader, ReceiveBuffers

ANSWER_BIT = 0x80
ERROR_TYPE = 0xFF
# The time to parse JSON depends on the number of values more than on bytes, and parsing blocks the event loop.
VALUES_MAX = 32_768

# Characters of the longest 64-bit integer, with its sign.
_DIGITS_MAX = 20
_TOO_LARGE = 10**_DIGITS_MAX

_HEAD = Struct(">iB")
_LENGTH = Struct(">i")
_TYPE_BYTES = 1
_BROKEN = memoryview(b"")


class RequestType(IntEnum):
    """Types of requests. Up to 10, the names are those of RustLog, the numbers their order there."""

    PRODUCE = 1
    FETCH = 2
    OFFSET_COMMIT = 3
    OFFSET_FETCH = 4
    CREATE_TOPIC = 5
    LIST_TOPICS = 6
    DESCRIBE_TOPIC = 7
    DESCRIBE_PARTITION = 8
    METRICS_FETCH = 9
    PING = 10
    AUTHENTICATE = 11

    @property
    def title(self) -> str:
        return "".join(word.capitalize() for word in self.name.split("_"))


class InvalidRequestError(LogbrookError):
    """A complete frame that is not a valid request. It is answered with an error; the connection stays open."""


class RecordTooLargeError(LogbrookError):
    """A record of a compressed batch that exceeds the largest response."""

    def __init__(self, offset: int, size: int, size_max: int) -> None:
        super().__init__(
            f"the record at offset {offset} has {size} bytes, and an answer has at most {size_max}; go on after it"
        )
        self.size = size
        self.size_max = size_max


class JsonFrameReader(FrameReader):
    """Returns frames without their length. After a framing error it returns an empty frame, then nothing more.

    No valid frame is empty. The empty one marks the position of the error, so that earlier requests are answered first.
    `bytes_max` is called for each frame: the limit rises when the client authenticates.
    """

    START_BYTES = _TYPE_BYTES

    __slots__ = ("_bytes_max", "broken")

    def __init__(self, memory: ReceiveBuffers, bytes_max: Callable[[], int]) -> None:
        super().__init__(memory, lambda _: bytes_max())
        self._bytes_max = bytes_max
        self.broken: ProtocolError | None = None

    def received(self, count: int) -> list[memoryview]:
        return [] if self.broken is not None else super().received(count)

    def _split(self, stop: int, frames: list[memoryview]) -> None:
        try:
            super()._split(stop, frames)
        except ProtocolError as error:
            self.broken = error
            frames.append(_BROKEN)

    def _frame_size_at(self, chunk: memoryview, position: int) -> int:
        (size,) = _LENGTH.unpack_from(chunk, position)
        if size < _TYPE_BYTES:
            raise MalformedMessageError(f"a frame of {size} bytes; it has at least {_TYPE_BYTES}")
        bytes_max = self._bytes_max()
        if size > bytes_max:
            raise FrameTooLargeError(size, bytes_max)
        return int(size)


def encode_frame(kind: int, body: Mapping[str, Any] | str, request_id: str | int | None = None) -> bytes:
    """Return a frame. `body` is an object or its JSON text; `request_id` is added as field `id`."""
    text = body if isinstance(body, str) else to_json(body)
    if request_id is not None:
        rest = text[1:] if text == "{}" else "," + text[1:]
        text = f'{{"id":{to_json(request_id)}{rest}'
    payload = text.encode()
    return _HEAD.pack(_TYPE_BYTES + len(payload), kind) + payload


def decode_object(payload: memoryview) -> dict[str, Any]:
    """Return the JSON object of a frame. Raises InvalidRequestError."""
    if not payload:
        return {}
    try:
        text = str(payload, "utf-8")
        if _has_too_many_values(text):
            raise InvalidRequestError(f"the payload has more than {VALUES_MAX} values")
        decoded = json.loads(text, parse_constant=_refuse_constant, parse_float=_read_fraction, parse_int=_read_integer)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the payload is not JSON: {error}") from None
    if not isinstance(decoded, dict):
        raise InvalidRequestError("the payload is JSON, but not an object")
    return decoded


def to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _has_too_many_values(text: str) -> bool:
    """Return True for more than VALUES_MAX values. Every value but the first follows a comma or a bracket."""
    if _openings(text) < VALUES_MAX:
        return False
    # Do not count characters inside strings: without escaped quotes, every second piece between quotes is a string.
    text = text.replace("\\\\", "").replace('\\"', "")
    if text.count('"') > 4 * VALUES_MAX:
        return True
    return _openings("".join(text.split('"')[::2])) >= VALUES_MAX


def _openings(text: str) -> int:
    return text.count(",") + text.count("[") + text.count("{")


def _read_fraction(_text: str) -> float:
    """Return any fraction: no field accepts one, so its value does not matter."""
    return 0.5


def _read_integer(text: str) -> int:
    """Parse an integer. Thousands of digits would be slow to parse and fit no field."""
    return int(text) if len(text) <= _DIGITS_MAX else _TOO_LARGE


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
