"""The Spark data source `logbrook` and its batch reader.

`LogbrookDataSource` is the entry point of `spark.read`, `readStream`, `write` and `writeStream` with
format("logbrook"). `TopicReader` is the batch reader: the offset ranges are fixed when the query is planned.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from logbrook.spark.contacts import check_sink
from logbrook.spark.offset_ranges import (
    OffsetRange,
    PushedFilters,
    RangePartition,
    accept_filters,
    input_partitions,
    narrow_ranges,
)
from logbrook.spark.options import OptionReader
from logbrook.spark.planner import Planner, report_data_loss
from logbrook.spark.read_options import (
    ReadOptions,
    read_columns,
    read_options,
    read_registered,
    read_subscription,
    read_value_format,
)
from logbrook.spark.schema import (
    DECODING_COLUMNS,
    columns_of,
    json_schema,
    registered_schema,
    spark_schema,
    value_schema_of,
)
from logbrook.spark.schemas.reader_schema import fetch_reader_schema, reader_schema_of

# Loaded only in the process that pushes filters down. If spark.sql.python.filterPushdown.enabled is false, Spark
# rejects any reader that has pushFilters, even for a query without a filter.
_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


# Columns that need the values to be decoded, if they have a schema in a registry.
_DECODED = frozenset({"value", *DECODING_COLUMNS})


class LogbrookDataSource(DataSource):
    """The format `logbrook`: topics of a Kafka-compatible cluster."""

    @classmethod
    def name(cls) -> str:
        return "logbrook"

    def schema(self) -> StructType | str:
        options = OptionReader(self._option_texts)
        columns = read_columns(options)
        registered = read_registered(options)
        if registered is not None and not _DECODED.isdisjoint(columns):
            topics = read_subscription(options).names
            return registered_schema(columns, fetch_reader_schema(registered, topics))
        is_json, value_schema = read_value_format(options)
        return json_schema(columns, value_schema) if is_json and "value" in columns else spark_schema(columns)

    def reader(self, schema: StructType) -> "TopicReader":
        options = self._read_options(schema, is_batch=True)
        reader_class = FilteringTopicReader if _PUSHDOWN_WORKER in sys.modules else TopicReader
        return reader_class(options, _columns_of(schema, options))

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802 - Spark's name
        from logbrook.spark.stream_reader import TopicStreamReader  # noqa: PLC0415

        options = self._read_options(schema, is_batch=False)
        return TopicStreamReader(options, _columns_of(schema, options))

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        from logbrook.spark.writer import batch_writer  # noqa: PLC0415

        writer = batch_writer(self._option_texts, schema, overwrite)
        check_sink(writer.options)
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
        from logbrook.spark.writer import stream_writer  # noqa: PLC0415

        writer = stream_writer(self._option_texts, schema, overwrite)
        check_sink(writer.options)
        return writer

    def _read_options(self, schema: StructType, *, is_batch: bool) -> ReadOptions:
        options = read_options(self._option_texts, is_batch=is_batch)
        if options.registered is None:
            return options._replace(value_schema=value_schema_of(schema))
        if _DECODED.isdisjoint(schema.names):
            return options._replace(registered=None)
        # A schema that the user gives has no metadata.
        reader = reader_schema_of(schema) or fetch_reader_schema(options.registered, options.subscription.names)
        return options._replace(reader_schema=reader)

    @property
    def _option_texts(self) -> dict[str, str]:
        return dict(self.options)


class TopicReader(DataSourceReader):
    """Plans offset ranges on the driver; a pickled copy reads them on the executors."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._pushed = PushedFilters()

    def partitions(self) -> list[InputPartition]:
        with closing(Planner(self._options)) as planner:
            ranges = planner.ranges()
            if self._options.starting.offsets or self._options.ending.offsets:
                ranges = _clip_to_log(ranges, planner)
            ranges = narrow_ranges(ranges, self._pushed, planner.offsets)
        return input_partitions(ranges, self._options.splits_min, self._options.split_records_max)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield from read_partition(self._options, self._columns, partition)


class FilteringTopicReader(TopicReader):
    """A TopicReader with filter pushdown, for sessions that have it enabled."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        self._pushed, remaining = accept_filters(filters)
        return remaining


def _columns_of(schema: StructType, options: ReadOptions) -> tuple[str, ...]:
    return columns_of(schema, is_json=options.is_json, reader_schema=options.reader_schema)


def read_partition(options: ReadOptions, columns: tuple[str, ...], partition: InputPartition) -> Iterator[Any]:
    """Yield the rows of one input partition as pyarrow.RecordBatch, in an executor's task. Raises SparkError."""
    assert isinstance(partition, RangePartition)
    if partition.range.size > 0:
        # Loads numba and pyarrow, which the planning process does not need.
        from logbrook.spark.fetching import read_range  # noqa: PLC0415

        yield from read_range(options, columns, partition.range)


def _clip_to_log(ranges: list[OffsetRange], planner: Planner) -> list[OffsetRange]:
    """Clip ranges given as explicit offsets to the log. Raises DataLossError if one exceeds it."""
    partitions = [requested.partition for requested in ranges]
    earliest, latest = planner.earliest(partitions), planner.latest(partitions)
    clipped = []
    for requested in ranges:
        partition, start, end = requested.partition, requested.start, requested.end
        log_start, log_end = earliest[partition], latest[partition]
        if start < log_start:
            report_data_loss(
                planner.options, f"offset {start} of {partition} is gone; the log now starts at {log_start}"
            )
        if max(start, end) > log_end:
            report_data_loss(
                planner.options, f"offset {max(start, end)} of {partition} is not there; the log ends at {log_end}"
            )
        clipped.append(requested._replace(start=max(start, log_start), end=min(end, log_end)))
    return clipped
