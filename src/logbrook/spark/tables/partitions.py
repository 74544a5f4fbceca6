"""The values by which a table is partitioned, as texts and as names of directories.

The directories are named as Hive names them (`day=2026-01-31`), which Spark's own Parquet reader understands.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from logbrook.spark.tables.errors import TableError
from logbrook.spark.tables.schema import type_name

PartitionValue: TypeAlias = str | int | date | None

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
# What Spark escapes in the name of a partition's directory (ExternalCatalogUtils.charToEscape).
_ESCAPED = frozenset("\"#%'*/:=?\\\x7f{[]^") | frozenset(map(chr, range(0x20)))


def check_partition_columns(schema: pa.Schema, partition_by: Sequence[str], table: str) -> None:
    """Raises TableError for a column that is not there, or whose values make no good names."""
    for name in partition_by:
        position = schema.get_field_index(name)
        if position < 0:
            raise TableError(table, f"it cannot be partitioned by {name!r}, because the frame has no such column")
        kind = schema.field(position).type
        if not (_is_whole(kind) or pa.types.is_string(kind) or pa.types.is_date32(kind)):
            reason = f"it cannot be partitioned by {name!r}, which is {type_name(kind)}"
            raise TableError(table, f"{reason} and not a string, a date, a boolean or a whole number")
    if len(partition_by) == len(schema):
        raise TableError(table, "it needs a column besides those that it is partitioned by")


def to_text(value: PartitionValue) -> str | None:
    """The value as Delta writes it down; null is None, and so is the empty text, which Delta cannot tell from it."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, date) else str(value)


def from_text(text: str | None, kind: pa.DataType) -> PartitionValue:
    """The inverse of `to_text` for a column of type `kind`."""
    if text is None or pa.types.is_string(kind):
        return text
    if pa.types.is_boolean(kind):
        return text == "true"
    return date.fromisoformat(text) if pa.types.is_date32(kind) else int(text)


def directory_of(values: Mapping[str, PartitionValue]) -> str:
    """The directory of these values below that of the table's data, empty for a table without partitions."""
    names = []
    for name, value in values.items():
        text = to_text(value)
        names.append(f"{_escape(name)}={HIVE_NULL if text is None else _escape(text)}")
    return os.path.join("", *names)


def split(
    batch: pa.RecordBatch, partition_by: Sequence[str]
) -> Iterator[tuple[dict[str, PartitionValue], pa.RecordBatch]]:
    """`batch` in pieces that have one value in every column of `partition_by`, each in the order of its rows."""
    if batch.num_rows == 0:
        return
    if not partition_by:
        yield {}, batch
        return
    # The sort is stable, and a run of equal values is one piece.
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


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_boolean(kind) or pa.types.is_signed_integer(kind))


def _escape(text: str) -> str:
    return "".join(f"%{ord(letter):02X}" if letter in _ESCAPED else letter for letter in text)
