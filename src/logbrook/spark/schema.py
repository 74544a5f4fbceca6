"""The rows of a topic in Spark's own types: the schema of Spark's Kafka source."""

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
# Times and dates are texts there, in ISO 8601.
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
    """Columns that a topic does not have."""


def spark_schema(columns: Sequence[str]) -> StructType:
    return StructType([StructField(name, _TYPES[name]) for name in columns])


def json_schema(columns: Sequence[str], value_schema: str | None) -> str:
    """The same with the values as structs, in SQL, because only Spark can parse the schema of the values."""
    if value_schema is None:
        raise OptionError("value.schema", "it is required where 'value.format' is json, as in 'id BIGINT, name STRING'")
    types = {name: type_.simpleString() for name, type_ in _TYPES.items()}
    # A bare `timestamp` is what the session's settings say.
    types |= {"value": f"struct<{value_schema}>", "timestamp": "timestamp_ltz"}
    return ", ".join(f"`{name}` {types[name]}" for name in columns)


def columns_of(schema: StructType, *, is_json: bool = False) -> tuple[str, ...]:
    """The columns of a schema that a user gave. Raises SchemaError for those that a topic does not have."""
    for field in schema.fields:
        expected = _TYPES.get(field.name)
        if expected is None:
            raise SchemaError(f"a topic has no column {field.name!r}; it has {', '.join(_TYPES)}")
        if is_json and field.name == "value":
            _check_value(field.dataType)
            continue
        if field.dataType != expected:
            given, there = field.dataType.simpleString(), expected.simpleString()
            raise SchemaError(f"column {field.name!r} is {there}, and the schema says {given}; cast it in the query")
    return tuple(schema.names)


def value_schema_of(schema: StructType) -> StructType | None:
    """What values are parsed as, None where they are bytes or not asked for."""
    types = [field.dataType for field in schema.fields if field.name == "value"]
    return types[0] if types and isinstance(types[0], StructType) else None


def _check_value(type_: DataType) -> None:
    if not isinstance(type_, StructType):
        given = type_.simpleString()
        raise SchemaError(f"with 'value.format' json column 'value' is a struct, and the schema says {given}")
    reason = _why_not_json(type_, "value")
    if reason is not None:
        raise SchemaError(reason)


def _why_not_json(type_: DataType, name: str) -> str | None:
    """What keeps a column of this type from being read from JSON, None if nothing does."""
    if isinstance(type_, ArrayType):
        return _why_not_json(type_.elementType, f"{name}[]")
    if isinstance(type_, StructType):
        if not type_.fields:
            return f"{name} has no fields"
        if len(set(type_.names)) != len(type_.names):
            return f"{name} has two fields of one name"
        for field in type_.fields:
            if not field.nullable:
                return f"{name}.{field.name} is NOT NULL, and a value may lack it"
        reasons = (_why_not_json(field.dataType, f"{name}.{field.name}") for field in type_.fields)
        return next((reason for reason in reasons if reason is not None), None)
    return None if type(type_) in _JSON_TYPES else f"{name} is {type_.simpleString()}, which JSON does not have"
