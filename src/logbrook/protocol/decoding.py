"""The decoder of Kafka's messages, put together for each message and version from the fields it has.

Unknown tagged fields are skipped, as KIP-482 says. Bytes after the end of a message are passed over, as Kafka does:
librdkafka has been sending some (three, after a Metadata request of version 13 for all topics).
"""

from typing import TypeVar

from logbrook.protocol.errors import MalformedMessageError
from logbrook.protocol.reader import Read, Reader, array_of, primitive, read_int8, read_uvarint
from logbrook.protocol.schema import ApiMessage, Field, Message

A = TypeVar("A", bound=ApiMessage)

_READERS: dict[tuple[type[Message], int], tuple[Read, int]] = {}


def decode(message: type[A], version: int, reader: Reader) -> A:
    """The message at the reader's position. Raises MalformedMessageError."""
    read, _ = message_reader(message, version, version >= message.FLEXIBLE_SINCE)
    decoded: A = read(reader)
    return decoded


def skip_tags(reader: Reader) -> None:
    """Pass over tagged fields. Raises MalformedMessageError."""
    for _ in range(reader.count(read_uvarint(reader), 2)):
        read_uvarint(reader)
        reader.take(read_uvarint(reader))


def message_reader(message: type[Message], version: int, flexible: bool) -> tuple[Read, int]:
    """A reader of one version of a message or of a part of one, and the least number of bytes it takes."""
    known = _READERS.get((message, version))
    if known is None:
        known = _READERS[message, version] = _make_reader(message, version, flexible)
    return known


def _make_reader(message: type[Message], version: int, flexible: bool) -> tuple[Read, int]:
    here = [field for field in message.FIELDS if version in field.versions]
    readers = [(field.name, *_field_reader(field, version, flexible)) for field in here if field.tag is None]
    fields = [(name, read) for name, read, _ in readers]
    tagged = {
        field.tag: (field.name, _field_reader(field, version, flexible)[0]) for field in here if field.tag is not None
    }
    untold = [(field.name, field.default) for field in message.FIELDS if field not in here or field.tag is not None]
    size_min = sum(size for _, _, size in readers) + flexible
    new = message.__new__

    def read(reader: Reader) -> Message:
        decoded = new(message)
        for name, default in untold:
            setattr(decoded, name, default)
        for name, read_field in fields:
            setattr(decoded, name, read_field(reader))
        if flexible:
            _read_tags(reader, decoded, tagged)
        return decoded

    return read, size_min


def _read_tags(reader: Reader, decoded: Message, tagged: dict[int, tuple[str, Read]]) -> None:
    tags = read_uvarint(reader)
    if not tags:
        return
    for _ in range(reader.count(tags, 2)):
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
    nullable = field.nullable is not None and version in field.nullable
    read: Read
    if isinstance(field.kind, str):
        read, size_min = primitive(field.kind, flexible=flexible, nullable=nullable and not field.array)
    else:
        read, size_min = message_reader(field.kind, version, flexible)
        if nullable and not field.array:
            return _or_null(read), 1
    if field.array:
        return array_of(read, size_min, flexible=flexible, nullable=nullable), 1 if flexible else 4
    return read, size_min


def _or_null(read: Read) -> Read:
    """A struct that may be missing has a byte in front: negative when it is."""
    return lambda reader: None if read_int8(reader) < 0 else read(reader)
