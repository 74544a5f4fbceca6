"""Encoding of an Arrow column as Avro values of one schema, in the wire format of a schema registry.

The schema's fields are matched with the column's by name. Each leaf column is converted to the type that the schema
stores, by Arrow and numpy; `encode_avro` then writes all rows. A field that the column lacks is null, if the schema
allows that; a field that the schema lacks is refused, because it would be lost.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logbrook.spark.schemas.avro_schema import (
    AVRO_NULL,
    AvroArray,
    AvroEnum,
    AvroFixed,
    AvroMap,
    AvroPrimitive,
    AvroRecord,
    AvroType,
    AvroUnion,
)
from logbrook.spark.schemas.encoding_columns import EncodingColumns, binary_array
from logbrook.spark.schemas.errors import IncompatibleSchemaError, InvalidSchemaError
from logbrook.spark.schemas.kernels import avro_encode as op

_INSTRUCTIONS_MAX = 10_000
_NO_NODE = -1
_NUMBERS = {"int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64()}
_US_PER_MS = 1000


def encode_column(values: Any, schema: AvroType, schema_id: int) -> Any:
    """Return the values of an array as bytes, null for null.

    Raises IncompatibleSchemaError if the column or one of its values does not fit the schema.
    """
    compiler = _EncodeCompiler()
    compiler.write_root(schema, values)
    columns = compiler.columns
    prefix = np.frombuffer(bytearray(struct.pack(">bI", 0, schema_id)), np.uint8)
    bytes_max = columns.bytes_max + len(values) * prefix.size
    output = op.EncodedOutput(np.empty(bytes_max, np.uint8), np.empty(len(values) + 1, np.int64))
    program = op.EncodeProgram(np.array(compiler.instructions, np.int64), np.zeros(op.STACK_LENGTH, np.int64))
    rows = op.encode_avro(program, np.array(columns.nodes, np.int64), len(values), prefix, output)
    if rows != len(values):
        raise IncompatibleSchemaError(f"the value {values[rows].as_py()!r} is not allowed by schema {schema_id}")
    return binary_array(values, output.data, output.ends)


class _EncodeCompiler:
    """Emits the instructions that write one value, and collects its columns."""

    def __init__(self) -> None:
        self.instructions: list[list[int]] = []
        self.columns = EncodingColumns(op.VALUE_BYTES_MAX)
        self._open_lists = 0

    def write_root(self, schema: AvroType, array: Any) -> None:
        """Emit the program. A null value has no bytes: it is a record without a value, and not the branch null."""
        self.columns.add(array)
        if isinstance(schema, AvroUnion):
            member = _only_member(schema, "value")
            self._emit(op.CONSTANT, _NO_NODE, schema.branches.index(member))
            schema = member
        self.write(schema, array, "value")
        self._emit(op.END)

    def write(self, schema: AvroType, array: Any, path: str) -> None:
        """Emit the instructions that write a value of `array`, which is not null. Raises IncompatibleSchemaError."""
        match schema:
            case AvroRecord() if pa.types.is_struct(array.type):
                self._write_record(schema, array, path)
            case AvroArray() if pa.types.is_list(array.type):
                with self._list(array):
                    self._write_member(schema.items, array.values, f"{path}[]")
            case AvroMap() if pa.types.is_map(array.type):
                with self._list(array):
                    self._write_member(AvroPrimitive("string"), array.keys, f"{path} keys")
                    self._write_member(schema.values, array.items, f"{path} values")
            case AvroEnum() if pa.types.is_string(array.type):
                indices = pc.index_in(array, pa.array(schema.symbols, pa.string()))
                # A text that is not a symbol is null now, and refused.
                node = self.columns.add_numbers(pc.if_else(array.is_null(), pa.scalar(0, pa.int32()), indices), 4)
                self._emit(op.REQUIRED, node)
                self._emit(op.INTEGER, node, 4)
            case AvroPrimitive() | AvroFixed():
                self._write_leaf(schema, array, path)
            case _:
                raise _misfit(array, path)

    def _write_member(self, schema: AvroType, array: Any, path: str) -> None:
        """Emit the instructions for a value that may be null."""
        node = self.columns.add(array)
        if not isinstance(schema, AvroUnion):
            if schema == AVRO_NULL:
                raise _misfit(array, path)
            self._emit(op.REQUIRED, node)
            self.write(schema, array, path)
            return
        member = _only_member(schema, path)
        choice = self._emit(op.NULLABLE, node, schema.branches.index(AVRO_NULL))
        self.write(member, array, path)
        self.instructions[choice][3] = len(self.instructions)

    def _write_record(self, schema: AvroRecord, array: Any, path: str) -> None:
        names = [field.name for field in array.type]
        unknown = set(names) - {item.name for item in schema.fields}
        if unknown:
            raise IncompatibleSchemaError(f"{path}: the schema has no field {', '.join(sorted(unknown))}")
        for item in schema.fields:
            if item.name in names:
                self._write_member(item.type, array.field(names.index(item.name)), f"{path}.{item.name}")
            elif isinstance(item.type, AvroUnion) and AVRO_NULL in item.type.branches:
                self._emit(op.CONSTANT, _NO_NODE, item.type.branches.index(AVRO_NULL))
                self.columns.bytes_max += len(array) * op.VALUE_BYTES_MAX
            else:
                raise IncompatibleSchemaError(f"{path}: the column {item.name!r} is missing, and cannot be null")

    def _write_leaf(self, schema: AvroPrimitive | AvroFixed, array: Any, path: str) -> None:
        if schema.decimal is not None:
            if not pa.types.is_decimal(array.type) or array.type.scale != schema.decimal[1]:
                raise _misfit(array, path)
            size = schema.size if isinstance(schema, AvroFixed) else op.LENGTH_PREFIXED
            self._emit(op.DECIMAL, self.columns.add_numbers(array, 16), size)
            self.columns.bytes_max += len(array) * max(op.DECIMAL_BYTES_MAX, size)
        elif isinstance(schema, AvroFixed):
            if not pa.types.is_binary(array.type):
                raise _misfit(array, path)
            self._emit(op.FIXED, self.columns.add_binary(array), schema.size)
        elif schema.name in ("string", "bytes"):
            is_text = schema.name == "string"
            if not (pa.types.is_string(array.type) if is_text else pa.types.is_binary(array.type)):
                raise _misfit(array, path)
            self._emit(op.TEXT, self.columns.add_binary(array))
        elif schema.name == "boolean" and pa.types.is_boolean(array.type):
            self._emit(op.BOOLEAN, self.columns.add_numbers(array, 1))
        else:
            self._write_number(schema, array, path)

    def _write_number(self, schema: AvroPrimitive, array: Any, path: str) -> None:
        target = _NUMBERS.get(schema.name)
        if target is None:
            raise _misfit(array, path)
        numbers = array
        if pa.types.is_date(array.type):
            numbers = array.cast(pa.int32())
        elif pa.types.is_timestamp(array.type):
            numbers = array.cast(pa.int64())
            if (schema.logical or "").endswith("millis"):
                numbers = pa.array(np.asarray(numbers.fill_null(0)) // _US_PER_MS, pa.int64())
        is_real = pa.types.is_floating(numbers.type)
        if not (pa.types.is_integer(numbers.type) or (is_real and pa.types.is_floating(target))):
            raise _misfit(array, path)
        try:
            numbers = numbers.cast(target)
        except pa.ArrowInvalid as error:
            raise IncompatibleSchemaError(f"{path}: {error}") from None
        operation = op.REAL if pa.types.is_floating(target) else op.INTEGER
        self._emit(operation, self.columns.add_numbers(numbers, target.bit_width // 8), target.bit_width // 8)

    def _emit(self, operation: int, node: int = _NO_NODE, parameter: int = 0, target: int = 0) -> int:
        if len(self.instructions) >= _INSTRUCTIONS_MAX:
            raise InvalidSchemaError(f"the schema has more than {_INSTRUCTIONS_MAX} fields, or is recursive")
        self.instructions.append([operation, node, parameter, target])
        return len(self.instructions) - 1

    @contextmanager
    def _list(self, array: Any) -> Iterator[None]:
        if self._open_lists == op.LIST_DEPTH_MAX:
            raise InvalidSchemaError(f"arrays and maps are nested more than {op.LIST_DEPTH_MAX} deep")
        node = self.columns.add(array)
        begin = self._emit(op.BEGIN_LIST, node)
        self._open_lists += 1
        yield
        self._open_lists -= 1
        self._emit(op.NEXT_ELEMENT, node)
        self.instructions[begin][3] = len(self.instructions)


def _only_member(schema: AvroUnion, path: str) -> AvroType:
    """Return the other branch of a union with null. Raises IncompatibleSchemaError."""
    members = [branch for branch in schema.branches if branch != AVRO_NULL]
    if len(schema.branches) != 2 or len(members) != 1:
        raise IncompatibleSchemaError(f"{path}: only unions of null and another type can be written")
    return members[0]


def _misfit(array: Any, path: str) -> IncompatibleSchemaError:
    return IncompatibleSchemaError(f"{path}: a column of {array.type} does not fit the schema")
