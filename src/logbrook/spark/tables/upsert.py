"""Rules of `write.mode` = `upsert`: which column is the key, which row of a key is the newest, which row is a delete.

Each row of the DataFrame is a change of one key. The newest change of a key replaces the table's row of that key, is
added if there is none, or deletes it if `upsert.delete` names a boolean column that is true. That column is not stored.

Order of changes:

- By default the offset of the source record (`offset`, or `_offset` in a pipeline). Offsets of different partitions do
  not compare: between them the timestamp decides within a batch, and otherwise the later batch. A key that changes its
  partition, for example because the topic got more of them, is therefore not stuck at its old offset.
- `upsert.order` names other columns, compared one after the other. Null is older than any value.
- A DataFrame without either, such as an aggregation, must have each key once per batch; the later batch is newer.

A stored row wins only if it is newer than the change: of two changes with equal order the later batch wins.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
from pyspark.sql.types import BooleanType, StructType

from logbrook.spark.errors import OptionError
from logbrook.spark.options import OptionReader

APPEND, UPSERT = "append", "upsert"
OFFSET_COLUMNS = ("topic", "partition", "offset")
_COMPARABLE: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_boolean,
    pa.types.is_signed_integer,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_date32,
    pa.types.is_timestamp,
)


@dataclass(frozen=True, slots=True)
class RowOrder:
    """Order of the changes of one key: by `columns`, among rows that are equal in `origin`.

    `between` orders the rows of one batch that have different origins.
    """

    columns: tuple[str, ...] = ()
    origin: tuple[str, ...] = ()
    between: tuple[str, ...] = ()

    @property
    def all_columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.columns, *self.origin, *self.between)))


@dataclass(frozen=True, slots=True)
class UpsertRules:
    """The options `upsert.keys`, `upsert.order` and `upsert.delete`."""

    keys: tuple[str, ...]
    order: tuple[str, ...] = ()
    delete: str | None = None

    @classmethod
    def parse(cls, reader: OptionReader) -> Self | None:
        """Return the rules, or None unless `write.mode` is upsert. Raises OptionError."""
        mode = reader.choice("write.mode", (APPEND, UPSERT), APPEND)
        rules = cls(reader.names("upsert.keys"), reader.names("upsert.order"), reader.text("upsert.delete"))
        if mode == UPSERT:
            if not rules.keys:
                raise OptionError("upsert.keys", "it is required with write.mode=upsert, such as 'id' or 'country,day'")
            return rules
        for name, value in (("keys", rules.keys), ("order", rules.order), ("delete", rules.delete)):
            if value:
                raise OptionError(f"upsert.{name}", "it is only for write.mode=upsert")
        return None

    def stored(self, frame: StructType) -> StructType:
        """Return the columns of `frame` that the table stores. Raises OptionError for an invalid delete column."""
        if self.delete is None:
            return frame
        if self.delete not in frame.names:
            raise OptionError("upsert.delete", _no_column(self.delete, frame.names))
        if self.delete in (*self.keys, *self.order):
            raise OptionError("upsert.delete", f"column {self.delete!r} is not stored, so it is no key and no order")
        if not isinstance(frame[self.delete].dataType, BooleanType):
            kind = frame[self.delete].dataType.simpleString()
            raise OptionError("upsert.delete", f"column {self.delete!r} is {kind}, not boolean")
        return StructType([field for field in frame.fields if field.name != self.delete])

    def check(self, schema: pa.Schema) -> None:
        """Raise OptionError for a key or order column that the table `schema` lacks or that does not compare."""
        for option, names in (("upsert.keys", self.keys), ("upsert.order", self.order)):
            for name in names:
                position = schema.get_field_index(name)
                if position < 0:
                    raise OptionError(option, _no_column(name, schema.names))
                kind = schema.field(position).type
                if not any(is_comparable(kind) for is_comparable in _COMPARABLE):
                    raise OptionError(option, f"column {name!r} is {kind}, which has no exact order")

    def row_order(self, names: Sequence[str]) -> RowOrder:
        """Return the order of changes for a table with these columns."""
        topic, partition, offset = offset_columns(names)
        if self.order:
            return RowOrder(self.order)
        if offset not in names:
            return RowOrder()
        timestamp = f"{offset.removesuffix('offset')}timestamp"
        return RowOrder(
            columns=(offset,),
            origin=tuple(name for name in (topic, partition) if name in names),
            between=(timestamp,) if timestamp in names else (),
        )


def offset_columns(names: Iterable[str]) -> tuple[str, str, str]:
    """Return the names of topic, partition and offset: those of a pipeline's source if only these are in `names`."""
    prefix = "_" if "_offset" in names and "offset" not in names else ""
    topic, partition, offset = (f"{prefix}{name}" for name in OFFSET_COLUMNS)
    return topic, partition, offset


def _no_column(name: str, names: Iterable[str]) -> str:
    return f"there is no column {name!r}; there are {', '.join(names)}"
