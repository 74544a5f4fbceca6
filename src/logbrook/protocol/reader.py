"""Reading primitives from a frame, with every length checked against the bytes that are left.

Nothing is allocated from a number that was merely claimed: an array may have as many elements as could still fit, and
a whole request no more than `ELEMENTS_MAX`: an element of one byte becomes an object of a hundred, and takes a handler
some microseconds for which everyone else waits.
"""

from collections.abc import Callable
from struct import Struct, error
from typing import Any, TypeAlias

from logbrook.protocol.errors import MalformedMessageError

ELEMENTS_MAX = 50_000
_VARINT_BYTES_MAX = 5


class Reader:
    """A position in a frame."""

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
        """The next `length` bytes, which are not copied. Raises MalformedMessageError."""
        start = self.position
        stop = start + length
        if length < 0 or stop > self.end:
            raise MalformedMessageError(f"{length} bytes are claimed at byte {start}, {self.end - start} are left")
        self.position = stop
        return self.data[start:stop]

    def count(self, claimed: int, element_bytes_min: int) -> int:
        """A number of array elements, if so many can follow. Raises MalformedMessageError."""
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


def read_bool(reader: Reader) -> bool:
    return bool(read_int8(reader))


def read_uuid(reader: Reader) -> bytes:
    return bytes(reader.take(16))


def read_uvarint(reader: Reader) -> int:
    """An unsigned varint of at most 32 bits. Raises MalformedMessageError."""
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
    raise MalformedMessageError(f"no varint at byte {reader.position}")


def _text(view: memoryview) -> str:
    try:
        return str(view, "utf-8")
    except UnicodeDecodeError as error:
        raise MalformedMessageError(f"a string is not UTF-8: {error.reason}") from None


def _string_length(reader: Reader) -> int:
    length: int = read_int16(reader)
    return length


def _bytes_length(reader: Reader) -> int:
    length: int = read_int32(reader)
    return length


def _compact_length(reader: Reader) -> int:
    return read_uvarint(reader) - 1


def sized(read_length: Callable[[Reader], int], convert: Callable[[memoryview], Any], *, nullable: bool) -> Read:
    """A reader of what has its length in front, where -1 stands for null."""

    def read(reader: Reader) -> Any:
        length = read_length(reader)
        if length < 0:
            if nullable and length == -1:
                return None
            raise MalformedMessageError(f"length {length} at byte {reader.position}, where there is no null")
        return convert(reader.take(length))

    return read


def _as_is(view: memoryview) -> memoryview:
    return view


_SIZED: dict[str, tuple[Callable[[Reader], int], Callable[[memoryview], Any]]] = {
    "string": (_string_length, _text),
    "bytes": (_bytes_length, bytes),
    "records": (_bytes_length, _as_is),
}
_FIXED: dict[str, tuple[Read, int]] = {
    "bool": (read_bool, 1),
    "int8": (read_int8, 1),
    "int16": (read_int16, 2),
    "uint16": (read_uint16, 2),
    "int32": (read_int32, 4),
    "int64": (read_int64, 8),
    "float64": (read_float64, 8),
    "uuid": (read_uuid, 16),
}


def primitive(kind: str, *, flexible: bool, nullable: bool) -> tuple[Read, int]:
    """A reader for `kind`, and the least number of bytes it takes."""
    if kind in _FIXED:
        return _FIXED[kind]
    read_length, convert = _SIZED[kind]
    size_min = 1 if flexible else (2 if kind == "string" else 4)
    return sized(_compact_length if flexible else read_length, convert, nullable=nullable), size_min


def array_of(read: Read, size_min: int, *, flexible: bool, nullable: bool) -> Read:
    """A reader of arrays, whose counts are checked before anything is made of them."""
    read_count = _compact_length if flexible else _bytes_length
    # An element without fields would take no bytes; none of Kafka's messages has one.
    size_min = max(1, size_min)

    def read_array(reader: Reader) -> Any:
        claimed = read_count(reader)
        if claimed < 0:
            if nullable and claimed == -1:
                return None
            raise MalformedMessageError(f"{claimed} elements at byte {reader.position}, where there is no null")
        return [read(reader) for _ in range(reader.count(claimed, size_min))]

    return read_array
