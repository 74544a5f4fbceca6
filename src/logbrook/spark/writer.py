"""The topic sink: rows as records, with the columns of Spark's Kafka sink.

    value      string or binary; null is a tombstone
    key        string or binary
    headers    array<struct<key string, value binary>>
    topic      string; not needed with the option of that name, which overrides it
    partition  int; without one, Kafka's default partitioner decides
    timestamp  timestamp; without one, now

Other columns are left alone. Delivery is at least once: a task that Spark runs again writes its rows again, though
within a task, whatever happens to connections and leaders, each is written once and in order. A streaming query can
have its rows delivered exactly once, as `exactly_once` says.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType, TimestampType

from logbrook.spark.errors import OptionError
from logbrook.spark.schema import SchemaError
from logbrook.spark.write_options import WriteOptions, write_options

_HEADERS = "array<struct<key:string,value:binary>>"


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> "TopicArrowWriter":
    """Raises OptionError or SchemaError."""
    if overwrite:
        raise OptionError("mode", "a topic cannot be overwritten; use append")
    return TopicArrowWriter(_checked(write_options(options), schema))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> "TopicStreamArrowWriter":
    """Raises OptionError or SchemaError."""
    if overwrite:
        raise OptionError("outputMode", "a topic cannot be overwritten, as 'complete' would; use append")
    return TopicStreamArrowWriter(_checked(write_options(options, is_stream=True), schema))


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task has written."""

    records: int


class TopicArrowWriter(DataSourceArrowWriter):
    """Of a batch query. Records are there when their task has ended, so there is nothing to commit."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[Any]) -> Written:
        """Raises RecordError, UnreachableError or ClientError."""
        # Compiled code, which takes its time to load: for tasks, and not for whoever plans or commits them.
        from logbrook.spark.sending import send_rows  # noqa: PLC0415

        return Written(send_rows(self.options, iterator))


class TopicStreamArrowWriter(DataSourceStreamArrowWriter):
    """Of a streaming query, with each micro-batch as a batch query has it."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[Any]) -> Written:
        """Raises RecordError, UnreachableError or ClientError, and ReplayError where delivery is exactly once."""
        if self.options.is_exactly_once:
            from logbrook.spark.exactly_once import current_part, send_once  # noqa: PLC0415

            return Written(send_once(self.options, current_part(self.options), iterator))
        from logbrook.spark.sending import send_rows  # noqa: PLC0415

        return Written(send_rows(self.options, iterator))


def _checked(found: WriteOptions, schema: StructType) -> WriteOptions:
    """The same options, when they and the columns fit. Raises SchemaError."""
    if "value" not in schema.names:
        raise SchemaError(
            f"column 'value' is required, string or binary; there are {', '.join(schema.names) or 'none'}"
        )
    if "topic" not in schema.names and found.topic is None:
        raise SchemaError("column 'topic' is required, string, unless the option 'topic' names one for all rows")
    for field in schema.fields:
        expected = _expected(field.name, field.dataType)
        if expected is not None:
            raise SchemaError(f"column {field.name!r} must be {expected}, not {field.dataType.simpleString()}; cast it")
    return found


def _expected(name: str, given: DataType) -> str | None:
    """What the column's type has to be, None when it is that or is nobody's business."""
    match name:
        case "key" | "value":
            return None if isinstance(given, StringType | BinaryType) else "string or binary"
        case "topic":
            return None if isinstance(given, StringType) else "string"
        case "partition":
            return None if isinstance(given, IntegerType) else "int"
        case "timestamp":
            return None if isinstance(given, TimestampType) else "timestamp"
        case "headers":
            return None if _is_headers(given) else _HEADERS
    return None


def _is_headers(given: DataType) -> bool:
    if not isinstance(given, ArrayType) or not isinstance(given.elementType, StructType):
        return False
    types = [(field.name, type(field.dataType)) for field in given.elementType.fields]
    return types == [("key", StringType), ("value", BinaryType)]
