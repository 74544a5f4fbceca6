"""The encoder of Kafka's messages: the mirror image of the decoder.

What is written is a list of pieces. Numbers and strings become small `bytes`; record batches stay the views that they
are, from wherever they are mapped, and go to the socket as they are. `assemble` joins the small ones.
"""

from collections.abc import Callable
from itertools import groupby
from struct import Struct
from typing import Any, TypeAlias

from logbrook.protocol.schema import ApiMessage, Field, Message

Piece: TypeAlias = bytes | bytearray | memoryview
Pieces: TypeAlias = list[Piece]
Write: TypeAlias = Callable[[Pieces, Any], None]

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_WRITERS: dict[tuple[type[Message], int], Write] = {}
_SMALL_UVARINTS = [bytes([value]) for value in range(0x80)]


def encode(message: ApiMessage, version: int) -> Pieces:
    """The message in the given version. Fields that the version does not have are left out."""
    pieces: Pieces = []
    message_writer(type(message), version, version >= message.FLEXIBLE_SINCE)(pieces, message)
    return pieces


def assemble(pieces: Pieces) -> tuple[Pieces, int]:
    """The same bytes in few pieces, and how many bytes they are: small ones are joined, views are left alone."""
    joined: Pieces = []
    size = 0
    for is_view, group in groupby(pieces, key=_is_view):
        run: Pieces = list(group)
        if not is_view:
            run = [b"".join(run)]
        joined += run
        size += sum(map(len, run))
    return joined, size


def uvarint(value: int) -> bytes:
    if value < 0x80:
        return _SMALL_UVARINTS[value]
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def message_writer(message: type[Message], version: int, flexible: bool) -> Write:
    """A writer of one version of a message or of a part of one."""
    known = _WRITERS.get((message, version))
    if known is None:
        known = _WRITERS[message, version] = _make_writer(message, version, flexible)
    return known


def _make_writer(message: type[Message], version: int, flexible: bool) -> Write:
    here = [field for field in message.FIELDS if version in field.versions]
    fields = [(field.name, _field_writer(field, version, flexible)) for field in here if field.tag is None]
    tagged = [
        (field.name, field.tag, field.default, _field_writer(field, version, flexible))
        for field in sorted(here, key=lambda field: field.tag or 0)
        if field.tag is not None
    ]

    def write(pieces: Pieces, value: Any) -> None:
        for name, write_field in fields:
            write_field(pieces, getattr(value, name))
        if flexible:
            present = [one for one in tagged if (told := getattr(value, one[0])) != one[2] and told != []]
            pieces.append(uvarint(len(present)))
            for name, tag, _, write_field in present:
                inner: Pieces = []
                write_field(inner, getattr(value, name))
                data = b"".join(inner)
                pieces += (uvarint(tag), uvarint(len(data)), data)

    return write


def _field_writer(field: Field, version: int, flexible: bool) -> Write:
    nullable = field.nullable is not None and version in field.nullable
    write: Write
    if isinstance(field.kind, str):
        write = _primitive(field.kind, flexible)
    else:
        write = message_writer(field.kind, version, flexible)
        if nullable and not field.array:
            return _or_null(write)
    write = _array_of(write, flexible) if field.array else write
    return write if nullable or field.tag is not None else _never_null(write, field.name)


def _never_null(write: Write, name: str) -> Write:
    def write_checked(pieces: Pieces, value: Any) -> None:
        assert value is not None, f"{name} is not nullable in this version"
        write(pieces, value)

    return write_checked


def _or_null(write: Write) -> Write:
    def write_nullable(pieces: Pieces, value: Any) -> None:
        pieces.append(b"\xff" if value is None else b"\x01")
        if value is not None:
            write(pieces, value)

    return write_nullable


def _primitive(kind: str, flexible: bool) -> Write:
    if kind in _FIXED:
        return _FIXED[kind]
    if kind == "string":
        return _write_compact_string if flexible else _write_string
    return _sized(flexible, _add_records if kind == "records" else _add_bytes)


def _fixed(code: str) -> Write:
    pack = Struct(f">{code}").pack

    def write(pieces: Pieces, value: Any) -> None:
        pieces.append(pack(value))

    return write


def _write_uuid(pieces: Pieces, value: bytes) -> None:
    assert len(value) == 16
    pieces.append(value)


def _write_string(pieces: Pieces, value: str | None) -> None:
    if value is None:
        pieces.append(_INT16.pack(-1))
        return
    data = value.encode()
    pieces.append(_INT16.pack(len(data)) + data)


def _write_compact_string(pieces: Pieces, value: str | None) -> None:
    if value is None:
        pieces.append(b"\x00")
        return
    data = value.encode()
    pieces.append(uvarint(len(data) + 1) + data)


def _length(flexible: bool, length: int) -> bytes:
    return uvarint(length + 1) if flexible else _INT32.pack(length)


def _sized(flexible: bool, add: Callable[[Any], Pieces]) -> Write:
    def write(pieces: Pieces, value: Any) -> None:
        if value is None:
            pieces.append(_length(flexible, -1))
            return
        data = add(value)
        pieces.append(_length(flexible, sum(map(len, data))))
        pieces += data

    return write


def _add_bytes(value: bytes) -> Pieces:
    return [bytes(value)]


def _add_records(value: Any) -> Pieces:
    return [memoryview(value)] if isinstance(value, bytes | bytearray | memoryview) else list(value)


def _array_of(write: Write, flexible: bool) -> Write:
    def write_array(pieces: Pieces, values: Any) -> None:
        if values is None:
            pieces.append(_length(flexible, -1))
            return
        pieces.append(_length(flexible, len(values)))
        for value in values:
            write(pieces, value)

    return write_array


def _is_view(piece: Piece) -> bool:
    return type(piece) is memoryview


_FIXED: dict[str, Write] = {
    "bool": _fixed("?"),
    "int8": _fixed("b"),
    "int16": _fixed("h"),
    "uint16": _fixed("H"),
    "int32": _fixed("i"),
    "int64": _fixed("q"),
    "float64": _fixed("d"),
    "uuid": _write_uuid,
}
