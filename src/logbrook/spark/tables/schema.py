"""Which columns a table has, and whether a frame fits them.

Columns are compared by name and type, in any order. A new table's columns may all be null, because a stream that
changes its mind about that should not stop. Types are Arrow's, as Spark maps its own to them; timestamps are
microseconds in UTC.
"""

from collections.abc import Callable

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructType

from logbrook.spark.tables.errors import SchemaMismatchError, TableError

ADD_HINT = "; schema.evolution=add allows it"
_HELD: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_boolean,
    pa.types.is_signed_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_date32,
    pa.types.is_timestamp,
)
# Spark's Arrow has one type of text and one of bytes.
_SMALL = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}


def stored_schema(frame: StructType, table: str, *, small_integers: bool) -> pa.Schema:
    """The columns that hold `frame`. Raises TableError for a type that no table holds, or a name that comes twice."""
    names = [name.lower() for name in frame.names]
    for position, name in enumerate(names):
        if name in names[:position]:
            raise TableError(table, f"column {frame.names[position]!r} is twice in the frame")
    try:
        arrow = to_arrow_schema(frame, timezone="UTC")
    except PySparkException as error:
        raise TableError(table, f"it cannot hold the frame: {error}") from None
    for field in arrow:
        if not _is_held(field.type):
            raise TableError(table, f"column {field.name!r} is {type_name(field.type)}, which a table cannot hold")
    return pa.schema([pa.field(field.name, plain_type(field.type, small_integers=small_integers)) for field in arrow])


def missing_columns(
    frame: StructType, stored: pa.Schema, schema: pa.Schema, table: str, *, add: bool
) -> list[pa.Field]:
    """The columns that `schema`, the table's, lacks for the frame that would be stored as `stored`.

    Raises SchemaMismatchError unless the frame fits, and for a difference in the set of columns unless `add`.
    """
    missing = []
    for field in stored:
        position = schema.get_field_index(field.name)
        if position < 0:
            if not add:
                raise SchemaMismatchError(table, field.name, type_name(field.type), None, ADD_HINT)
            missing.append(field)
            continue
        column = schema.field(position)
        if plain_type(column.type) != field.type:
            raise SchemaMismatchError(table, field.name, type_name(field.type), type_name(column.type))
        if frame[field.name].nullable and not column.nullable:
            kind = type_name(column.type)
            raise SchemaMismatchError(table, field.name, f"{kind} that may be null", f"{kind} that may not be null")
    for column in schema:
        if stored.get_field_index(column.name) >= 0:
            continue
        if not column.nullable:
            raise SchemaMismatchError(table, column.name, None, f"{type_name(column.type)} that may not be null")
        if not add:
            raise SchemaMismatchError(table, column.name, None, type_name(column.type), ADD_HINT)
    return missing


def plain_schema(schema: pa.Schema, *, keep_metadata: bool = False) -> pa.Schema:
    """`schema` in the types that Spark hands over, whether a column may be null included."""
    fields = []
    for field in schema:
        metadata = field.metadata if keep_metadata else None
        kind = plain_type(field.type, keep_metadata=keep_metadata)
        fields.append(pa.field(field.name, kind, nullable=field.nullable, metadata=metadata))
    return pa.schema(fields)


def plain_type(kind: pa.DataType, *, small_integers: bool = True, keep_metadata: bool = False) -> pa.DataType:
    """`kind` without large and view variants; what is nested may be null, and a list's child is named `element`."""

    def plain(name: str, field: pa.Field, nullable: bool = True) -> pa.Field:
        nested = plain_type(field.type, small_integers=small_integers, keep_metadata=keep_metadata)
        return pa.field(name, nested, nullable=nullable, metadata=field.metadata if keep_metadata else None)

    if pa.types.is_struct(kind):
        return pa.struct([plain(field.name, field) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(plain("key", kind.key_field, False), plain("value", kind.item_field))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(plain("element", kind.value_field))
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if not small_integers and kind in (pa.int8(), pa.int16()):
        return pa.int32()
    return _SMALL.get(kind, kind)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """`batch` with exactly the columns of `schema`: reordered, cast, and null where it has none."""
    columns = []
    for field in schema:
        position = batch.schema.get_field_index(field.name)
        column = batch.column(position) if position >= 0 else pa.nulls(batch.num_rows, field.type)
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def type_name(kind: pa.DataType) -> str:
    """What Spark calls the type."""
    return str(from_arrow_type(kind).simpleString())


def _is_held(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return kind.num_fields > 0 and all(_is_held(field.type) for field in kind)
    if pa.types.is_map(kind):
        return _is_held(kind.key_type) and _is_held(kind.item_type)
    if pa.types.is_list(kind):
        return _is_held(kind.value_type)
    return any(is_held(kind) for is_held in _HELD)
