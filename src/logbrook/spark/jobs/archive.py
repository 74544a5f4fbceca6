"""`logbrook archive`: append the records of topics to a table, each once, however often it is run.

The table's newest commit holds the next offset of each partition, and the next run continues there. Rows and offsets
are one commit: a run that is killed has written everything or nothing.
"""

from collections.abc import Mapping
from contextlib import closing
from typing import NamedTuple

from pyspark.sql import SparkSession

from logbrook.spark.offset_ranges import OffsetRange, options_for_ranges
from logbrook.spark.planner import Planner, report_data_loss
from logbrook.spark.read_options import read_options
from logbrook.spark.tables.commits import OFFSETS_KEY, TableOffsets, offsets_from_json
from logbrook.spark.tables.format import TableOptions, open_format
from logbrook.spark.tables.hadoop_settings import session_settings

# Default of maxRecordsPerPartition.
_SPLIT_RECORDS_MAX = 5_000_000


class ArchiveResult(NamedTuple):
    """The archived offset ranges. They include offsets without a record: control records and gaps."""

    ranges: tuple[OffsetRange, ...]

    @property
    def offsets(self) -> int:
        return sum(range_.size for range_ in self.ranges)


def archive(
    spark: SparkSession, topic_options: Mapping[str, str], table: str, table_options: Mapping[str, str] | None = None
) -> ArchiveResult:
    """Append the records that `topic_options` (of a batch read) select and the table lacks. Raises SparkError."""
    options = {"maxRecordsPerPartition": str(_SPLIT_RECORDS_MAX), **topic_options}
    write_options = {**(table_options or {}), "path": table, "source.offsets": "auto"}
    ranges = _new_ranges(options, _archived_offsets({**session_settings(spark), **write_options}))
    if not ranges:
        return ArchiveResult(())
    rows = spark.read.format("logbrook").options(**options_for_ranges(options, ranges)).load()
    rows.write.format("logbrook_table").options(**write_options).mode("append").save()
    return ArchiveResult(tuple(ranges))


def _archived_offsets(table_options: Mapping[str, str]) -> TableOffsets:
    version = open_format(TableOptions.parse(table_options)).load()
    return {} if version is None else offsets_from_json(version.properties().get(OFFSETS_KEY))


def _new_ranges(topic_options: Mapping[str, str], archived: TableOffsets) -> list[OffsetRange]:
    options = read_options(topic_options, is_batch=True)
    with closing(Planner(options)) as planner:
        requested = planner.ranges()
        earliest = planner.earliest([range_.partition for range_ in requested])
    ranges = []
    for range_ in requested:
        partition, log_start = range_.partition, earliest[range_.partition]
        next_offset = archived.get(partition.topic, {}).get(partition.partition)
        if next_offset is not None and next_offset < log_start:
            loss = f"{partition} lost offsets {next_offset} to {log_start - 1} before they were archived"
            report_data_loss(options, loss)
        ranges.append(range_._replace(start=max(range_.start, log_start, next_offset or 0)))
    return [range_ for range_ in ranges if range_.size > 0]
