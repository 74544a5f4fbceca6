"""`spark.read`: all that is in a range of offsets, decided when the query is planned."""

from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from logbrook.model import TopicPartition
from logbrook.spark.planner import Planner
from logbrook.spark.pushdown import Pushed, narrow, push
from logbrook.spark.read_options import ReadOptions
from logbrook.spark.splits import OffsetRange, Split, split_ranges


class TopicReader(DataSourceReader):
    """Made on the driver, where it plans, and sent to the executors, where it reads."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._pushed = Pushed()

    def partitions(self) -> list[InputPartition]:
        planner = Planner(self._options)
        try:
            topics = planner.topics()
            partitions = planner.partitions(topics)
            starting, ending = planner.starting(partitions), planner.ending(partitions)
            ranges = [OffsetRange(one, starting[one], ending[one], topics[one.topic].id) for one in partitions]
            if self._options.starting.offsets or self._options.ending.offsets:
                ranges = _that_are_there(ranges, planner)
            ranges = narrow(ranges, self._pushed, planner.offsets)
        finally:
            planner.close()
        splits: list[InputPartition] = [
            *split_ranges(ranges, self._options.splits_min, self._options.split_records_max)
        ]
        # For no split at all Spark makes up one of its own.
        return splits or [Split(OffsetRange(TopicPartition("", 0), 0, 0))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Split)
        if partition.range.size > 0:
            # Compiled code, which takes its time to load: for tasks, and not for whoever plans them.
            from logbrook.spark.fetching import read_range  # noqa: PLC0415

            yield from read_range(self._options, self._columns, partition.range)


class FilteringTopicReader(TopicReader):
    """Only where Spark pushes filters down: a reader that could take them is an error elsewhere."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        self._pushed, left = push(filters)
        return left


def _that_are_there(ranges: list[OffsetRange], planner: Planner) -> list[OffsetRange]:
    """What the log has of ranges that were given as numbers. Raises DataLossError where it does not have it all."""
    partitions = [one.partition for one in ranges]
    earliest, latest = planner.earliest(partitions), planner.latest(partitions)
    found = []
    for one in ranges:
        partition, start, end = one.partition, one.start, one.end
        first, last = earliest[partition], latest[partition]
        if start < first:
            planner.lose(f"offset {start} of {partition} is gone; the log now starts at {first}")
        if max(start, end) > last:
            planner.lose(f"offset {max(start, end)} of {partition} is not there; the log ends at {last}")
        found.append(one._replace(start=max(start, first), end=min(end, last)))
    return found
