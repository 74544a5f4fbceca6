"""Readers of the primitive types in a frame, with every length checked against the remaining bytes.

No memory is allocated for a length that is only claimed. An array has at most as many elements as fit into the
remaining bytes, and a whole request at most `ELEMENTS_MAX`: an element of one byte becomes an object of a hundred
bytes and costs a handler microseconds, during which all other requests wait.
"""

from collections.abc import Callable
from struct import Struct, error
from typing import Any, TypeAlias

from logbrook.protocol.errors import MalformedMessageError

ELEMENTS_MAX = 50_000
_VARINT_BYTES_MAX = 5


class Reader:
    """A position in a frame, and the number of array elements read so far."""

    __slots__ = ("data", "elements", "elements_max", "end", "position")

    def __init__(self, data: memoryview, position: int = 0, elements_max: int = ELEMENTS_MAX) -> None:
        self.data = data
        self.position = position
        self.end = len(data)
        self.elements = 0
        self.elements_max = elements_max

    @property
    def remaining(self) -> int:
        return self.end - self.position

    def take(self, length: int) -> memoryview:
        """Return a view of the next `length` bytes. Raises MalformedMessageError."""
        start = self.position
        stop = start + length
        if length < 0 or stop > self.end:
            raise MalformedMessageError(f"{length} bytes are claimed at byte {start}, {self.end - start} are left")
        self.position = stop
        return self.data[start:stop]

    def count(self, claimed: int, element_bytes_min: int) -> int:
        """Return `claimed` if that many elements fit into the remaining bytes. Raises MalformedMessageError."""
        if claimed * element_bytes_min > self.end - self.position:
            raise MalformedMessageError(
                f"{claimed} elements are claimed at byte {self.position}, {self.remaining} bytes are left"
            )
        self.elements += claimed
        if self.elements > self.elements_max:
            raise MalformedMessageError(f"the message has more than {self.elements_max} array elements")
        return claimed


Read: TypeAlias = Callable[[Reader], Any]


def _fixed(code: str) -> Read:
    packed = Struct(f">{code}")
    unpack_from, size = packed.unpack_from, packed.size

    def read(reader: Reader) -> Any:
        position = reader.position
        reader.position = position + size
        try:
            return unpack_from(reader.data, position)[0]
        except error:
            raise MalformedMessageError(f"the message ends at byte {reader.end}, within a number") from None

    return read


read_int8 = _fixed("b")
read_int16 = _fixed("h")
read_uint16 = _fixed("H")
read_int32 = _fixed("i")
read_int64 = _fixed("q")
read_float64 = _fixed("d")


def read_uvarint(reader: Reader) -> int:
    """Read an unsigned varint of at most 32 bits. Raises MalformedMessageError."""
    data, position, end = reader.data, reader.position, reader.end
    if position < end and (first := data[position]) < 0x80:
        reader.position = position + 1
        return first
    value = 0
    for number in range(_VARINT_BYTES_MAX):
        if position >= end:
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            if value > 0xFFFF_FFFF:
                break
            reader.position = position
            return value
    raise MalformedMessageError(f"invalid varint at byte {reader.position}")


def skip_tags(reader: Reader) -> None:
    """Skip the tagged fields at the reader's position. Raises MalformedMessageError."""
    count = read_uvarint(reader)
    if count:
        for _ in range(reader.count(count, 2)):
            read_uvarint(reader)
            reader.take(read_uvarint(reader))


def read_text(view: memoryview) -> str:
    try:
        return str(view, "utf-8")
    except UnicodeDecodeError as error:
        raise MalformedMessageError(f"a string is not UTF-8: {error.reason}") from None


def _compact_length(reader: Reader) -> int:
    return read_uvarint(reader) - 1


def sized(read_length: Callable[[Reader], int], convert: Callable[[memoryview], Any], *, nullable: bool) -> Read:
    """Return a reader of a value with its length in front; a length of -1 means null."""

    def read(reader: Reader) -> Any:
        length = read_length(reader)
        if length < 0:
            if nullable and length == -1:
                return None
            raise MalformedMessageError(f"length {length} at byte {reader.position}, in a field that is not nullable")
        return convert(reader.take(length))

    return read


_SIZED: dict[str, tuple[Callable[[Reader], int], Callable[[memoryview], Any]]] = {
    "string": (read_int16, read_text),
    "bytes": (read_int32, bytes),
    "records": (read_int32, lambda view: view),
}
_FIXED: dict[str, tuple[Read, int]] = {
    "bool": (lambda reader: bool(read_int8(reader)), 1),
    "int8": (read_int8, 1),
    "int16": (read_int16, 2),
    "uint16": (read_uint16, 2),
    "int32": (read_int32, 4),
    "int64": (read_int64, 8),
    "float64": (read_float64, 8),
    "uuid": (lambda reader: bytes(reader.take(16)), 16),
}


def primitive(kind: str, *, flexible: bool, nullable: bool) -> tuple[Read, int]:
    """Return the reader of a primitive type, and the least number of bytes it takes."""
    if kind in _FIXED:
        return _FIXED[kind]
    read_length, convert = _SIZED[kind]
    size_min = 1 if flexible else (2 if kind == "string" else 4)
    return sized(_compact_length if flexible else read_length, convert, nullable=nullable), size_min


def array_of(read: Read, size_min: int, *, flexible: bool, nullable: bool) -> Read:
    """Return a reader of arrays, which checks the element count before it allocates."""
    read_count = _compact_length if flexible else read_int32

    def read_array(reader: Reader) -> Any:
        claimed = read_count(reader)
        if claimed < 0:
            if nullable and claimed == -1:
                return None
            raise MalformedMessageError(
                f"{claimed} elements at byte {reader.position}, in a field that is not nullable"
            )
        return [read(reader) for _ in range(reader.count(claimed, size_min))]

    return read_array
