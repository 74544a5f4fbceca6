"""The Avro schema of a Spark type, for a sink without a schema of its own.

It is the inverse of `avro_schema.spark_type`: nullable types are unions of null and the type, with null as the default
of fields, so that fields can be added and removed later. Timestamps have microseconds. The records of nested structs
are named after their path, because Avro's names must be unique.
"""

import json
import re
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from logbrook.spark.schemas.errors import InvalidSchemaError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")
_TYPES: dict[type[DataType], Any] = {
    BooleanType: "boolean",
    ByteType: "int",
    ShortType: "int",
    IntegerType: "int",
    LongType: "long",
    FloatType: "float",
    DoubleType: "double",
    StringType: "string",
    BinaryType: "bytes",
    DateType: {"type": "int", "logicalType": "date"},
    TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
}


def derive_avro(type_: DataType, name: str) -> str:
    """Return the schema of a value; `name` is that of its record. Raises InvalidSchemaError."""
    record = _NOT_IN_NAMES.sub("_", name)
    return json.dumps(_derive(type_, record if _NAME.fullmatch(record) else f"_{record}"), separators=(",", ":"))


def _derive(type_: DataType, name: str) -> Any:
    match type_:
        case StructType():
            return {"type": "record", "name": name, "fields": [_field(field, name) for field in type_.fields]}
        case ArrayType():
            return {"type": "array", "items": _nullable(type_.elementType, type_.containsNull, name)}
        case MapType(keyType=StringType()):
            return {"type": "map", "values": _nullable(type_.valueType, type_.valueContainsNull, name)}
        case DecimalType():
            return {"type": "bytes", "logicalType": "decimal", "precision": type_.precision, "scale": type_.scale}
    if type(type_) not in _TYPES:
        raise InvalidSchemaError(f"{name} is {type_.simpleString()}, which Avro does not have; cast it")
    return _TYPES[type(type_)]


def _field(field: Any, record: str) -> dict[str, Any]:
    if not _NAME.fullmatch(field.name):
        raise InvalidSchemaError(f"{field.name!r} cannot be the name of a field in Avro; rename the column")
    derived = {"name": field.name, "type": _nullable(field.dataType, field.nullable, f"{record}_{field.name}")}
    return derived | ({"default": None} if field.nullable else {})


def _nullable(type_: DataType, is_nullable: bool, name: str) -> Any:
    derived = _derive(type_, name)
    return ["null", derived] if is_nullable else derived
