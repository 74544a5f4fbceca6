"""Decoder of Kafka messages: one compiled function per message class and version.

The function is generated as source text on first use, because a produce request is decoded for every batch and a loop
over field descriptions costs three times as much. Nested structs are read by the same function: an array of them is a
loop in it. For the partitions of a topic in a ProduceRequest of version 9:

    value2.partition_data = items3 = []
    for _ in range(reader.count(length, 6)):
     value4 = new(message)
     value4.index, = unpack(data, position)
     position += 4
     length = data[position] - 1
     ...
     value4.records = data[position - length:position]
     ...
     items3.append(value4)

Fixed-size fields that follow each other are unpacked in one call. Reads past the end raise struct.error or IndexError,
which `decode` turns into MalformedMessageError; every claimed length is checked before it is used.

Unknown tagged fields are skipped (KIP-482). Bytes after the end of a message are ignored, as in Kafka: librdkafka sends
three of them after a Metadata request of version 13 for all topics.
"""

import struct
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, TypeVar

from logbrook.protocol.errors import MalformedMessageError
from logbrook.protocol.reader import Read, Reader, array_of, primitive, read_int8, read_uvarint
from logbrook.protocol.schema import FIXED_SIZE_CODES, ApiMessage, Field, Message

A = TypeVar("A", bound=ApiMessage)

_INT32 = struct.Struct(">i")
_READERS: dict[tuple[type[Message], int], tuple[Read, int]] = {}
_CONVERSIONS = {"string": "str({}, 'utf-8')", "bytes": "bytes({})", "records": "{}"}


def decode(message: type[A], version: int, reader: Reader) -> A:
    """Return the message at the reader's position. Raises MalformedMessageError."""
    compiled = _READERS.get((message, version)) or message_reader(message, version, version >= message.FLEXIBLE_SINCE)
    try:
        decoded: A = compiled[0](reader)
    except (struct.error, IndexError):
        raise MalformedMessageError(f"{message.API_NAME}: the message ends at byte {reader.end}, in a field") from None
    except UnicodeDecodeError as error:
        raise MalformedMessageError(f"{message.API_NAME}: a string is not UTF-8: {error.reason}") from None
    return decoded


def message_reader(message: type[Message], version: int, flexible: bool) -> tuple[Read, int]:
    """Return the reader of one version of a message or nested struct, and the least number of bytes it takes."""
    cached = _READERS.get((message, version))
    if cached is None:
        source = _ReaderSource(version, flexible)
        size_min = source.add_struct(message, 0)
        cached = _READERS[message, version] = source.compile(message.__name__), size_min
    return cached


class _ReaderSource:
    """The source text of a reader, and the objects that it names.

    The variable `value<depth>` holds the struct whose lines are indented by `depth`. Methods that add lines return the
    least number of bytes that these lines read.
    """

    def __init__(self, version: int, flexible: bool) -> None:
        self._version = version
        self._flexible = flexible
        self._names: dict[str, Any] = {"uvarint": read_uvarint, "refuse": _refuse_length, "read_tags": _read_tags}
        self._lines = ["data, position, end = reader.data, reader.position, reader.end"]

    def compile(self, name: str) -> Read:
        lines = [*self._lines, "reader.position = position", "return value0"]
        source = "def read(reader):\n" + "".join(f" {line}\n" for line in lines)
        exec(compile(source, f"<decoder of {name} version {self._version}>", "exec"), self._names)
        read: Read = self._names["read"]
        return read

    def add_struct(self, message: type[Message], depth: int) -> int:
        value, present = f"value{depth}", [field for field in message.FIELDS if self._version in field.versions]
        self._add(depth, f"{value} = {self._name(message.__new__)}({self._name(message)})")
        for field in message.FIELDS:
            if field not in present or field.tag is not None:
                self._add(depth, f"{value}.{field.name} = {self._name(field.default)}")
        size_min = int(self._flexible)
        untagged = [field for field in present if field.tag is None]
        for is_fixed, group in groupby(untagged, key=attrgetter("is_fixed_size")):
            if is_fixed:
                size_min += self._add_fixed(list(group), depth)
            else:
                size_min += sum([self._add_field(field, depth) for field in group])
        if self._flexible:
            tagged = {
                field.tag: (field.name, _field_reader(field, self._version, flexible=True)[0])
                for field in present
                if field.tag is not None
            }
            self._add(
                depth,
                "if data[position]:",
                " reader.position = position",
                f" read_tags(reader, {value}, {self._name(tagged)})",
                " position = reader.position",
                "else: position += 1",
            )
        return size_min

    def _add_fixed(self, fields: Sequence[Field], depth: int) -> int:
        """Unpack fixed-size fields that follow each other in one call."""
        packed = struct.Struct(">" + "".join(FIXED_SIZE_CODES[str(field.kind)] for field in fields))
        targets = "".join(f"value{depth}.{field.name}, " for field in fields)
        unpack = self._name(packed.unpack_from)
        self._add(depth, f"{targets}= {unpack}(data, position)", f"position += {packed.size}")
        return packed.size

    def _add_field(self, field: Field, depth: int) -> int:
        """Read a field of variable size. Lines are added for the kinds that hot messages have; others are called."""
        target = f"value{depth}.{field.name}"
        is_struct_array = field.array and not isinstance(field.kind, str)
        if not is_struct_array and (field.array or not self._flexible or field.kind not in _CONVERSIONS):
            read, size_min = _field_reader(field, self._version, self._flexible)
            call = f"{self._name(read)}(reader)"
            self._add(depth, "reader.position = position", f"{target} = {call}", "position = reader.position")
            return size_min
        size_min = self._add_length(depth)
        is_refused = "length < -1" if field.is_nullable(self._version) else "length < 0"
        self._add(depth, f"if {is_refused}: refuse(length, position, end)", f"if length < 0: {target} = None", "else:")
        if is_struct_array:
            self._add_elements(field, depth + 1)
        else:
            content = _CONVERSIONS[str(field.kind)].format("data[position - length:position]")
            self._add(
                depth,
                " position += length",
                " if position > end: refuse(length, position - length, end)",
                f" {target} = {content}",
            )
        return size_min

    def _add_length(self, depth: int) -> int:
        if not self._flexible:
            self._add(depth, f"length, = {self._name(_INT32.unpack_from)}(data, position)", "position += 4")
            return _INT32.size
        self._add(
            depth,
            "length = data[position] - 1",
            "position += 1",
            "if length >= 127:",
            " reader.position = position - 1",
            " length = uvarint(reader) - 1",
            " position = reader.position",
        )
        return 1

    def _add_elements(self, field: Field, depth: int) -> None:
        """Read `length` structs into a list."""
        assert not isinstance(field.kind, str)
        items = f"items{depth}"
        self._add(depth, "reader.position = position", f"value{depth - 1}.{field.name} = {items} = []")
        loop = len(self._lines)
        # No element takes no bytes.
        size_min = max(1, self.add_struct(field.kind, depth + 1))
        self._lines.insert(loop, " " * depth + f"for _ in range(reader.count(length, {size_min})):")
        self._add(depth + 1, f"{items}.append(value{depth + 1})")

    def _add(self, depth: int, *lines: str) -> None:
        self._lines += [" " * depth + line for line in lines]

    def _name(self, value: object) -> str:
        """Return a name for an object that the source refers to."""
        name = f"name{len(self._names)}"
        self._names[name] = value
        return name


def _refuse_length(length: int, position: int, end: int) -> None:
    """Raises MalformedMessageError."""
    if length < 0:
        raise MalformedMessageError(f"length {length} at byte {position}, in a field that is not nullable")
    raise MalformedMessageError(f"{length} bytes are claimed at byte {position}, {end - position} are left")


def _read_tags(reader: Reader, decoded: Message, tagged: dict[int, tuple[str, Read]]) -> None:
    for _ in range(reader.count(read_uvarint(reader), 2)):
        tag = read_uvarint(reader)
        data = reader.take(read_uvarint(reader))
        if tag in tagged:
            name, read = tagged[tag]
            inner = Reader(data, elements_max=reader.elements_max)
            inner.elements = reader.elements
            setattr(decoded, name, read(inner))
            reader.elements = inner.elements
            if inner.remaining:
                raise MalformedMessageError(f"{inner.remaining} bytes follow tagged field {name}")


def _field_reader(field: Field, version: int, flexible: bool) -> tuple[Read, int]:
    nullable = field.is_nullable(version)
    if field.array:
        read, size_min = _element_reader(field, version, flexible)
        return array_of(read, size_min, flexible=flexible, nullable=nullable), 1 if flexible else 4
    if isinstance(field.kind, str):
        return primitive(field.kind, flexible=flexible, nullable=nullable)
    read, size_min = message_reader(field.kind, version, flexible)
    return (_nullable_struct(read), 1) if nullable else (read, size_min)


def _element_reader(field: Field, version: int, flexible: bool) -> tuple[Read, int]:
    """Return the reader of an array's elements, and the least number of bytes one takes: none takes no bytes."""
    if isinstance(field.kind, str):
        return primitive(field.kind, flexible=flexible, nullable=False)
    read, size_min = message_reader(field.kind, version, flexible)
    return read, max(1, size_min)


def _nullable_struct(read: Read) -> Read:
    """A nullable struct starts with a byte that is negative when it is null."""
    return lambda reader: None if read_int8(reader) < 0 else read(reader)
