"""Decoder of Kafka messages: one compiled function per message class and version.

The function is generated as source text on first use, because a produce request is decoded for every batch and a loop
over field descriptions costs three times as much. For `PartitionProduceData` version 9 it is:

    def read(reader):
        data, position, end = reader.data, reader.position, reader.end
        value = new(message)
        value.index, = unpack_i(data, position)
        position += 4
        length = data[position] - 1
        ...
        value.records = data[position - length:position]
        ...
        return value

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
        cached = _READERS[message, version] = _compile_reader(message, version, flexible)
    return cached


def _compile_reader(message: type[Message], version: int, flexible: bool) -> tuple[Read, int]:
    present = [field for field in message.FIELDS if version in field.versions]
    tagged = {
        field.tag: (field.name, _field_reader(field, version, flexible)[0])
        for field in present
        if field.tag is not None
    }
    names: dict[str, Any] = {"new": message.__new__, "message": message, "uvarint": read_uvarint}
    lines = ["data, position, end = reader.data, reader.position, reader.end", "value = new(message)"]
    for field in message.FIELDS:
        if field not in present or field.tag is not None:
            names[f"default_{field.name}"] = field.default
            lines.append(f"value.{field.name} = default_{field.name}")
    size_min = int(flexible)
    untagged = [field for field in present if field.tag is None]
    for is_fixed, group in groupby(untagged, key=attrgetter("is_fixed_size")):
        if is_fixed:
            size_min += _add_fixed(lines, names, list(group))
        else:
            for field in group:
                size_min += _add_field(lines, names, field, version, flexible)
    lines.append("reader.position = position")
    if flexible:
        names["read_tags"], names["tagged"] = _read_tags, tagged
        lines += ["if data[position]:", " read_tags(reader, value, tagged)", "else:", " reader.position = position + 1"]
    lines.append("return value")
    source = "def read(reader):\n" + "".join(f" {line}\n" for line in lines)
    exec(compile(source, f"<decoder of {message.__name__} version {version}>", "exec"), names)
    return names["read"], size_min


def _add_fixed(lines: list[str], names: dict[str, Any], fields: Sequence[Field]) -> int:
    """Unpack fixed-size fields that follow each other in one call. Returns their size in bytes."""
    packed = struct.Struct(">" + "".join(FIXED_SIZE_CODES[str(field.kind)] for field in fields))
    unpack = f"unpack_{fields[0].name}"
    names[unpack] = packed.unpack_from
    targets = "".join(f"value.{field.name}, " for field in fields)
    lines += [f"{targets}= {unpack}(data, position)", f"position += {packed.size}"]
    return packed.size


def _add_field(lines: list[str], names: dict[str, Any], field: Field, version: int, flexible: bool) -> int:
    """Read a field of variable size. Returns the least number of bytes it takes."""
    target, read = f"value.{field.name}", f"read_{field.name}"
    names[read], size_min = _field_reader(field, version, flexible)
    is_nullable = field.is_nullable(version)
    if flexible and (field.array or field.kind in _CONVERSIONS):
        names["refuse"] = _refuse_length
        lines += [
            "length = data[position] - 1",
            "position += 1",
            "if length >= 127:",
            " reader.position = position - 1",
            " length = uvarint(reader) - 1",
            " position = reader.position",
            "if length < 0:",
            f" {target} = None" if is_nullable else " refuse(-1, position, end)",
            "else:",
        ]
        if field.array:
            names[read], element_size_min = _element_reader(field, version, flexible)
            lines += [
                " reader.position = position",
                f" {target} = [{read}(reader) for _ in range(reader.count(length, {element_size_min}))]",
                " position = reader.position",
            ]
        else:
            converted = _CONVERSIONS[str(field.kind)].format("data[position - length:position]")
            lines += [
                " position += length",
                " if position > end: refuse(length, position - length, end)",
                f" {target} = {converted}",
            ]
    else:
        lines += ["reader.position = position", f"{target} = {read}(reader)", "position = reader.position"]
    return size_min


def _refuse_length(length: int, position: int, end: int) -> None:
    """Raises MalformedMessageError."""
    if length < 0:
        raise MalformedMessageError(f"null at byte {position}, in a field that is not nullable")
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
