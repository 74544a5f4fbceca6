"""A Protobuf message as a tree of columns, and the table of fields for the kernel `decode_protobuf`."""

from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type

from logbrook.spark.schemas.columns import ColumnNode, kind_of
from logbrook.spark.schemas.errors import InvalidSchemaError
from logbrook.spark.schemas.kernels import protobuf as kernel
from logbrook.spark.schemas.kernels.nodes import LIST, NO_LIST, STRUCT
from logbrook.spark.schemas.proto_schema import (
    TIMESTAMP,
    ProtoEnum,
    ProtoField,
    ProtoMessage,
    ProtoType,
    ProtoTypes,
    message_type,
)

_FIELDS_MAX = 10_000
_KINDS = {
    **dict.fromkeys(("int32", "int64"), (kernel.INT, kernel.VARINT)),
    **dict.fromkeys(("sint32", "sint64"), (kernel.ZIGZAG, kernel.VARINT)),
    **dict.fromkeys(("uint32", "uint64"), (kernel.UNSIGNED, kernel.VARINT)),
    "bool": (kernel.BOOL, kernel.VARINT),
    "sfixed32": (kernel.SIGNED_FIXED, kernel.FIXED32),
    "sfixed64": (kernel.SIGNED_FIXED, kernel.FIXED64),
    "fixed32": (kernel.UNSIGNED_FIXED, kernel.FIXED32),
    "fixed64": (kernel.UNSIGNED_FIXED, kernel.FIXED64),
    "float": (kernel.REAL, kernel.FIXED32),
    "double": (kernel.REAL, kernel.FIXED64),
    "string": (kernel.TEXT, kernel.LENGTH),
    "bytes": (kernel.RAW, kernel.LENGTH),
}


class ProtobufReader:
    """The reader's message. Raises InvalidSchemaError if it has no equivalent in Spark."""

    def __init__(self, message: ProtoMessage, types: ProtoTypes) -> None:
        self.name = message.name
        self._types = types
        self._count = 0
        self._messages: list[list[list[int]]] = []
        self._numbers: list[int] = []
        arrow_type = to_arrow_type(message_type(message, types), timezone="UTC")
        self.root, _ = self._message(message, arrow_type, NO_LIST, 1)

    def program(self) -> kernel.ProtobufProgram:
        fields = [field for message in self._messages for field in message]
        ends = np.cumsum([len(message) for message in self._messages])
        starts = ends - [len(message) for message in self._messages]
        return kernel.ProtobufProgram(
            np.array(fields, np.int64).reshape(-1, kernel.FIELD_FIELDS),
            np.ascontiguousarray(np.stack([starts, ends], axis=1).astype(np.int64)),
            np.array(self._numbers or [0], np.int64),
            np.zeros(kernel.STACK_LENGTH, np.int64),
        )

    def _message(self, message: ProtoMessage, arrow_type: Any, level: int, depth: int) -> tuple[ColumnNode, int]:
        """Add a message. Returns its column and its number."""
        if depth >= kernel.DEPTH_MAX or self._count > _FIELDS_MAX:
            raise InvalidSchemaError(f"{message.name} has too many fields or is nested too deeply")
        index = self._next()
        fields: list[list[int]] = []
        number = len(self._messages)
        self._messages.append(fields)
        children = []
        for position, item in enumerate(message.fields):
            child, row = self._field(item, message, arrow_type.field(position).type, level, depth)
            children.append(child)
            fields.append(row)
        return ColumnNode(index, STRUCT, level, arrow_type, tuple(children)), number

    def _field(
        self, item: ProtoField, message: ProtoMessage, arrow_type: Any, level: int, depth: int
    ) -> tuple[ColumnNode, list[int]]:
        """Add a field. Returns its column and its row in the table of fields."""
        type_ = self._types.resolve(item.type_name, message.name)
        if item.key_type is not None:
            return self._map(item, type_, arrow_type, level, depth)
        if not item.is_repeated:
            return self._value(item, type_, arrow_type, level, depth)
        index = self._next()
        element, row = self._value(item, type_, arrow_type.value_type, index, depth)
        row[kernel.LIST_NODE] = index
        return ColumnNode(index, LIST, level, arrow_type, (element,)), row

    def _map(
        self, item: ProtoField, type_: str | ProtoType, arrow_type: Any, level: int, depth: int
    ) -> tuple[ColumnNode, list[int]]:
        index = self._next()
        number = len(self._messages)
        entry: list[list[int]] = []
        self._messages.append(entry)
        assert item.key_type is not None
        key, key_row = self._value(
            ProtoField("key", 1, item.key_type), item.key_type, arrow_type.key_type, index, depth
        )
        value, value_row = self._value(
            ProtoField("value", 2, item.type_name), type_, arrow_type.item_type, index, depth + 1
        )
        entry += [key_row, value_row]
        row = _row(item.number, kernel.MESSAGE, kernel.LENGTH, kernel.NO_NODE, number)
        row[kernel.LIST_NODE] = index
        return ColumnNode(index, LIST, level, arrow_type, (key, value)), row

    def _value(
        self, item: ProtoField, type_: str | ProtoType, arrow_type: Any, level: int, depth: int
    ) -> tuple[ColumnNode, list[int]]:
        if isinstance(type_, ProtoMessage) and type_.name != TIMESTAMP:
            column, number = self._message(type_, arrow_type, level, depth + 1)
            return column, _row(item.number, kernel.MESSAGE, kernel.LENGTH, column.index, number)
        index = self._next()
        if isinstance(type_, ProtoEnum):
            return self._enum(item, type_, index, level)
        column = ColumnNode(index, kind_of(arrow_type), level, arrow_type)
        if isinstance(type_, ProtoMessage):
            return column, _row(item.number, kernel.TIMESTAMP, kernel.LENGTH, index)
        row = _row(item.number, *_KINDS[type_], index)
        row[kernel.HAS_PRESENCE] = int(item.has_presence)
        return column, row

    def _enum(self, item: ProtoField, type_: ProtoEnum, index: int, level: int) -> tuple[ColumnNode, list[int]]:
        # The default is the value 0, which is the first of the column's symbols.
        numbers = sorted(type_.values, key=lambda number: (number != 0, number))
        row = _row(item.number, kernel.ENUM, kernel.VARINT, index, len(self._numbers))
        row[kernel.SYMBOLS] = len(numbers)
        row[kernel.HAS_PRESENCE] = int(item.has_presence)
        self._numbers += numbers
        symbols = tuple(type_.values[number] for number in numbers)
        return ColumnNode(index, 4, level, pa.string(), symbols=symbols), row

    def _next(self) -> int:
        self._count += 1
        return self._count - 1


def _row(number: int, kind: int, wire_type: int, node: int, parameter: int = 0) -> list[int]:
    row = [0] * kernel.FIELD_FIELDS
    row[kernel.NUMBER], row[kernel.FIELD_KIND], row[kernel.WIRE_TYPE] = number, kind, wire_type
    row[kernel.NODE], row[kernel.LIST_NODE], row[kernel.PARAMETER] = node, kernel.NO_NODE, parameter
    # Messages have presence.
    row[kernel.HAS_PRESENCE] = 1
    return row
