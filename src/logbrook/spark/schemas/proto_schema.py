"""Protobuf schemas: a parser of .proto files, and the Spark types of messages.

Types follow Spark's from_protobuf with unsigned numbers widened: uint32 is a bigint, uint64 a decimal(20,0), an enum
the name of its value, `google.protobuf.Timestamp` a timestamp, a map a map, and any other message a struct. Fields
without presence are never null: they have the default of their type. Groups, extensions and recursive messages are
refused.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from logbrook.spark.schemas.errors import InvalidSchemaError

SCALARS: dict[str, DataType] = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), IntegerType()),
    **dict.fromkeys(("int64", "sint64", "sfixed64", "uint32", "fixed32"), LongType()),
    **dict.fromkeys(("uint64", "fixed64"), DecimalType(20, 0)),
    "bool": BooleanType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "bytes": BinaryType(),
}
TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPED = {
    "Double": "double",
    "Float": "float",
    "Int64": "int64",
    "UInt64": "uint64",
    "Int32": "int32",
    "UInt32": "uint32",
    "Bool": "bool",
    "String": "string",
    "Bytes": "bytes",
}
# The well-known types, which registries do not store.
_WELL_KNOWN = (
    'syntax = "proto3"; package google.protobuf; '
    "message Timestamp { int64 seconds = 1; int32 nanos = 2; } "
    "message Duration { int64 seconds = 1; int32 nanos = 2; } "
    "message Any { string type_url = 1; bytes value = 2; } "
    "message Empty {} message FieldMask { repeated string paths = 1; } "
    + "".join(f"message {name}Value {{ {type_} value = 1; }} " for name, type_ in _WRAPPED.items())
)
_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/
    |(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<word>\.?[A-Za-z_][A-Za-z0-9_.]*|-?[0-9][A-Za-z0-9_.+-]*|[{}\[\]()<>=;,:.\-])""",
    re.DOTALL | re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class ProtoField:
    """A field. `type_name` is that of the file until `ProtoTypes` resolves it; `key_type` is set for a map.

    `oneof` is the name of the oneof that the field is in, or None.
    """

    name: str
    number: int
    type_name: str
    is_repeated: bool = False
    has_presence: bool = False
    key_type: str | None = None
    is_required: bool = False
    oneof: str | None = None


@dataclass(slots=True)
class ProtoMessage:
    name: str
    fields: list[ProtoField] = field(default_factory=list)
    messages: list["ProtoMessage"] = field(default_factory=list)
    enums: list["ProtoEnum"] = field(default_factory=list)


@dataclass(slots=True)
class ProtoEnum:
    """An enum: the names of its values by number, of which the first counts, and the numbers of all names."""

    name: str
    values: dict[int, str] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class ProtoFile:
    package: str = ""
    is_proto3: bool = False
    messages: list[ProtoMessage] = field(default_factory=list)
    enums: list[ProtoEnum] = field(default_factory=list)

    def path_of(self, name: str) -> list[int]:
        """Return the indexes at which `message_at` has the message of this full name, which must exist."""
        path = _path_to(name, self.messages)
        assert path is not None, f"there is no message {name}"
        return path

    def message_at(self, path: Sequence[int]) -> ProtoMessage | None:
        """Return the message at these indexes of messages and of those nested in them."""
        messages, message = self.messages, None
        for index in path:
            if not 0 <= index < len(messages):
                return None
            message = messages[index]
            messages = message.messages
        return message


def _path_to(name: str, messages: Sequence[ProtoMessage]) -> list[int] | None:
    for index, message in enumerate(messages):
        if message.name == name:
            return [index]
        below = _path_to(name, message.messages)
        if below is not None:
            return [index, *below]
    return None


ProtoType: TypeAlias = ProtoMessage | ProtoEnum


class ProtoTypes:
    """The types of a file and of the files it imports, by their full names."""

    def __init__(self, file: ProtoFile, imported: Sequence[ProtoFile] = ()) -> None:
        self._types: dict[str, ProtoType] = {}
        for each_file in (parse_proto(_WELL_KNOWN), *imported, file):
            self._types |= {type_.name: type_ for type_ in _all_types(each_file.messages, each_file.enums)}

    def resolve(self, name: str, scope: str) -> str | ProtoType:
        """Return a scalar's name or the type that `name` means within `scope`. Raises InvalidSchemaError."""
        if name in SCALARS:
            return name
        if name.startswith("."):
            candidates = [name[1:]]
        else:
            parts = scope.split(".")
            candidates = [".".join([*parts[:length], name]) for length in range(len(parts), -1, -1)]
        for candidate in candidates:
            if candidate in self._types:
                return self._types[candidate]
        raise InvalidSchemaError(f"{scope} uses {name!r}, which is not defined in its file or in those it imports")

    def message(self, name: str) -> ProtoMessage:
        type_ = self._types.get(name)
        if not isinstance(type_, ProtoMessage):
            raise InvalidSchemaError(f"there is no message {name!r}")
        return type_


def message_type(message: ProtoMessage, types: ProtoTypes, above: tuple[str, ...] = ()) -> StructType:
    """Return the type of a message. Raises InvalidSchemaError."""
    if message.name in above:
        raise InvalidSchemaError(f"{message.name} contains itself; a column cannot be recursive")
    inner = (*above, message.name)
    return StructType([StructField(item.name, _field_type(item, message, types, inner)) for item in message.fields])


def _field_type(item: ProtoField, message: ProtoMessage, types: ProtoTypes, above: tuple[str, ...]) -> DataType:
    type_ = types.resolve(item.type_name, message.name)
    if isinstance(type_, str):
        value = SCALARS[type_]
    elif isinstance(type_, ProtoEnum):
        value = StringType()
    else:
        value = TimestampType() if type_.name == TIMESTAMP else message_type(type_, types, above)
    if item.key_type is not None:
        return MapType(SCALARS[item.key_type], value)
    return ArrayType(value) if item.is_repeated else value


def _all_types(messages: Sequence[ProtoMessage], enums: Sequence[ProtoEnum]) -> Iterator[ProtoType]:
    yield from enums
    for message in messages:
        yield message
        yield from _all_types(message.messages, message.enums)


def parse_proto(text: str) -> ProtoFile:
    """Parse a .proto file. Raises InvalidSchemaError."""
    return _ProtoParser(text).parse()


def types_of(text: str, references: Mapping[str, str] | None = None) -> tuple[ProtoFile, ProtoTypes]:
    """Parse a file and those it imports, given by name. Raises InvalidSchemaError."""
    file = parse_proto(text)
    return file, ProtoTypes(file, [parse_proto(reference) for reference in (references or {}).values()])


def reader_message(file: ProtoFile, name: str | None) -> ProtoMessage:
    """Return the message of a file by its name, with or without the package; by default the first one."""
    messages = [*file.messages]
    while name is not None and messages:
        message = messages.pop(0)
        if name in (message.name, message.name.removeprefix(f"{file.package}.")):
            return message
        messages += message.messages
    if name is not None or not file.messages:
        raise InvalidSchemaError(f"the schema has no message{'' if name is None else f' {name!r}'}")
    return file.messages[0]


class _ProtoParser:
    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._position = 0
        self._file = ProtoFile()

    def parse(self) -> ProtoFile:
        while self._position < len(self._tokens):
            match self._next():
                case "syntax":
                    self._expect("=")
                    self._file.is_proto3 = self._next().strip("\"'") == "proto3"
                    self._expect(";")
                case "edition":
                    # Fields of an edition have presence unless a feature says otherwise.
                    self._skip_statement()
                case "package":
                    self._file.package = self._next()
                    self._expect(";")
                case "message":
                    self._file.messages.append(self._message(self._file.package))
                case "enum":
                    self._file.enums.append(self._enum(self._file.package))
                case ";":
                    pass
                case _:
                    # import, option, extend, service
                    self._skip_statement()
        return self._file

    def _message(self, scope: str) -> ProtoMessage:
        message = ProtoMessage(_join(scope, self._next()))
        self._expect("{")
        while (token := self._next()) != "}":
            match token:
                case "message":
                    message.messages.append(self._message(message.name))
                case "enum":
                    message.enums.append(self._enum(message.name))
                case "oneof":
                    self._oneof(message)
                case "option" | "reserved" | "extensions" | "extend":
                    self._skip_statement()
                case ";":
                    pass
                case _:
                    message.fields.append(self._field(token))
        numbers = {item.number for item in message.fields}
        if len(numbers) != len(message.fields):
            raise InvalidSchemaError(f"{message.name} has two fields of one number")
        return message

    def _oneof(self, message: ProtoMessage) -> None:
        name = self._next()
        self._expect("{")
        while (token := self._next()) != "}":
            if token == "option":
                self._skip_statement()
            elif token != ";":
                message.fields.append(self._field(token, oneof=name))

    def _field(self, token: str, *, oneof: str | None = None) -> ProtoField:
        label = token if token in ("optional", "required", "repeated") else ""
        type_name = self._next() if label else token
        if type_name == "group":
            raise InvalidSchemaError("groups are not supported")
        key_type = None
        if type_name == "map" and self._peek() == "<":
            self._expect("<")
            key_type = self._next()
            self._expect(",")
            type_name = self._next()
            self._expect(">")
            if key_type not in SCALARS:
                raise InvalidSchemaError(f"{key_type} is not the type of a map's keys")
        name = self._next()
        self._expect("=")
        number = self._integer()
        self._skip_statement()
        return ProtoField(
            name,
            number,
            type_name,
            is_repeated=label == "repeated",
            has_presence=oneof is not None or label in ("optional", "required") or not self._file.is_proto3,
            key_type=key_type,
            is_required=label == "required",
            oneof=oneof,
        )

    def _enum(self, scope: str) -> ProtoEnum:
        enum = ProtoEnum(_join(scope, self._next()))
        self._expect("{")
        while (token := self._next()) != "}":
            if token in ("option", "reserved"):
                self._skip_statement()
            elif token != ";":
                self._expect("=")
                enum.numbers[token] = self._integer()
                enum.values.setdefault(enum.numbers[token], token)
                self._skip_statement()
        return enum

    def _skip_statement(self) -> None:
        """Skip to the semicolon, or to the end of the block, that ends a statement."""
        depth = 0
        while True:
            token = self._next()
            depth += (token in ("{", "[")) - (token in ("}", "]"))
            if depth == 0 and token in (";", "}"):
                return

    def _next(self) -> str:
        if self._position == len(self._tokens):
            raise InvalidSchemaError("the Protobuf schema ends within a statement")
        self._position += 1
        return self._tokens[self._position - 1]

    def _peek(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else ""

    def _expect(self, expected: str) -> None:
        token = self._next()
        if token != expected:
            raise InvalidSchemaError(f"the Protobuf schema has {token!r} where {expected!r} is expected")

    def _integer(self) -> int:
        token = self._next()
        if token == "-":
            return -self._integer()
        try:
            return int(token, 0)
        except ValueError:
            raise InvalidSchemaError(f"the Protobuf schema has {token!r} where a number is expected") from None


def _tokens(text: str) -> Iterator[str]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise InvalidSchemaError(
                f"the Protobuf schema has {text[position]!r} in line {text.count(chr(10), 0, position) + 1}"
            )
        position = match.end()
        token = match["text"] or match["word"]
        if token:
            yield token


def _join(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
