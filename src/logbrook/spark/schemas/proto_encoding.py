"""Encoding of an Arrow column as Protobuf messages of one type, in the wire format of a schema registry.

The message's fields are matched with the column's by name. A field that the column lacks is absent; a column that the
message lacks is refused, because it would be lost. Null is an absent field, so elements of lists and maps, and fields
that proto2 requires, must not be null, and of a oneof at most one column may have a value.

Fields are written in the order of their numbers, and without presence only if they are not the default, as Google's
libraries do. Repeated numbers are packed: readers accept both forms.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logbrook.spark.schemas.encoding_columns import EncodingColumns, binary_array
from logbrook.spark.schemas.errors import IncompatibleSchemaError, InvalidSchemaError
from logbrook.spark.schemas.kernels import proto_encode as op
from logbrook.spark.schemas.kernels.avro_encode import EncodedOutput, EncodeProgram
from logbrook.spark.schemas.kernels.protobuf import FIXED32, FIXED64, LENGTH, VARINT
from logbrook.spark.schemas.proto_schema import (
    TIMESTAMP,
    ProtoEnum,
    ProtoField,
    ProtoFile,
    ProtoMessage,
    ProtoType,
    ProtoTypes,
)

_INSTRUCTIONS_MAX = 10_000
_NO_NODE = -1
# The types that a column is converted to.
_VARINTS = {
    **dict.fromkeys(("int32", "sint32"), pa.int32()),
    **dict.fromkeys(("int64", "sint64"), pa.int64()),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
}
_FIXED = {
    "sfixed32": pa.int32(),
    "fixed32": pa.uint32(),
    "sfixed64": pa.int64(),
    "fixed64": pa.uint64(),
    "float": pa.float32(),
    "double": pa.float64(),
}
_WIRE_TYPE_BITS = 3


class ProtobufWriter:
    """Encodes messages of the type `message`, which is one of `file`."""

    def __init__(self, file: ProtoFile, types: ProtoTypes, message: ProtoMessage, schema_id: int) -> None:
        self._types = types
        self._message = message
        self._schema_id = schema_id
        self._prefix = struct.pack(">bI", 0, schema_id) + _path_bytes(file.path_of(message.name))

    def encode(self, values: Any) -> Any:
        """Return the values of an array as bytes, null for null.

        Raises IncompatibleSchemaError if the column or one of its values does not fit the message.
        """
        compiler = _ProtobufCompiler(self._types)
        compiler.write_root(self._message, values)
        columns = compiler.columns
        prefix = np.frombuffer(bytearray(self._prefix), np.uint8)
        bytes_max = columns.bytes_max + len(values) * prefix.size
        output = EncodedOutput(np.empty(bytes_max, np.uint8), np.empty(len(values) + 1, np.int64))
        program = EncodeProgram(np.array(compiler.instructions, np.int64), np.zeros(op.STACK_LENGTH, np.int64))
        row = op.encode_protobuf(program, np.array(columns.nodes, np.int64), len(values), prefix, output)
        if row != op.ALL_ROWS:
            raise _not_allowed(values[row], self._schema_id)
        return binary_array(values, output.data, output.ends)


class _ProtobufCompiler:
    """Emits the instructions that write one message, last field first, and collects its columns."""

    def __init__(self, types: ProtoTypes) -> None:
        self.instructions: list[list[int]] = []
        self.columns = EncodingColumns(op.VALUE_BYTES_MAX)
        self._types = types
        self._depth = 0

    def write_root(self, message: ProtoMessage, array: Any) -> None:
        """Emit the program. A null value has no bytes: it is a record without a value."""
        self.columns.add(array)
        self._write_fields(message, array, "value")
        self._emit(op.END)

    def _write_fields(self, message: ProtoMessage, array: Any, path: str) -> None:
        if not pa.types.is_struct(array.type):
            raise _misfit(array, path, message.name)
        names = [field.name for field in array.type]
        unknown = set(names) - {item.name for item in message.fields}
        if unknown:
            raise IncompatibleSchemaError(f"{path}: {message.name} has no field {', '.join(sorted(unknown))}")
        _check_oneofs(message, array, path)
        for item in sorted(message.fields, key=lambda item: item.number, reverse=True):
            if item.name in names:
                self._write_field(item, message, array.field(names.index(item.name)), f"{path}.{item.name}")
            elif item.is_required:
                raise IncompatibleSchemaError(f"{path}: the column {item.name!r} is missing, and is required")

    def _write_field(self, item: ProtoField, message: ProtoMessage, array: Any, path: str) -> None:
        type_ = self._types.resolve(item.type_name, message.name)
        if item.key_type is not None:
            self._write_map(item, type_, array, path)
        elif item.is_repeated:
            self._write_repeated(item, type_, array, path)
        else:
            with self._unless_null(array, is_required=item.is_required):
                self._write_value(type_, array, path, item.number, skips_default=not item.has_presence)

    def _write_repeated(self, item: ProtoField, type_: str | ProtoType, array: Any, path: str) -> None:
        if not pa.types.is_list(array.type):
            raise _misfit(array, path, f"repeated {item.type_name}")
        is_packed = isinstance(type_, ProtoEnum) or (isinstance(type_, str) and _wire_type(type_) != LENGTH)
        with self._list(array, _tag(item.number, LENGTH) if is_packed else 0):
            elements = array.values
            with self._unless_null(elements, is_required=True):
                self._write_value(type_, elements, f"{path}[]", 0 if is_packed else item.number)

    def _write_map(self, item: ProtoField, type_: str | ProtoType, array: Any, path: str) -> None:
        if not pa.types.is_map(array.type):
            raise _misfit(array, path, "map")
        assert item.key_type is not None
        with self._list(array, 0), self._submessage(item.number):
            # An entry is a message with the fields key = 1 and value = 2.
            with self._unless_null(array.items, is_required=True):
                self._write_value(type_, array.items, f"{path} values", 2)
            self._write_value(item.key_type, array.keys, f"{path} keys", 1)

    def _write_value(
        self, type_: str | ProtoType, array: Any, path: str, number: int, *, skips_default: bool = False
    ) -> None:
        """Emit the instructions for a value that is not null. `number` is that of its field, 0 in a packed list."""
        if isinstance(type_, ProtoEnum):
            self._write_enum(type_, array, path, number, skips_default)
        elif isinstance(type_, str):
            self._write_scalar(type_, array, path, number, skips_default)
        elif type_.name == TIMESTAMP:
            if not pa.types.is_timestamp(array.type) or array.type.tz is None:
                raise _misfit(array, path, TIMESTAMP)
            numbers = array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64())
            self._emit(op.TIMESTAMP, self.columns.add_numbers(numbers, 8), _tag(number, LENGTH))
        else:
            with self._submessage(number):
                self._write_fields(type_, array, path)

    def _write_enum(self, type_: ProtoEnum, array: Any, path: str, number: int, skips_default: bool) -> None:
        if not pa.types.is_string(array.type):
            raise _misfit(array, path, type_.name)
        indexes = pc.index_in(array, pa.array(list(type_.numbers), pa.string()))
        numbers = pa.array(list(type_.numbers.values()), pa.int64()).take(indexes)
        # A text that is not a name is null now, and refused.
        node = self.columns.add_numbers(pc.if_else(array.is_null(), pa.scalar(0, pa.int64()), numbers), 8)
        self._emit(op.REQUIRED, node)
        self._emit(op.VARINT, node, _tag(number, VARINT), skips_default=skips_default)

    def _write_scalar(self, type_: str, array: Any, path: str, number: int, skips_default: bool) -> None:
        tag = _tag(number, _wire_type(type_))
        if type_ in ("string", "bytes"):
            is_text = type_ == "string"
            if not (pa.types.is_string(array.type) if is_text else pa.types.is_binary(array.type)):
                raise _misfit(array, path, type_)
            self._emit(op.LENGTH_PREFIXED, self.columns.add_binary(array), tag, skips_default=skips_default)
            return
        if type_ in _FIXED:
            width = _FIXED[type_].bit_width // 8
            node = self.columns.add_numbers(_converted(array, type_, path), width)
            self._emit(op.FIXED, node, tag, width, skips_default=skips_default)
            return
        node = self.columns.add_numbers(_varints(array, type_, path), 8)
        self._emit(op.VARINT, node, tag, skips_default=skips_default)

    def _emit(
        self, operation: int, node: int = _NO_NODE, tag: int = 0, width: int = 0, *, skips_default: bool = False
    ) -> list[int]:
        """Add an instruction, whose target may be set later."""
        if len(self.instructions) >= _INSTRUCTIONS_MAX:
            raise InvalidSchemaError(f"the column has more than {_INSTRUCTIONS_MAX} fields")
        self.instructions.append([operation, node, tag, width, int(skips_default), 0])
        return self.instructions[-1]

    @contextmanager
    def _unless_null(self, array: Any, *, is_required: bool) -> Iterator[None]:
        instruction = self._emit(op.REQUIRED if is_required else op.NULLABLE, self.columns.add(array))
        yield
        instruction[op.TARGET] = len(self.instructions)

    @contextmanager
    def _submessage(self, number: int) -> Iterator[None]:
        self._emit(op.OPEN_MESSAGE)
        with self._nested():
            yield
        self._emit(op.CLOSE_MESSAGE, tag=_tag(number, LENGTH))

    @contextmanager
    def _list(self, array: Any, packed_tag: int) -> Iterator[None]:
        begin = self._emit(op.LAST_ELEMENT, self.columns.add(array))
        with self._nested():
            yield
        self._emit(op.PREVIOUS_ELEMENT, tag=packed_tag)
        begin[op.TARGET] = len(self.instructions)

    @contextmanager
    def _nested(self) -> Iterator[None]:
        self._depth += 1
        if self._depth > op.DEPTH_MAX:
            raise InvalidSchemaError(f"messages and lists are nested more than {op.DEPTH_MAX} deep")
        yield
        self._depth -= 1


def _varints(array: Any, type_: str, path: str) -> Any:
    """Return the numbers to write as unsigned varints, in a column of 64 bits."""
    if type_ == "bool":
        if not pa.types.is_boolean(array.type):
            raise _misfit(array, path, type_)
        return array.cast(pa.int64())
    numbers = _converted(array, type_, path)
    if type_ == "uint64":
        return numbers.view(pa.int64())
    numbers = numbers.cast(pa.int64())
    if not type_.startswith("sint"):
        return numbers
    signed = np.asarray(numbers.fill_null(0))
    return pa.array(signed << 1 ^ signed >> 63)


def _converted(array: Any, type_: str, path: str) -> Any:
    """Return a column of numbers with the values as the type holds them. Raises IncompatibleSchemaError."""
    target = _VARINTS[type_] if type_ in _VARINTS else _FIXED[type_]
    is_real = pa.types.is_floating(array.type) and pa.types.is_floating(target)
    # An uint64 is read as a decimal without a fraction.
    is_decimal = target == pa.uint64() and pa.types.is_decimal(array.type) and array.type.scale == 0
    if not (pa.types.is_integer(array.type) or is_real or is_decimal):
        raise _misfit(array, path, type_)
    try:
        return array.cast(target)
    except pa.ArrowInvalid as error:
        raise IncompatibleSchemaError(f"{path}: {error}") from None


def _check_oneofs(message: ProtoMessage, array: Any, path: str) -> None:
    """Refuse rows with several values of a oneof: readers would keep only the last."""
    names = [field.name for field in array.type]
    for oneof in {item.oneof for item in message.fields if item.oneof is not None}:
        members = [item.name for item in message.fields if item.oneof == oneof and item.name in names]
        counts = np.zeros(len(array), np.int64)
        for name in members:
            counts += np.asarray(array.field(names.index(name)).is_valid())
        if (counts * np.asarray(array.is_valid()) > 1).any():
            raise IncompatibleSchemaError(
                f"{path}: only one of {', '.join(members)} may have a value, because they are a oneof"
            )


def _wire_type(type_: str) -> int:
    if type_ in ("string", "bytes"):
        return LENGTH
    if type_ in _FIXED:
        return FIXED32 if _FIXED[type_].bit_width == 32 else FIXED64
    return VARINT


def _tag(number: int, wire_type: int) -> int:
    """Return the tag of a field, 0 for an element of a packed list."""
    return number << _WIRE_TYPE_BITS | wire_type if number else 0


def _path_bytes(path: list[int]) -> bytes:
    """Return the message indexes as after the schema id: zigzag varints, and a zero byte for the first message."""
    if path == [0]:
        return b"\0"
    encoded = bytearray()
    for number in (len(path), *path):
        rest = number << 1
        while rest >= 0x80:
            encoded.append(rest & 0x7F | 0x80)
            rest >>= 7
        encoded.append(rest)
    return bytes(encoded)


def _misfit(array: Any, path: str, expected: str) -> IncompatibleSchemaError:
    return IncompatibleSchemaError(f"{path}: a column of {array.type} cannot be written as {expected}")


def _not_allowed(value: Any, schema_id: int) -> IncompatibleSchemaError:
    return IncompatibleSchemaError(
        f"the value {value.as_py()!r} is not allowed by schema {schema_id}: it has a null that Protobuf cannot have, "
        "or a text that is not in its enum"
    )
