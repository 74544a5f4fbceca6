"""`logbrook audit`: every record of some topics is looked at, and what is told of each partition adds up.

One pass checks every batch and counts; it goes on past batches that are damaged. Two more, for which Spark brings equal
records together, count duplicates and keys; they leave out the partitions in which something is damaged.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

from logbrook.model import TopicPartition
from logbrook.records.batch import iter_headers
from logbrook.records.columns import decode
from logbrook.records.errors import RecordsError
from logbrook.spark.fetching import Fetching, Run
from logbrook.spark.jobs.ranges import reading_exactly
from logbrook.spark.planner import Planner
from logbrook.spark.read_options import ReadOptions, read_options
from logbrook.spark.splits import OffsetRange, split_ranges

_COLUMNS = ("key", "value", "offset", "timestamp")
_TOP_KEYS = 5
_SHOWN_KEY_MAX = 40


class Found(NamedTuple):
    """What one pass over a range of offsets found. Offsets and times are None where there is no record."""

    range: OffsetRange
    records: int = 0
    bytes: int = 0
    null_keys: int = 0
    tombstones: int = 0
    repeated_offsets: int = 0
    unordered_times: int = 0
    damaged_batches: int = 0
    first_damage: str | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    first_time_us: int | None = None
    last_time_us: int | None = None

    @property
    def missing_offsets(self) -> int:
        """Offsets without a record that can be read: compacted away, or a mark of a transaction, or damaged."""
        return self.range.size - (self.records - self.repeated_offsets)


class Keys(NamedTuple):
    """How the records of a partition are spread over keys."""

    distinct: int
    largest_share: float
    top: tuple[tuple[str, int], ...]


class PartitionAudit(NamedTuple):
    """What is told of a partition. What was not looked at, or could not be, is None."""

    found: Found
    duplicates: int | None = None
    keys: Keys | None = None

    @property
    def partition(self) -> TopicPartition:
        return self.found.range.partition

    @property
    def is_sound(self) -> bool:
        return not (self.found.damaged_batches or self.found.repeated_offsets)


def audit(spark: SparkSession, options: Mapping[str, str], *, quick: bool = False) -> list[PartitionAudit]:
    """Look at all that `options`, those of a batch read, choose. `quick` leaves out duplicates and keys."""
    chosen = read_options(options, is_batch=True)
    ranges = _ranges(chosen)
    splits = split_ranges(ranges, spark.sparkContext.defaultParallelism * 2, None)
    tasks = [split.range for split in splits]
    parts: list[Found] = []
    if tasks:
        parts = spark.sparkContext.parallelize(tasks, len(tasks)).map(lambda one: audit_range(chosen, one)).collect()
    merged = [_merge(one, [part for part in parts if part.range.partition == one.partition]) for one in ranges]
    sound = [found.range for found in merged if found.records and not found.damaged_batches]
    if quick or not sound:
        return [PartitionAudit(found) for found in merged]
    rows = _rows(spark, options, sound)
    duplicates, keys = _count_duplicates(rows), _count_keys(rows)
    audited = []
    for found in merged:
        partition = found.range.partition
        is_sound = found.range in sound or not found.records
        none = 0 if is_sound and not found.damaged_batches else None
        audited.append(PartitionAudit(found, duplicates.get(partition, none), keys.get(partition)))
    return audited


def audit_range(options: ReadOptions, range_: OffsetRange) -> Found:
    """One pass over a range: what a task does."""
    found = Found(range_)
    for run in Fetching(options, range_).runs():
        for batch in _batches(run, range_):
            if isinstance(batch, str):
                damage = found.first_damage or batch
                found = found._replace(damaged_batches=found.damaged_batches + 1, first_damage=damage)
            else:
                found = _add(found, batch)
    return found


def as_json(audited: Iterable[PartitionAudit]) -> list[dict[str, Any]]:
    """For a report that a program reads."""
    report = []
    for one in audited:
        found = one.found._asdict()
        range_: OffsetRange = found.pop("range")
        keys = None if one.keys is None else one.keys._asdict() | {"top": [list(key) for key in one.keys.top]}
        report.append(
            {
                "topic": range_.partition.topic,
                "partition": range_.partition.partition,
                "start_offset": range_.start,
                "end_offset": range_.end,
                **found,
                "missing_offsets": one.found.missing_offsets,
                "duplicates": one.duplicates,
                "keys": keys,
                "sound": one.is_sound,
            }
        )
    return report


def _ranges(options: ReadOptions) -> list[OffsetRange]:
    planner = Planner(options)
    try:
        topics = planner.topics()
        partitions = planner.partitions(topics)
        starting, ending, earliest = (
            planner.starting(partitions),
            planner.ending(partitions),
            planner.earliest(partitions),
        )
        return [
            OffsetRange(one, max(starting[one], earliest[one]), ending[one], topics[one.topic].id) for one in partitions
        ]
    finally:
        planner.close()


def _batches(run: Run, range_: OffsetRange) -> Iterator[Any]:
    """The rows of a run; when it is damaged those of each batch, and for a damaged batch what is wrong with it."""
    try:
        yield _decode(run.data, range_)
    except RecordsError:
        for position, header in iter_headers(run.data):
            try:
                yield _decode(run.data[position : position + header.size], range_)
            except RecordsError as error:
                yield f"offset {header.base_offset}: {error}"


def _decode(data: memoryview, range_: OffsetRange) -> Any:
    return decode(
        data,
        topic=range_.partition.topic,
        partition=range_.partition.partition,
        start_offset=range_.start,
        end_offset=range_.end,
        columns=_COLUMNS,
    )


def _add(found: Found, batch: Any) -> Found:
    if not batch.num_rows:
        return found
    key, value, offset, timestamp = (batch.column(name) for name in _COLUMNS)
    offsets = offset.to_numpy()
    times = timestamp.cast("int64").to_numpy()
    steps = np.diff(offsets, prepend=found.last_offset if found.last_offset is not None else offsets[0] - 1)
    before = times[0] if found.last_time_us is None else found.last_time_us
    lengths = [pc.sum(pc.binary_length(column)).as_py() or 0 for column in (key, value)]
    return found._replace(
        records=found.records + batch.num_rows,
        bytes=found.bytes + sum(lengths),
        null_keys=found.null_keys + key.null_count,
        tombstones=found.tombstones + value.null_count,
        repeated_offsets=found.repeated_offsets + int((steps <= 0).sum()),
        unordered_times=found.unordered_times + int((np.diff(times, prepend=before) < 0).sum()),
        first_offset=int(offsets[0]) if found.first_offset is None else found.first_offset,
        last_offset=int(offsets[-1]),
        first_time_us=min(int(times.min()), before if found.first_time_us is None else found.first_time_us),
        last_time_us=int(times[-1]),
    )


def _merge(range_: OffsetRange, parts: list[Found]) -> Found:
    """The parts of a partition's range as one."""
    whole = Found(range_)
    for part in sorted(parts, key=lambda one: one.range.start):
        times = [one for one in (whole.first_time_us, part.first_time_us) if one is not None]
        whole = Found(
            range_,
            records=whole.records + part.records,
            bytes=whole.bytes + part.bytes,
            null_keys=whole.null_keys + part.null_keys,
            tombstones=whole.tombstones + part.tombstones,
            repeated_offsets=whole.repeated_offsets + part.repeated_offsets,
            unordered_times=whole.unordered_times + part.unordered_times,
            damaged_batches=whole.damaged_batches + part.damaged_batches,
            first_damage=whole.first_damage or part.first_damage,
            first_offset=part.first_offset if whole.first_offset is None else whole.first_offset,
            last_offset=whole.last_offset if part.last_offset is None else part.last_offset,
            first_time_us=min(times, default=None),
            last_time_us=whole.last_time_us if part.last_time_us is None else part.last_time_us,
        )
    return whole


def _rows(spark: SparkSession, options: Mapping[str, str], ranges: list[OffsetRange]) -> DataFrame:
    """The rows of exactly these ranges, whatever has been written since."""
    chosen = {name: text for name, text in options.items() if name.lower() not in ("columns", "includeheaders")}
    chosen["columns"] = "key,value,topic,partition,timestamp"
    return spark.read.format("logbrook").options(**reading_exactly(chosen, ranges)).load()


def _count_duplicates(rows: DataFrame) -> dict[TopicPartition, int]:
    """Records that have the key, the value and the timestamp of another."""
    same = F.xxhash64("key", "value", "timestamp", F.isnull("key"), F.isnull("value"))
    groups = rows.groupBy("topic", "partition", same.alias("same")).count().where("count > 1")
    counted = groups.groupBy("topic", "partition").agg(F.sum(F.col("count") - 1).alias("duplicates")).collect()
    return {TopicPartition(row.topic, row.partition): row.duplicates for row in counted}


def _count_keys(rows: DataFrame) -> dict[TopicPartition, Keys]:
    groups = rows.where("key is not null").groupBy("topic", "partition", "key").count()
    top = F.slice(F.sort_array(F.collect_list(F.struct("count", "key")), asc=False), 1, _TOP_KEYS)
    largest = F.max("count") / F.sum("count")
    # Only keys that could be among the largest are brought together.
    ranked = groups.selectExpr(
        "*", "row_number() over (partition by topic, partition order by count desc) as place"
    ).where(f"place <= {_TOP_KEYS}")
    tops = {
        TopicPartition(row.topic, row.partition): tuple((_shown(key), count) for count, key in row.top)
        for row in ranked.groupBy("topic", "partition").agg(top.alias("top")).collect()
    }
    counted = groups.groupBy("topic", "partition").agg(F.count("*").alias("distinct"), largest.alias("share")).collect()
    return {
        (partition := TopicPartition(row.topic, row.partition)): Keys(row.distinct, row.share, tops[partition])
        for row in counted
    }


def _shown(key: bytes | bytearray) -> str:
    return bytes(key).decode("utf-8", "backslashreplace")[:_SHOWN_KEY_MAX]
