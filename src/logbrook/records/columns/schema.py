"""The Arrow schema of records: names, types and order of Spark's `kafka` source."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

HEADERS_TYPE = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))

# Spark requires the first batch's schema to equal its own, including the names of nested fields.
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
    """Return the schema of these columns in this order, by default all. Raises ValueError for an unknown name."""
    if columns is None:
        columns = [name for name in SCHEMA.names if include_headers or name != "headers"]
    unknown = [name for name in columns if name not in SCHEMA.names]
    if unknown or len(set(columns)) != len(columns):
        raise ValueError(f"columns must be distinct names of {', '.join(SCHEMA.names)}, not {', '.join(columns)}")
    return pa.schema([SCHEMA.field(name) for name in columns])
