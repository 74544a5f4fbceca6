"""The columns of a record: names and types of Spark's `kafka` source, in its order."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

HEADERS_TYPE = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))

# Spark compares the schema of the first batch with its own for equality: the names of the list's parts count, too.
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", HEADERS_TYPE),
    ]
)


def schema_of(columns: Sequence[str] | None, *, include_headers: bool) -> Any:
    """The schema of these columns, in this order; of all when none are named. Raises ValueError for an unknown name."""
    if columns is None:
        columns = [name for name in SCHEMA.names if include_headers or name != "headers"]
    unknown = [name for name in columns if name not in SCHEMA.names]
    if unknown or len(set(columns)) != len(columns):
        raise ValueError(f"columns are to be different ones of {', '.join(SCHEMA.names)}, not {', '.join(columns)}")
    return pa.schema([SCHEMA.field(name) for name in columns])
