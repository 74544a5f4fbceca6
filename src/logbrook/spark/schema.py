"""The row schema of the format `logbrook`, which is that of Spark's Kafka source, and the schema of decoded values."""

from collections.abc import Sequence

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from logbrook.spark.errors import OptionError, SparkError
from logbrook.spark.schemas.reader_schema import ReaderSchema

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}
COLUMNS = tuple(_TYPES)
# With a schema registry: the value as it is in the record, and why it does not decode, or null.
_DECODING_TYPES: dict[str, DataType] = {"valueBytes": BinaryType(), "valueError": StringType()}
DECODING_COLUMNS = tuple(_DECODING_TYPES)
# Types that a JSON value can have; timestamps and dates are ISO 8601 strings in JSON.
_JSON_TYPES = (
    BooleanType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)


class SchemaError(SparkError):
    """The schema of a read or a write does not fit the columns of a topic."""


def spark_schema(columns: Sequence[str]) -> StructType:
    return StructType([StructField(name, _TYPES[name]) for name in columns])


def registered_schema(columns: Sequence[str], reader: ReaderSchema) -> StructType:
    """Return the row schema with values of the reader's schema, which is in the metadata of the decoded columns."""
    types = _TYPES | _DECODING_TYPES | {"value": reader.value_type}
    decoded = {"value", *DECODING_COLUMNS}
    return StructType(
        [StructField(name, types[name], metadata=reader.metadata if name in decoded else None) for name in columns]
    )


def json_schema(columns: Sequence[str], value_schema: str | None) -> str:
    """Return the row schema with values as structs, as DDL: only Spark's JVM can parse `value_schema`."""
    if value_schema is None:
        raise OptionError("value.schema", "it is required where 'value.format' is json, as in 'id BIGINT, name STRING'")
    types = {name: type_.simpleString() for name, type_ in _TYPES.items()}
    # Plain `timestamp` would depend on spark.sql.timestampType.
    types |= {"value": f"struct<{value_schema}>", "timestamp": "timestamp_ltz"}
    return ", ".join(f"`{name}` {types[name]}" for name in columns)


def columns_of(
    schema: StructType, *, is_json: bool = False, reader_schema: ReaderSchema | None = None
) -> tuple[str, ...]:
    """Return the column names of a user's schema. Raises SchemaError for a column or type that a topic lacks."""
    types = _TYPES
    if reader_schema is not None:
        types = _TYPES | _DECODING_TYPES | {"value": reader_schema.value_type}
    for field in schema.fields:
        expected = types.get(field.name)
        if expected is None:
            raise SchemaError(f"a topic has no column {field.name!r}; it has {', '.join(types)}")
        if is_json and field.name == "value":
            _check_value(field.dataType)
            continue
        if field.dataType != expected:
            given, actual = field.dataType.simpleString(), expected.simpleString()
            raise SchemaError(f"column {field.name!r} is {actual}, and the schema says {given}; cast it in the query")
    return tuple(schema.names)


def value_schema_of(schema: StructType) -> StructType | None:
    """Return the struct that values are parsed as, or None if they are bytes or not selected."""
    types = [field.dataType for field in schema.fields if field.name == "value"]
    return types[0] if types and isinstance(types[0], StructType) else None


def _check_value(type_: DataType) -> None:
    if not isinstance(type_, StructType):
        given = type_.simpleString()
        raise SchemaError(f"with 'value.format' json column 'value' is a struct, and the schema says {given}")
    reason = _json_obstacle(type_, "value")
    if reason is not None:
        raise SchemaError(reason)


def _json_obstacle(type_: DataType, name: str) -> str | None:
    """Return why a field of this type cannot be read from JSON, or None if it can."""
    if isinstance(type_, ArrayType):
        return _json_obstacle(type_.elementType, f"{name}[]")
    if isinstance(type_, StructType):
        if not type_.fields:
            return f"{name} has no fields"
        if len(set(type_.names)) != len(type_.names):
            return f"{name} has two fields of one name"
        for field in type_.fields:
            if not field.nullable:
                return f"{name}.{field.name} is NOT NULL, and a value may lack it"
        reasons = (_json_obstacle(field.dataType, f"{name}.{field.name}") for field in type_.fields)
        return next((reason for reason in reasons if reason is not None), None)
    return None if type(type_) in _JSON_TYPES else f"{name} is {type_.simpleString()}, which JSON does not have"
