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
        source = _WriterSource(version, flexible)
        source.add_struct(message, 0)
        cached = _WRITERS[message, version] = source.compile(message.__name__)
    return cached


class _WriterSource:
    """The source text of a writer, and the objects that it names.

    The variable `value<depth>` holds the struct whose lines are indented by `depth`.
    """

    def __init__(self, version: int, flexible: bool) -> None:
        self._version = version
        self._flexible = flexible
        self._names: dict[str, Any] = {"uvarint": uvarint, "small": _SMALL_UVARINTS, "pack_length": _INT32.pack}
        self._lines: list[str] = []

    def compile(self, name: str) -> Write:
        source = "def write(pieces, value0):\n" + "".join(f" {line}\n" for line in self._lines or ["pass"])
        exec(compile(source, f"<encoder of {name} version {self._version}>", "exec"), self._names)
        write: Write = self._names["write"]
        return write

    def add_struct(self, message: type[Message], depth: int) -> None:
        present = [field for field in message.FIELDS if self._version in field.versions]
        untagged = [field for field in present if field.tag is None]
        for is_fixed, group in groupby(untagged, key=attrgetter("is_fixed_size")):
            if is_fixed:
                self._add_fixed(list(group), depth)
            else:
                for field in group:
                    self._add_field(field, depth)
        tagged = [
            (field.name, field.tag, field.default, _field_writer(field, self._version, self._flexible))
            for field in sorted(present, key=lambda field: field.tag or 0)
            if field.tag is not None
        ]
        if tagged:
            # Most messages have the defaults in all tagged fields, the very objects.
            value = f"value{depth}"
            is_default = " and ".join(f"{value}.{name} is {self._name(default)}" for name, _, default, _ in tagged)
            write = self._name(_tags_writer(tagged))
            self._add(depth, f"if {is_default}: pieces.append(b'\\0')", f"else: {write}(pieces, {value})")
        elif self._flexible:
            self._add(depth, "pieces.append(b'\\0')")

    def _add_fixed(self, fields: Sequence[Field], depth: int) -> None:
        """Pack fixed-size fields that follow each other in one call."""
        pack = self._name(Struct(">" + "".join(FIXED_SIZE_CODES[str(field.kind)] for field in fields)).pack)
        values = [f"value{depth}.{field.name}" for field in fields]
        for field, value in zip(fields, values, strict=True):
            if field.kind == "uuid":
                self._add(depth, f"assert len({value}) == 16")
        self._add(depth, f"pieces.append({pack}({', '.join(values)}))")

    def _add_field(self, field: Field, depth: int) -> None:
        """Write a field of variable size. Lines are added for the kinds that hot messages have; others are called."""
        content = f"value{depth}.{field.name}"
        is_struct_array = field.array and not isinstance(field.kind, str)
        is_string = self._flexible and field.kind == "string" and not field.array
        if not is_struct_array and not is_string:
            write = self._name(_field_writer(field, self._version, self._flexible))
            if self._flexible and field.kind == "records":
                # Most are one slice of a segment.
                self._add(depth, f"items = {content}", "if type(items) is list and len(items) == 1:")
                self._add_length("items[0]", depth + 1)
                self._add(depth + 1, "pieces.append(items[0])")
                self._add(depth, f"else: {write}(pieces, items)")
            else:
                self._add(depth, f"{write}(pieces, {content})")
            return
        items = f"items{depth}"
        self._add(depth, f"{items} = {content}")
        if field.is_nullable(self._version):
            null = self._name(_length(self._flexible, -1))
            self._add(depth, f"if {items} is None: pieces.append({null})", "else:")
            depth += 1
        else:
            self._add(depth, f"assert {items} is not None, '{field.name} is not nullable in this version'")
        if is_string:
            self._add(depth, f"{items} = {items}.encode()")
        self._add_length(items, depth)
        if isinstance(field.kind, str):
            self._add(depth, f"pieces.append({items})")
        else:
            self._add(depth, f"for value{depth + 1} in {items}:")
            lines = len(self._lines)
            self.add_struct(field.kind, depth + 1)
            if len(self._lines) == lines:
                self._add(depth + 1, "pass")

    def _add_length(self, items: str, depth: int) -> None:
        if self._flexible:
            self._add(
                depth,
                f"length = len({items}) + 1",
                "pieces.append(small[length] if length < 128 else uvarint(length))",
            )
        else:
            self._add(depth, f"pieces.append(pack_length(len({items})))")

    def _add(self, depth: int, *lines: str) -> None:
        self._lines += [" " * depth + line for line in lines]

    def _name(self, value: object) -> str:
        """Return a name for an object that the source refers to."""
        name = f"name{len(self._names)}"
        self._names[name] = value
        return name


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
