"""The frames of the JSON protocol: four bytes of length, a byte that says what the frame is, and a JSON object.

The length is big-endian and counts the type byte and the object. An object that is empty may be left out. An answer has
the type of its request plus 128; an error has a type of its own, whatever was asked. `docs/JSON_PROTOCOL.md` is for
those who write clients.
"""

import json
from collections.abc import Iterator, Mapping
from enum import IntEnum
from struct import Struct
from typing import Any

from logbrook.model import LogbrookError
from logbrook.protocol.errors import ProtocolError
from logbrook.protocol.frame_memory import FrameMemory
from logbrook.protocol.framing import FrameReader

ANSWER_BIT = 0x80
ERROR_TYPE = 0xFF
# What JSON costs to read is its values much more than its bytes, and everyone else waits meanwhile.
VALUES_MAX = 32_768

# More than 64 bits have.
_DIGITS_MAX = 20
_TOO_LARGE = 10**_DIGITS_MAX

_HEAD = Struct(">iB")
_TYPE_BYTES = 1
_BROKEN = memoryview(b"")


class RequestType(IntEnum):
    """What a client may ask for. The names are those of RustLog, the numbers their order there."""

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

    @property
    def title(self) -> str:
        return "".join(word.capitalize() for word in self.name.split("_"))


class InvalidRequestError(LogbrookError):
    """A whole frame whose content is not a request. Its sender is told, and may go on."""


class RecordTooLargeError(LogbrookError):
    """A record of a compressed batch that is more than an answer may have."""

    def __init__(self, offset: int, size: int, size_max: int) -> None:
        super().__init__(
            f"the record at offset {offset} has {size} bytes, and an answer has at most {size_max}; go on after it"
        )
        self.size = size
        self.size_max = size_max


class JsonFrameReader(FrameReader):
    """Gives frames without their length. Where the stream breaks it gives an empty one, and from then on nothing.

    An empty frame cannot come otherwise. It stands where the break is, so that what came before is answered first.
    """

    START_BYTES = _TYPE_BYTES

    __slots__ = ("_bytes_max", "broken")

    def __init__(self, memory: FrameMemory, bytes_max: int) -> None:
        super().__init__(memory, lambda _: bytes_max)
        self._bytes_max = bytes_max
        self.broken: ProtocolError | None = None

    def received(self, count: int) -> list[memoryview]:
        return [] if self.broken is not None else super().received(count)

    def _split(self, stop: int) -> Iterator[memoryview]:
        try:
            yield from super()._split(stop)
        except ProtocolError as error:
            self.broken = error
            yield _BROKEN

    def _size_max(self, start: memoryview) -> int:  # noqa: ARG002 - all frames may have the same size
        return self._bytes_max


def encode_frame(kind: int, body: Mapping[str, Any] | str, request_id: str | int | None = None) -> bytes:
    """A frame as it is sent. `body` is an object, or the text of one; it gets the id of the request it answers."""
    text = body if isinstance(body, str) else to_json(body)
    if request_id is not None:
        rest = text[1:] if text == "{}" else "," + text[1:]
        text = f'{{"id":{to_json(request_id)}{rest}'
    payload = text.encode()
    return _HEAD.pack(_TYPE_BYTES + len(payload), kind) + payload


def decode_object(payload: memoryview) -> dict[str, Any]:
    """The JSON object of a frame. Raises InvalidRequestError."""
    if not payload:
        return {}
    try:
        text = str(payload, "utf-8")
        if _has_too_many_values(text):
            raise InvalidRequestError(f"the payload has more than {VALUES_MAX} values")
        found = json.loads(text, parse_constant=_refuse_constant, parse_float=_read_fraction, parse_int=_read_integer)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the payload is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidRequestError("the payload is JSON, but not an object")
    return found


def to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _has_too_many_values(text: str) -> bool:
    """Every value but the first follows a comma or a bracket."""
    if _openings(text) < VALUES_MAX:
        return False
    # Those in texts do not count. What stands between quotes is every other piece, once quotes in texts are gone.
    text = text.replace("\\\\", "").replace('\\"', "")
    if text.count('"') > 4 * VALUES_MAX:
        return True
    return _openings("".join(text.split('"')[::2])) >= VALUES_MAX


def _openings(text: str) -> int:
    return text.count(",") + text.count("[") + text.count("{")


def _read_fraction(_text: str) -> float:
    """No field is a number with a fraction, so nobody asks which one it is."""
    return 0.5


def _read_integer(text: str) -> int:
    """One of thousands of digits takes its time, and fits no field."""
    return int(text) if len(text) <= _DIGITS_MAX else _TOO_LARGE


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
