"""`spark.readStream`: what is new, a micro-batch at a time.

Spark asks how far the next batch goes, writes that into its checkpoint, and has it read. When it asks again, what it
asked for before is done: so that is when the progress is committed as a consumer group, for everyone who watches lag.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from logbrook.client.cluster import TopicInfo
from logbrook.model import TopicPartition
from logbrook.spark.admission import Offsets, count_offsets, take_bytes, take_offsets
from logbrook.spark.planner import Planner
from logbrook.spark.progress import ids_in, offsets_in, to_document
from logbrook.spark.read_options import ReadOptions
from logbrook.spark.splits import OffsetRange, Split, split_ranges


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives on the driver for as long as the query; a copy without a connection goes to the executors to read."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._planner_now: Planner | None = None
        # With the trigger AvailableNow: what there was when the query started, and nothing later.
        self._last: Offsets | None = None
        self._committed: Offsets | None = None
        self._latest: dict[str, Any] | None = None
        self._took_at_s = time.monotonic()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_planner_now": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name, as those below
        topics = self._planner.topics()
        return to_document(self._planner.starting(self._planner.partitions(topics)), topics)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        planner = self._planner
        self._last = planner.latest(planner.partitions(planner.topics(may_lack=True)))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limits = self._options.limits
        if limits.offsets_max is not None:
            return ReadMaxRows(limits.offsets_max)
        return ReadAllAvailable() if limits.bytes_max is None else ReadMaxBytes(limits.bytes_max)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        topics = self._planner.topics(may_lack=True)
        base = self._starts(start, topics)
        self._commit(self._still_valid(start, topics))
        latest = self._planner.latest(base)
        for partition, offset in latest.items():
            if offset < base[partition]:
                self._planner.lose(f"{partition} ends at offset {offset}, and was read up to {base[partition]}")
                base[partition] = offset
        self._latest = to_document(latest, topics)
        if self._last is not None:
            latest = {one: min(offset, self._last.get(one, base[one])) for one, offset in latest.items()}
        end = self._admit(base, latest, limit)
        if count_offsets(base, end):
            self._took_at_s = time.monotonic()
        # Topics that are not there now may be again, and then they go on where they were.
        return {name: start[name] for name in start if name not in topics} | to_document(end, topics)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return self._latest

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        topics = self._planner.topics(may_lack=True)
        ends = self._still_valid(end, topics)
        base = self._starts(start, topics)
        earliest = self._planner.earliest(ends)
        ranges = []
        for partition, offset in ends.items():
            first = base.get(partition, earliest[partition])
            if first < earliest[partition] and offset > first:
                there = earliest[partition]
                last = min(offset, there) - 1
                self._planner.lose(f"offsets {first} to {last} of {partition} are gone; the log now starts at {there}")
                first = there
            ranges.append(OffsetRange(partition, first, offset, topics[partition.topic].id))
        splits: list[InputPartition] = [
            *split_ranges(ranges, self._options.splits_min, self._options.split_records_max)
        ]
        return splits or [Split(OffsetRange(TopicPartition("", 0), 0, 0))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Split)
        if partition.range.size > 0:
            # Compiled code, which takes its time to load: for tasks, and not for whoever plans them.
            from logbrook.spark.fetching import read_range  # noqa: PLC0415

            yield from read_range(self._options, self._columns, partition.range)

    def commit(self, end: dict[str, Any]) -> None:
        """Too late for the last batch of a run, so `latestOffset` does it."""

    def stop(self) -> None:
        if self._planner_now is not None:
            self._planner_now.close()

    @property
    def _planner(self) -> Planner:
        if self._planner_now is None:
            self._planner_now = Planner(self._options)
        return self._planner_now

    def _starts(self, start: Mapping[str, Any], topics: Mapping[str, TopicInfo]) -> Offsets:
        """Where each partition goes on: a new one at its beginning, and one of a new topic of an old name as well."""
        known, ids = offsets_in(start), ids_in(start)
        partitions = self._planner.partitions(topics)
        renewed = {name for name in topics if name in ids and ids[name] != topics[name].id}
        for name in renewed:
            self._planner.lose(f"topic {name!r} was deleted and created again since the query read it")
        gone = set(known) - set(partitions)
        if gone:
            self._planner.lose(f"partitions that were being read are gone: {', '.join(sorted(map(str, gone)))}")
        new = [one for one in partitions if one not in known or one.topic in renewed]
        return {one: known.get(one, 0) for one in partitions} | self._planner.earliest(new)

    def _still_valid(self, document: Mapping[str, Any], topics: Mapping[str, TopicInfo]) -> Offsets:
        """Its offsets in topics that are there, and are not others of the same name."""
        ids = ids_in(document)
        valid = {name for name, topic in topics.items() if ids.get(name) == topic.id}
        return {one: offset for one, offset in offsets_in(document).items() if one.topic in valid}

    def _admit(self, base: Offsets, latest: Offsets, limit: ReadLimit) -> Offsets:
        limits = self._options.limits
        available = count_offsets(base, latest)
        waited_ms = (time.monotonic() - self._took_at_s) * 1000
        is_waiting = limits.offsets_min is not None and available < limits.offsets_min and waited_ms < limits.delay_ms
        if is_waiting and self._last is None:
            return base
        if isinstance(limit, ReadAllAvailable):
            return latest
        end = latest
        if limits.offsets_max is not None:
            end = take_offsets(base, end, limits.offsets_max)
        if limits.bytes_max is not None:
            end = take_bytes(base, end, self._bytes_per_offset(latest), limits.bytes_max)
        return end

    def _bytes_per_offset(self, latest: Offsets) -> dict[TopicPartition, float]:
        earliest, sizes = self._planner.earliest(latest), self._planner.sizes(latest)
        return {one: sizes.get(one, 0) / max(1, latest[one] - earliest[one]) for one in latest}

    def _commit(self, offsets: Offsets) -> None:
        group_id = self._options.group_id
        if group_id is not None and offsets and offsets != self._committed:
            self._planner.commit(group_id, offsets)
            self._committed = offsets
