"""`logbrook audit`: verify every record batch of topics, and count records, gaps, duplicates and keys per partition.

The first pass verifies and counts every record batch, and continues after corrupt ones. Two more passes, with a
shuffle, count duplicates and keys; they skip partitions with corrupt batches.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.records.batch import iter_headers
from logbrook.records.errors import RecordsError
from logbrook.spark.fetching import BatchRun, RangeFetcher, decode_range
from logbrook.spark.offset_ranges import OffsetRange, options_for_ranges, split_ranges
from logbrook.spark.planner import Planner
from logbrook.spark.read_options import ReadOptions, read_options

_COLUMNS = ("key", "value", "offset", "timestamp")
_SUMMED = ("records", "bytes", "null_keys", "tombstones", "repeated_offsets", "unordered_times", "damaged_batches")
_TOP_KEYS = 5
_SHOWN_KEY_MAX = 40


class RangeCounts(NamedTuple):
    """Counts of one offset range. First and last offsets and timestamps are None if it has no records."""

    range: OffsetRange
    records: int = 0
    bytes: int = 0
    null_keys: int = 0
    tombstones: int = 0
    repeated_offsets: int = 0
    unordered_times: int = 0
    damaged_batches: int = 0
    first_damage: str | None = None
    first_offset: Offset | None = None
    last_offset: Offset | None = None
    first_time_us: int | None = None
    last_time_us: int | None = None

    @property
    def missing_offsets(self) -> int:
        """Offsets without a readable record: compacted, a transaction marker, or in a corrupt batch."""
        return self.range.size - (self.records - self.repeated_offsets)


class KeyDistribution(NamedTuple):
    """Number of distinct keys, the share of the most frequent key, and the most frequent keys with their counts."""

    distinct: int
    largest_share: float
    top: tuple[tuple[str, int], ...]


class PartitionAudit(NamedTuple):
    """Result of one partition. `duplicates` and `keys` are None if they were not counted."""

    counts: RangeCounts
    duplicates: int | None = None
    keys: KeyDistribution | None = None

    @property
    def partition(self) -> TopicPartition:
        return self.counts.range.partition

    @property
    def is_sound(self) -> bool:
        return not (self.counts.damaged_batches or self.counts.repeated_offsets)


def audit(spark: SparkSession, options: Mapping[str, str], *, quick: bool = False) -> list[PartitionAudit]:
    """Audit what `options` (of a batch read) select. `quick` skips duplicates and keys. Raises SparkError."""
    parsed = read_options(options, is_batch=True)
    ranges = _ranges(parsed)
    splits = split_ranges(ranges, spark.sparkContext.defaultParallelism * 2, None)
    tasks = [split.range for split in splits]
    parts: list[RangeCounts] = []
    if tasks:
        parts = spark.sparkContext.parallelize(tasks, len(tasks)).map(lambda task: audit_range(parsed, task)).collect()
    merged = [_merge(range_, [part for part in parts if part.range.partition == range_.partition]) for range_ in ranges]
    sound = [counts.range for counts in merged if counts.records and not counts.damaged_batches]
    if quick or not sound:
        return [PartitionAudit(counts) for counts in merged]
    rows = _rows(spark, options, sound)
    duplicates, keys = _count_duplicates(rows), _count_keys(rows)
    audited = []
    for counts in merged:
        partition = counts.range.partition
        is_counted = counts.range in sound or (not counts.records and not counts.damaged_batches)
        default = 0 if is_counted else None
        audited.append(PartitionAudit(counts, duplicates.get(partition, default), keys.get(partition)))
    return audited


def audit_range(options: ReadOptions, range_: OffsetRange) -> RangeCounts:
    """Verify and count one offset range, in a task."""
    counts = RangeCounts(range_)
    for run in RangeFetcher(options, range_).runs():
        for batch in _batches(run, range_):
            if isinstance(batch, str):
                first_damage = counts.first_damage or batch
                counts = counts._replace(damaged_batches=counts.damaged_batches + 1, first_damage=first_damage)
            else:
                counts = _add(counts, batch)
    return counts


def audit_report(audited: Iterable[PartitionAudit]) -> list[dict[str, Any]]:
    """Return the audit as JSON objects, one per partition."""
    report = []
    for result in audited:
        counts = result.counts._asdict()
        range_: OffsetRange = counts.pop("range")
        keys = None if result.keys is None else result.keys._asdict() | {"top": [list(key) for key in result.keys.top]}
        report.append(
            {
                "topic": range_.partition.topic,
                "partition": range_.partition.partition,
                "start_offset": range_.start,
                "end_offset": range_.end,
                **counts,
                "missing_offsets": result.counts.missing_offsets,
                "duplicates": result.duplicates,
                "keys": keys,
                "sound": result.is_sound,
            }
        )
    return report


def _ranges(options: ReadOptions) -> list[OffsetRange]:
    with closing(Planner(options)) as planner:
        ranges = planner.ranges()
        earliest = planner.earliest([range_.partition for range_ in ranges])
    return [range_._replace(start=max(range_.start, earliest[range_.partition])) for range_ in ranges]


def _batches(run: BatchRun, range_: OffsetRange) -> Iterator[Any]:
    """Yield a run's rows as one Arrow batch; if it is corrupt, those of each batch, or a message for a corrupt one."""
    try:
        yield decode_range(run.data, _COLUMNS, range_)
    except RecordsError:
        for position, header in iter_headers(run.data):
            try:
                yield decode_range(run.data[position : position + header.size], _COLUMNS, range_)
            except RecordsError as error:
                yield f"offset {header.base_offset}: {error}"


def _add(counts: RangeCounts, batch: Any) -> RangeCounts:
    if not batch.num_rows:
        return counts
    key, value, offset, timestamp = (batch.column(name) for name in _COLUMNS)
    offsets = offset.to_numpy()
    times = timestamp.cast("int64").to_numpy()
    steps = np.diff(offsets, prepend=counts.last_offset if counts.last_offset is not None else offsets[0] - 1)
    previous_us = times[0] if counts.last_time_us is None else counts.last_time_us
    lengths = [pc.sum(pc.binary_length(column)).as_py() or 0 for column in (key, value)]
    return counts._replace(
        records=counts.records + batch.num_rows,
        bytes=counts.bytes + sum(lengths),
        null_keys=counts.null_keys + key.null_count,
        tombstones=counts.tombstones + value.null_count,
        repeated_offsets=counts.repeated_offsets + int((steps <= 0).sum()),
        unordered_times=counts.unordered_times + int((np.diff(times, prepend=previous_us) < 0).sum()),
        first_offset=Offset(int(offsets[0]) if counts.first_offset is None else counts.first_offset),
        last_offset=Offset(int(offsets[-1])),
        first_time_us=min(int(times.min()), previous_us if counts.first_time_us is None else counts.first_time_us),
        last_time_us=int(times[-1]),
    )


def _merge(range_: OffsetRange, parts: list[RangeCounts]) -> RangeCounts:
    """Add up the counts of the parts of `range_`."""
    whole = RangeCounts(range_)
    for part in sorted(parts, key=lambda part: part.range.start):
        times = [time_us for time_us in (whole.first_time_us, part.first_time_us) if time_us is not None]
        whole = RangeCounts(
            range_,
            **{name: getattr(whole, name) + getattr(part, name) for name in _SUMMED},
            first_damage=whole.first_damage or part.first_damage,
            first_offset=part.first_offset if whole.first_offset is None else whole.first_offset,
            last_offset=whole.last_offset if part.last_offset is None else part.last_offset,
            first_time_us=min(times, default=None),
            last_time_us=whole.last_time_us if part.last_time_us is None else part.last_time_us,
        )
    return whole


def _rows(spark: SparkSession, options: Mapping[str, str], ranges: list[OffsetRange]) -> DataFrame:
    """Return the rows of exactly `ranges`, without records written since."""
    read = {name: text for name, text in options.items() if name.lower() not in ("columns", "includeheaders")}
    read["columns"] = "key,value,topic,partition,timestamp"
    return spark.read.format("logbrook").options(**options_for_ranges(read, ranges)).load()


def _count_duplicates(rows: DataFrame) -> dict[TopicPartition, int]:
    """Count the records whose key, value and timestamp equal an earlier one's."""
    same = F.xxhash64("key", "value", "timestamp", F.isnull("key"), F.isnull("value"))
    groups = rows.groupBy("topic", "partition", same.alias("same")).count().where("count > 1")
    counted = groups.groupBy("topic", "partition").agg(F.sum(F.col("count") - 1).alias("duplicates")).collect()
    return {TopicPartition(row.topic, row.partition): row.duplicates for row in counted}


def _count_keys(rows: DataFrame) -> dict[TopicPartition, KeyDistribution]:
    groups = rows.where("key is not null").groupBy("topic", "partition", "key").count()
    top = F.slice(F.sort_array(F.collect_list(F.struct("count", "key")), asc=False), 1, _TOP_KEYS)
    largest = F.max("count") / F.sum("count")
    # Rank before collecting, so that only candidates for the top keys are gathered.
    ranked = groups.selectExpr(
        "*", "row_number() over (partition by topic, partition order by count desc) as place"
    ).where(f"place <= {_TOP_KEYS}")
    tops = {
        TopicPartition(row.topic, row.partition): tuple((_shown(key), count) for count, key in row.top)
        for row in ranked.groupBy("topic", "partition").agg(top.alias("top")).collect()
    }
    counted = groups.groupBy("topic", "partition").agg(F.count("*").alias("distinct"), largest.alias("share")).collect()
    return {
        (partition := TopicPartition(row.topic, row.partition)): KeyDistribution(
            row.distinct, row.share, tops[partition]
        )
        for row in counted
    }


def _shown(key: bytes | bytearray) -> str:
    return bytes(key).decode("utf-8", "backslashreplace")[:_SHOWN_KEY_MAX]
