"""Table schemas and partitioning: storable types, comparison with a DataFrame, partition values and directories.

Columns are compared by name and type, in any order. The columns of a new table are all nullable, so that a stream whose
nullability changes does not fail. Types are Arrow types as Spark maps its own to them; timestamps are microseconds in
UTC. Partition directories are named as in Hive (`day=2026-01-31`), which Spark's Parquet reader understands.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructType

from logbrook.spark.errors import SchemaMismatchError, TableError

ADD_HINT = "; schema.evolution=add allows it"
_STORABLE: tuple[Callable[[pa.DataType], bool], ...] = (
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
# Spark's Arrow schema has one string type and one binary type.
_PLAIN_TYPES = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}


def stored_schema(frame: StructType, table: str, *, small_integers: bool) -> pa.Schema:
    """Return the table schema for `frame`. Raises TableError for a type that cannot be stored or a duplicate name."""
    names = [name.lower() for name in frame.names]
    for position, name in enumerate(names):
        if name in names[:position]:
            raise TableError(table, f"column {frame.names[position]!r} is in the frame twice")
    try:
        arrow = to_arrow_schema(frame, timezone="UTC")
    except PySparkException as error:
        raise TableError(table, f"it cannot hold the frame: {error}") from None
    for field in arrow:
        if not _is_storable(field.type):
            raise TableError(table, f"column {field.name!r} is {type_name(field.type)}, which a table cannot hold")
    return pa.schema([pa.field(field.name, plain_type(field.type, small_integers=small_integers)) for field in arrow])


def missing_columns(
    frame: StructType, stored: pa.Schema, schema: pa.Schema, table: str, *, add: bool
) -> list[pa.Field]:
    """Return the columns of `stored` (the schema of `frame`) that `schema` (the table's) lacks.

    Raises SchemaMismatchError if a type or nullability differs, and unless `add` if the sets of columns differ.
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
    """Return `schema` in the Arrow types that Spark passes to writers; nullability is kept."""
    fields = []
    for field in schema:
        metadata = field.metadata if keep_metadata else None
        kind = plain_type(field.type, keep_metadata=keep_metadata)
        fields.append(pa.field(field.name, kind, nullable=field.nullable, metadata=metadata))
    return pa.schema(fields)


def plain_type(kind: pa.DataType, *, small_integers: bool = True, keep_metadata: bool = False) -> pa.DataType:
    """Return `kind` without large and view variants, nested fields nullable, and list items named `element`."""

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
    return _PLAIN_TYPES.get(kind, kind)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return `batch` with exactly the columns of `schema`: reordered, cast, and null where it lacks one."""
    columns = []
    for field in schema:
        position = batch.schema.get_field_index(field.name)
        column = batch.column(position) if position >= 0 else pa.nulls(batch.num_rows, field.type)
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def type_name(kind: pa.DataType) -> str:
    """Return Spark's name of the type."""
    return str(from_arrow_type(kind).simpleString())


def _is_storable(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return kind.num_fields > 0 and all(_is_storable(field.type) for field in kind)
    if pa.types.is_map(kind):
        return _is_storable(kind.key_type) and _is_storable(kind.item_type)
    if pa.types.is_list(kind):
        return _is_storable(kind.value_type)
    return any(is_storable(kind) for is_storable in _STORABLE)


PartitionValue: TypeAlias = str | int | date | None

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
# Characters that Spark escapes in partition directories (ExternalCatalogUtils.charToEscape).
_ESCAPED = frozenset("\"#%'*/:=?\\\x7f{[]^") | frozenset(map(chr, range(0x20)))


def check_partition_columns(schema: pa.Schema, partition_by: Sequence[str], table: str) -> None:
    """Raises TableError for a partition column that is missing or whose type is not supported."""
    for name in partition_by:
        position = schema.get_field_index(name)
        if position < 0:
            raise TableError(table, f"it cannot be partitioned by {name!r}, which is not a column of the frame")
        kind = schema.field(position).type
        if not (_is_integral(kind) or pa.types.is_string(kind) or pa.types.is_date32(kind)):
            reason = f"it cannot be partitioned by {name!r}, which is {type_name(kind)}"
            raise TableError(table, f"{reason} and not a string, a date, a boolean or a whole number")
    if len(partition_by) == len(schema):
        raise TableError(table, "it needs a column besides the partition columns")


def partition_text(value: PartitionValue) -> str | None:
    """Return the value as Delta serializes it; None for null and for "", which Delta does not distinguish."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, date) else str(value)


def partition_value(text: str | None, kind: pa.DataType) -> PartitionValue:
    """The inverse of `partition_text` for a column of type `kind`."""
    if text is None or pa.types.is_string(kind):
        return text
    if pa.types.is_boolean(kind):
        return text == "true"
    return date.fromisoformat(text) if pa.types.is_date32(kind) else int(text)


def partition_directory(values: Mapping[str, PartitionValue]) -> str:
    """Return the directory of a partition, relative to the data directory; empty without partitioning."""
    names = []
    for name, value in values.items():
        text = partition_text(value)
        names.append(f"{_escape(name)}={HIVE_NULL if text is None else _escape(text)}")
    return os.path.join("", *names)


def split_by_partition(
    batch: pa.RecordBatch, partition_by: Sequence[str]
) -> Iterator[tuple[dict[str, PartitionValue], pa.RecordBatch]]:
    """Yield the partition values and rows of each partition in `batch`, rows in their original order."""
    if batch.num_rows == 0:
        return
    if not partition_by:
        yield {}, batch
        return
    # Stable sort: each run of equal values is one partition.
    batch = batch.take(pc.sort_indices(batch, sort_keys=[(name, "ascending") for name in partition_by]))
    columns = [batch.column(name) for name in partition_by]
    changed = None
    for column in columns:
        left, right = column[:-1], column[1:]
        differs = pc.or_(pc.fill_null(pc.not_equal(left, right), False), pc.xor(pc.is_null(left), pc.is_null(right)))
        changed = differs if changed is None else pc.or_(changed, differs)
    starts = [0, *(index + 1 for index in pc.indices_nonzero(changed).to_pylist())]
    for start, end in zip(starts, [*starts[1:], batch.num_rows], strict=True):
        values = {name: column[start].as_py() for name, column in zip(partition_by, columns, strict=True)}
        yield values, batch.slice(start, end - start)


def _is_integral(kind: pa.DataType) -> bool:
    return bool(pa.types.is_boolean(kind) or pa.types.is_signed_integer(kind))


def _escape(text: str) -> str:
    return "".join(f"%{ord(letter):02X}" if letter in _ESCAPED else letter for letter in text)
