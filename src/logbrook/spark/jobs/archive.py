"""`logbrook archive`: the records of topics into a table, each once, however often it is run.

A table that was archived to before says in its newest commit how far it holds each partition, and the next run goes on
from there. The rows and that progress are one commit: a run that is killed has written nothing, or everything.
"""

from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql import SparkSession

from logbrook.spark.jobs.ranges import reading_exactly
from logbrook.spark.planner import Planner
from logbrook.spark.read_options import read_options
from logbrook.spark.splits import OffsetRange
from logbrook.spark.tables.formats import open_format
from logbrook.spark.tables.offsets import OFFSETS_KEY, Offsets, from_json
from logbrook.spark.tables.options import TableOptions

# A task that reads more than this is divided, where nobody says otherwise.
_SPLIT_RECORDS_MAX = 5_000_000


class Archived(NamedTuple):
    """The offsets that were new to the table; control records and gaps are among them."""

    ranges: tuple[OffsetRange, ...]

    @property
    def offsets(self) -> int:
        return sum(one.size for one in self.ranges)


def archive(
    spark: SparkSession, topic_options: Mapping[str, str], table: str, table_options: Mapping[str, str] | None = None
) -> Archived:
    """Append what `topic_options`, those of a batch read, choose and the table does not hold yet. Raises SparkError."""
    options = {"maxRecordsPerPartition": str(_SPLIT_RECORDS_MAX), **topic_options}
    writing = {**(table_options or {}), "path": table, "source.offsets": "auto"}
    ranges = _new_ranges(options, _held(writing))
    if not ranges:
        return Archived(())
    rows = spark.read.format("logbrook").options(**reading_exactly(options, ranges)).load()
    rows.write.format("logbrook_table").options(**writing).mode("append").save()
    return Archived(tuple(ranges))


def _held(table_options: Mapping[str, str]) -> Offsets:
    version = open_format(TableOptions.parse(table_options)).load()
    return {} if version is None else from_json(version.properties().get(OFFSETS_KEY))


def _new_ranges(topic_options: Mapping[str, str], held: Offsets) -> list[OffsetRange]:
    planner = Planner(read_options(topic_options, is_batch=True))
    try:
        partitions = planner.partitions(planner.topics())
        starting, ending = planner.starting(partitions), planner.ending(partitions)
        earliest = planner.earliest(partitions)
    finally:
        planner.close()
    ranges = []
    for one in partitions:
        known = held.get(one.topic, {}).get(one.partition)
        start = starting[one] if known is None else max(known, starting[one])
        if known is not None and known < earliest[one]:
            planner.lose(f"{one} lost the offsets from {known} to {earliest[one] - 1} before they were archived")
        ranges.append(OffsetRange(one, max(start, earliest[one]), ending[one]))
    return [one for one in ranges if one.size > 0]
