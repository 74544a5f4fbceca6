"""The streaming reader of `spark.readStream.format("logbrook")`.

For each micro-batch Spark calls `latestOffset`, writes the result to its checkpoint, calls `partitions`, and runs the
tasks. When it calls `latestOffset` again, the batch before is complete: that is when its end offsets are committed for
the consumer group `group.id`, so that lag tools see the progress.

Offsets in the checkpoint are a JSON document with the next offset of each partition and the topic's id:

    {"orders": {"id": "5f0c…", "offsets": {"0": 120, "1": 97}}}

The id distinguishes a topic that was deleted and created again from the one that the query was reading.
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

from logbrook.client.partition_requests import TopicMetadata
from logbrook.model import TopicPartition
from logbrook.spark.errors import SparkError
from logbrook.spark.group_progress import GroupProgress
from logbrook.spark.offset_ranges import (
    OffsetRange,
    Offsets,
    count_offsets,
    input_partitions,
    limit_bytes,
    limit_offsets,
)
from logbrook.spark.planner import Planner, report_data_loss
from logbrook.spark.read_options import ReadOptions
from logbrook.spark.source import read_partition


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The streaming reader of one query, on the driver. Executors read with a pickled copy without the connection."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._open_planner: Planner | None = None
        # End of the query with trigger(availableNow=True): the log end offsets at its start. None for other triggers.
        self._final_offsets: Offsets | None = None
        self._progress = None if options.group_id is None else GroupProgress(options.group_id)
        self._latest: dict[str, Any] | None = None
        self._last_batch_at_s = time.monotonic()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open_planner": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's names
        topics = self._planner.topics()
        return offset_document(self._planner.starting(self._planner.partitions(topics)), topics)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        planner = self._planner
        self._final_offsets = planner.latest(planner.partitions(planner.topics(allow_missing=True)))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limits = self._options.limits
        if limits.offsets_max is not None:
            return ReadMaxRows(limits.offsets_max)
        return ReadAllAvailable() if limits.bytes_max is None else ReadMaxBytes(limits.bytes_max)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        topics = self._planner.topics(allow_missing=True)
        starts = self._start_offsets(start, topics)
        if self._progress is not None:
            self._progress.commit(self._planner, self._offsets_of_existing(start, topics))
        latest = self._planner.latest(starts)
        for partition, offset in latest.items():
            if offset < starts[partition]:
                report_data_loss(
                    self._options, f"{partition} ends at offset {offset}, and was read up to {starts[partition]}"
                )
                starts[partition] = offset
        self._latest = offset_document(latest, topics)
        if self._final_offsets is not None:
            final = self._final_offsets
            latest = {
                partition: min(offset, final.get(partition, starts[partition])) for partition, offset in latest.items()
            }
        end = self._admit(starts, latest, limit)
        if count_offsets(starts, end):
            self._last_batch_at_s = time.monotonic()
        # Keep the offsets of topics that are missing now, so that reading resumes there if they reappear.
        return {name: start[name] for name in start if name not in topics} | offset_document(end, topics)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return self._latest

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        topics = self._planner.topics(allow_missing=True)
        ends = self._offsets_of_existing(end, topics)
        starts = self._start_offsets(start, topics)
        earliest = self._planner.earliest(ends)
        ranges = []
        for partition, offset in ends.items():
            log_start = earliest[partition]
            first = starts.get(partition, log_start)
            if first < log_start and offset > first:
                last = min(offset, log_start) - 1
                report_data_loss(
                    self._options,
                    f"offsets {first} to {last} of {partition} are gone; the log now starts at {log_start}",
                )
                first = log_start
            ranges.append(OffsetRange(partition, first, offset, topics[partition.topic].id))
        return input_partitions(ranges, self._options.splits_min, self._options.split_records_max)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield from read_partition(self._options, self._columns, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark never calls this for the last batch of a run, so `latestOffset` commits to the group."""

    def stop(self) -> None:
        if self._open_planner is not None:
            self._open_planner.close()

    @property
    def _planner(self) -> Planner:
        if self._open_planner is None:
            self._open_planner = Planner(self._options)
        return self._open_planner

    def _start_offsets(self, start: Mapping[str, Any], topics: Mapping[str, TopicMetadata]) -> Offsets:
        """Return the next offset of each partition; the log start offset if it, or its topic, is new to the query."""
        offsets, ids = document_offsets(start), document_topic_ids(start)
        partitions = self._planner.partitions(topics)
        recreated = {name for name in topics if name in ids and ids[name] != topics[name].id}
        for name in recreated:
            report_data_loss(self._options, f"topic {name!r} was deleted and created again since the query read it")
        missing = set(offsets) - set(partitions)
        if missing:
            names = ", ".join(sorted(map(str, missing)))
            report_data_loss(self._options, f"partitions that were being read are gone: {names}")
        new = [partition for partition in partitions if partition not in offsets or partition.topic in recreated]
        return {partition: offsets.get(partition, 0) for partition in partitions} | self._planner.earliest(new)

    def _offsets_of_existing(self, document: Mapping[str, Any], topics: Mapping[str, TopicMetadata]) -> Offsets:
        """Return the document's offsets for topics that exist with the same topic id."""
        ids = document_topic_ids(document)
        valid = {name for name, topic in topics.items() if ids.get(name) == topic.id}
        offsets = document_offsets(document)
        return {partition: offset for partition, offset in offsets.items() if partition.topic in valid}

    def _admit(self, starts: Offsets, latest: Offsets, limit: ReadLimit) -> Offsets:
        """Return the end offsets of the next micro-batch; `starts` while minOffsetsPerTrigger is not reached."""
        limits = self._options.limits
        available = count_offsets(starts, latest)
        waited_ms = (time.monotonic() - self._last_batch_at_s) * 1000
        is_waiting = limits.offsets_min is not None and available < limits.offsets_min and waited_ms < limits.delay_ms
        if is_waiting and self._final_offsets is None:
            return starts
        if isinstance(limit, ReadAllAvailable):
            return latest
        end = latest
        if limits.offsets_max is not None:
            end = limit_offsets(starts, end, limits.offsets_max)
        if limits.bytes_max is not None:
            end = limit_bytes(starts, end, self._bytes_per_offset(latest), limits.bytes_max)
        return end

    def _bytes_per_offset(self, latest: Offsets) -> dict[TopicPartition, float]:
        earliest, sizes = self._planner.earliest(latest), self._planner.sizes(latest)
        return {
            partition: sizes.get(partition, 0) / max(1, end - earliest[partition]) for partition, end in latest.items()
        }


class CheckpointError(SparkError):
    """The offsets in a query's checkpoint were not written by this source."""


def offset_document(offsets: Mapping[TopicPartition, int], topics: Mapping[str, TopicMetadata]) -> dict[str, Any]:
    """Return the JSON document that Spark stores in its checkpoint."""
    document: dict[str, Any] = {}
    for partition, offset in sorted(offsets.items()):
        topic = document.setdefault(partition.topic, {"id": topics[partition.topic].id.hex(), "offsets": {}})
        topic["offsets"][str(partition.partition)] = offset
    return document


def document_offsets(document: Mapping[str, Any]) -> Offsets:
    """Return the next offsets of a checkpoint document. Raises CheckpointError."""
    try:
        return {
            TopicPartition(name, int(number)): int(offset)
            for name, topic in document.items()
            for number, offset in topic["offsets"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"the checkpoint has progress that this source did not write: {document!r}") from error


def document_topic_ids(document: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the topic ids of a checkpoint document. Raises CheckpointError."""
    try:
        return {name: bytes.fromhex(topic["id"]) for name, topic in document.items()}
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"the checkpoint has progress that this source did not write: {document!r}") from error
