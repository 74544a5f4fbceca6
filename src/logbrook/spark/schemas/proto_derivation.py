"""The Protobuf schema of a Spark type, for a sink whose subject has no schema yet.

It is the inverse of `proto_schema.message_type`. Nullable columns are optional fields, which have presence. Fields are
numbered in the order of the columns: readers match them by number, so later versions cannot be derived, because a
column that is added or moved would change the numbers of others.
"""

import re
from collections.abc import Iterator

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from logbrook.spark.schemas.errors import InvalidSchemaError
from logbrook.spark.schemas.proto_schema import TIMESTAMP

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")
_TYPES: dict[type[DataType], str] = {
    BooleanType: "bool",
    ByteType: "int32",
    ShortType: "int32",
    IntegerType: "int32",
    LongType: "int64",
    FloatType: "float",
    DoubleType: "double",
    StringType: "string",
    BinaryType: "bytes",
    TimestampType: TIMESTAMP,
}
_KEY_TYPES = (ByteType, ShortType, IntegerType, LongType, BooleanType, StringType)
# The type that a uint64 is read as.
_UINT64 = DecimalType(20, 0)


def derive_protobuf(type_: DataType, name: str) -> str:
    """Return a .proto file with a message for values of this type; `name` is its name. Raises InvalidSchemaError."""
    if not isinstance(type_, StructType):
        given = type_.simpleString()
        raise InvalidSchemaError(f"a message is made of a struct, and the column is {given}; use struct()")
    message = _NOT_IN_NAMES.sub("_", name)
    body = list(_message(type_, message if _NAME.fullmatch(message) else f"_{message}", ""))
    imports = ['import "google/protobuf/timestamp.proto";'] if any(TIMESTAMP in line for line in body) else []
    return "\n".join(['syntax = "proto3";', *imports, *body, ""])


def _message(type_: StructType, name: str, indent: str) -> Iterator[str]:
    yield f"{indent}message {name} {{"
    for number, field in enumerate(type_.fields, 1):
        yield from _field(field, number, f"{indent}  ")
    yield f"{indent}}}"


def _field(field: StructField, number: int, indent: str) -> Iterator[str]:
    """Yield the message of a struct, and the field."""
    if not _NAME.fullmatch(field.name):
        raise InvalidSchemaError(f"{field.name!r} cannot be the name of a field in Protobuf; rename the column")
    type_, label = field.dataType, "optional " if field.nullable else ""
    key = None
    if isinstance(type_, ArrayType):
        type_, label = type_.elementType, "repeated "
    elif isinstance(type_, MapType):
        key, type_, label = _scalar(type_.keyType, f"the key of {field.name}", _KEY_TYPES), type_.valueType, ""
    if isinstance(type_, StructType):
        # Fields and messages must have different names.
        value = f"{field.name}_message"
        yield from _message(type_, value, indent)
    else:
        value = _scalar(type_, field.name)
    yield f"{indent}{label}{value if key is None else f'map<{key}, {value}>'} {field.name} = {number};"


def _scalar(type_: DataType, name: str, allowed: tuple[type[DataType], ...] | None = None) -> str:
    if type_ == _UINT64 and allowed is None:
        return "uint64"
    if type(type_) not in (_TYPES if allowed is None else allowed):
        raise InvalidSchemaError(f"{name} is {type_.simpleString()}, which Protobuf does not have there; cast it")
    return _TYPES[type(type_)]
