"""The topic sink of the format `logbrook`: schema check and the writers that Spark calls.

Columns, as in Spark's Kafka sink:

    value      string or binary, or with a schema registry any type; null is a tombstone
    key        string or binary
    headers    array<struct<key string, value binary>>
    topic      string; the option `topic` overrides it
    partition  int; if null or absent, Kafka's default partitioner chooses
    timestamp  timestamp; if null or absent, the current time

Other columns are ignored. Delivery is at least once: a retried task writes its rows again, while within one attempt an
idempotent producer writes each row once and in order. With `delivery=exactly-once` tasks use transactions, see
`exactly_once`.
"""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType, TimestampType

from logbrook.spark.errors import OptionError
from logbrook.spark.micro_batch import current_micro_batch
from logbrook.spark.schema import SchemaError
from logbrook.spark.write_options import WriteOptions, write_options

# Types of the other columns, and their names in messages.
_TYPES: dict[str, tuple[type[DataType] | tuple[type[DataType], ...], str]] = {
    "key": ((StringType, BinaryType), "string or binary"),
    "value": ((StringType, BinaryType), "string or binary"),
    "topic": (StringType, "string"),
    "partition": (IntegerType, "int"),
    "timestamp": (TimestampType, "timestamp"),
}
_HEADERS = "array<struct<key:string,value:binary>>"


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> "TopicArrowWriter":
    """Raises OptionError or SchemaError."""
    if overwrite:
        raise OptionError("mode", "a topic cannot be overwritten; write with mode('append'), the only mode of topics")
    return TopicArrowWriter(_checked(write_options(options), schema))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> "TopicStreamArrowWriter":
    """Raises OptionError or SchemaError.

    `overwrite` stands for the output mode complete. As in Spark's Kafka sink, each micro-batch then appends all rows of
    the result.
    """
    del overwrite
    return TopicStreamArrowWriter(_checked(write_options(options, is_stream=True), schema))


@dataclass(frozen=True)
class TopicCommitMessage(WriterCommitMessage):
    """Commit message of a task of the topic sink."""

    records: int


class RepeatedRowsWarning(UserWarning):
    """A write inside `foreachBatch` writes its rows again if the micro-batch is repeated."""


class TopicArrowWriter(DataSourceArrowWriter):
    """Writer of a batch query. Records are acknowledged when their task ends, so the driver has nothing to commit."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[Any]) -> TopicCommitMessage:
        """Raises RecordError, UnreachableError or ClientError; with exactly-once delivery also ReplayError."""
        # The imports load numba and pyarrow, which the processes that plan and commit do not need.
        from logbrook.spark.arrow_batches import gather_batches  # noqa: PLC0415

        batches = gather_batches(iterator)
        if self.options.is_exactly_once:
            from logbrook.spark.exactly_once import current_batch_write, send_once  # noqa: PLC0415

            return TopicCommitMessage(send_once(self.options, current_batch_write(self.options), batches))
        if current_micro_batch() is not None:
            message = "a repeated micro-batch is written to the topic again; delivery=exactly-once writes it once"
            warnings.warn(message, RepeatedRowsWarning, stacklevel=1)
        from logbrook.spark.sending import send_rows  # noqa: PLC0415

        return TopicCommitMessage(send_rows(self.options, batches))


class TopicStreamArrowWriter(DataSourceStreamArrowWriter):
    """Writer of a streaming query."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[Any]) -> TopicCommitMessage:
        """Raises RecordError, UnreachableError or ClientError; with exactly-once delivery also ReplayError."""
        from logbrook.spark.arrow_batches import gather_batches  # noqa: PLC0415

        batches = gather_batches(iterator)
        if self.options.is_exactly_once:
            from logbrook.spark.exactly_once import current_task_batch, send_once  # noqa: PLC0415

            return TopicCommitMessage(send_once(self.options, current_task_batch(self.options), batches))
        from logbrook.spark.sending import send_rows  # noqa: PLC0415

        return TopicCommitMessage(send_rows(self.options, batches))


def _checked(options: WriteOptions, schema: StructType) -> WriteOptions:
    """Return `options` if `schema` can be written with them. Raises SchemaError."""
    if "value" not in schema.names:
        raise SchemaError(
            f"column 'value' is required, string or binary; there are {', '.join(schema.names) or 'none'}"
        )
    if "topic" not in schema.names and options.topic is None:
        raise SchemaError("column 'topic' is required, string, unless the option 'topic' names one for all rows")
    for field in schema.fields:
        if field.name == "value" and options.encoding is not None:
            options = options._replace(encoding=options.encoding.for_column(field.dataType))
            continue
        expected = _expected_type(field.name, field.dataType)
        if expected is not None:
            raise SchemaError(f"column {field.name!r} must be {expected}, not {field.dataType.simpleString()}; cast it")
    return options


def _expected_type(name: str, given: DataType) -> str | None:
    """Return the type that column `name` must have instead of `given`, or None if it is right or not checked."""
    if name == "headers":
        return None if _is_headers(given) else _HEADERS
    types, text = _TYPES.get(name, (DataType, ""))
    return None if isinstance(given, types) else text


def _is_headers(given: DataType) -> bool:
    if not isinstance(given, ArrayType) or not isinstance(given.elementType, StructType):
        return False
    types = [(field.name, type(field.dataType)) for field in given.elementType.fields]
    return types == [("key", StringType), ("value", BinaryType)]
