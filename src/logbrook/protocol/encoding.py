"""Encoder of Kafka messages: one compiled function per message class and version, as in `decoding`.

A message is encoded to a list of buffers. Numbers and strings become `bytes`; record batches stay the memoryviews (of
pooled buffers, for example) or the regions of files that they are. `assemble` joins the rest.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter
from struct import Struct
from typing import Any, TypeAlias, cast

from logbrook.ports import FileRegion
from logbrook.protocol.schema import FIXED_SIZE_CODES, ApiMessage, Field, Message

Piece: TypeAlias = bytes | bytearray | memoryview
Pieces: TypeAlias = list[Piece]
# Only responses have regions of files.
ResponsePieces: TypeAlias = list[Piece | FileRegion]
# The types of pieces that are not regions of files.
IN_MEMORY: frozenset[type] = frozenset({bytes, bytearray, memoryview})
_JOINED: frozenset[type] = frozenset({bytes, bytearray})
Write: TypeAlias = Callable[[Pieces, Any], None]

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_WRITERS: dict[tuple[type[Message], int], Write] = {}
_SMALL_UVARINTS = [bytes([value]) for value in range(0x80)]


def encode(message: ApiMessage, version: int) -> Pieces:
    """Return the message in the given version, without the fields that the version does not have."""
    pieces: Pieces = []
    kind = type(message)
    write = _WRITERS.get((kind, version)) or message_writer(kind, version, version >= message.FLEXIBLE_SINCE)
    write(pieces, message)
    return pieces


def assemble(pieces: Pieces) -> tuple[Pieces, int]:
    """Return the same bytes in few pieces, and their number: `bytes` are joined, memoryviews and regions are kept."""
    if _JOINED.issuperset(map(type, pieces)):
        whole = b"".join(pieces)
        return [whole] if whole else [], len(whole)
    joined: Pieces = []
    run: list[bytes] = []
    size = 0
    for piece in pieces:
        size += len(piece)
        if type(piece) in _JOINED:
            run.append(cast(bytes, piece))
            continue
        if run:
            joined.append(b"".join(run))
            run = []
        joined.append(piece)
    if run:
        joined.append(b"".join(run))
    return joined, size


def uvarint(value: int) -> bytes:
    if value < 0x80:
        return _SMALL_UVARINTS[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _compact_length(length: int) -> bytes:
    return uvarint(length + 1)


def message_writer(message: type[Message], version: int, flexible: bool) -> Write:
    """Return the writer of one version of a message or nested struct."""
    cached = _WRITERS.get((message, version))
    if cached is None:
        cached = _WRITERS[message, version] = _compile_writer(message, version, flexible)
    return cached


def _compile_writer(message: type[Message], version: int, flexible: bool) -> Write:
    present = [field for field in message.FIELDS if version in field.versions]
    untagged = [field for field in present if field.tag is None]
    tagged = [
        (field.name, field.tag, field.default, _field_writer(field, version, flexible))
        for field in sorted(present, key=lambda field: field.tag or 0)
        if field.tag is not None
    ]
    names: dict[str, Any] = {"uvarint": uvarint, "small": _SMALL_UVARINTS}
    lines: list[str] = []
    for is_fixed, group in groupby(untagged, key=attrgetter("is_fixed_size")):
        if is_fixed:
            _add_fixed(lines, names, list(group))
        else:
            for field in group:
                _add_field(lines, names, field, version, flexible)
    if tagged:
        # Most messages have the defaults in all tagged fields, the very objects.
        names["write_tags"] = _tags_writer(tagged)
        names |= {f"default_{name}": default for name, _, default, _ in tagged}
        is_default = " and ".join(f"value.{name} is default_{name}" for name, *_ in tagged)
        lines += [f"if {is_default}:", " pieces.append(b'\\0')", "else:", " write_tags(pieces, value)"]
    elif flexible:
        lines.append("pieces.append(b'\\0')")
    source = "def write(pieces, value):\n" + "".join(f" {line}\n" for line in lines or ["pass"])
    exec(compile(source, f"<encoder of {message.__name__} version {version}>", "exec"), names)
    writer: Write = names["write"]
    return writer


def _add_fixed(lines: list[str], names: dict[str, Any], fields: Sequence[Field]) -> None:
    """Pack fixed-size fields that follow each other in one call."""
    pack = f"pack_{fields[0].name}"
    names[pack] = Struct(">" + "".join(FIXED_SIZE_CODES[str(field.kind)] for field in fields)).pack
    lines += [f"assert len(value.{field.name}) == 16" for field in fields if field.kind == "uuid"]
    lines.append(f"pieces.append({pack}({', '.join(f'value.{field.name}' for field in fields)}))")


def _add_field(lines: list[str], names: dict[str, Any], field: Field, version: int, flexible: bool) -> None:
    """Write a field of variable size; the code for the kinds that hot messages have is inlined."""
    write = f"write_{field.name}"
    is_nullable = field.is_nullable(version)
    is_struct_array = field.array and not isinstance(field.kind, str)
    is_string = field.kind == "string" and not field.array
    if not flexible or is_nullable or not (is_struct_array or is_string):
        names[write] = _field_writer(field, version, flexible)
        if flexible and is_nullable and is_struct_array:
            # Most are empty.
            lines += [
                f"items = value.{field.name}",
                "if items is not None and not items: pieces.append(b'\\1')",
                "else:",
            ]
            lines.append(f" {write}(pieces, items)")
        elif flexible and field.kind == "records":
            # Most are one slice of a segment.
            lines += [
                f"items = value.{field.name}",
                "if type(items) is list and len(items) == 1:",
                " length = len(items[0]) + 1",
                " pieces.append(small[length] if length < 128 else uvarint(length))",
                " pieces.append(items[0])",
                "else:",
                f" {write}(pieces, items)",
            ]
        else:
            lines.append(f"{write}(pieces, value.{field.name})")
        return
    lines += [
        f"items = value.{field.name}",
        f"assert items is not None, '{field.name} is not nullable in this version'",
    ]
    if is_string:
        lines.append("items = items.encode()")
    lines += ["length = len(items) + 1", "pieces.append(small[length] if length < 128 else uvarint(length))"]
    if is_string:
        lines.append("pieces.append(items)")
    else:
        assert not isinstance(field.kind, str)
        names[write] = message_writer(field.kind, version, flexible)
        lines += ["for item in items:", f" {write}(pieces, item)"]


def _tags_writer(tagged: Sequence[tuple[str, int, Any, Write]]) -> Write:
    """Return the writer of the tagged fields that do not have their default value."""

    def write(pieces: Pieces, value: Any) -> None:
        present = [field for field in tagged if (content := getattr(value, field[0])) != field[2] and content != []]
        pieces.append(uvarint(len(present)))
        for name, tag, _, write_field in present:
            inner: Pieces = []
            write_field(inner, getattr(value, name))
            data = b"".join(inner)
            pieces += (uvarint(tag), uvarint(len(data)), data)

    return write


def _field_writer(field: Field, version: int, flexible: bool) -> Write:
    nullable = field.is_nullable(version)
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
    return _sized(flexible, _add_records if kind == "records" else lambda value: [bytes(value)])


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
    return _compact_length(length) if flexible else _INT32.pack(length)


def _sized(flexible: bool, add: Callable[[Any], Pieces]) -> Write:
    def write(pieces: Pieces, value: Any) -> None:
        if value is None:
            pieces.append(_length(flexible, -1))
            return
        data = add(value)
        pieces.append(_length(flexible, sum(map(len, data))))
        pieces += data

    return write


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


_FIXED: dict[str, Write] = {
    **{kind: _fixed(code) for kind, code in FIXED_SIZE_CODES.items()},
    "uuid": _write_uuid,
}
