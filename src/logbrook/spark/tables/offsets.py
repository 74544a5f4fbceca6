"""The offsets up to which a table holds a topic: for each partition the next offset to read.

A table's writer takes them from the rows that it writes, so they are exact also when somebody has filtered the stream:
then the tail starts right after the last row that was kept.
"""

import json
from collections.abc import Iterable

import pyarrow as pa

OFFSETS_KEY = "logbrook.offsets"
OFFSET_COLUMNS = ("topic", "partition", "offset")

# Next offset by topic and partition.
Offsets = dict[str, dict[int, int]]


def next_offsets(batch: pa.RecordBatch) -> Offsets:
    """The largest offset in `batch` plus one, for each topic and partition in it."""
    rows = pa.Table.from_batches([batch.select(list(OFFSET_COLUMNS))]).drop_null()
    largest = rows.group_by(["topic", "partition"]).aggregate([("offset", "max")])
    found: Offsets = {}
    columns = (largest.column(name).to_pylist() for name in ("topic", "partition", "offset_max"))
    for topic, partition, offset in zip(*columns, strict=True):
        found.setdefault(topic, {})[partition] = offset + 1
    return found


def merge(every: Iterable[Offsets]) -> Offsets:
    """The furthest of each partition."""
    merged: Offsets = {}
    for offsets in every:
        for topic, partitions in offsets.items():
            known = merged.setdefault(topic, {})
            for partition, offset in partitions.items():
                known[partition] = max(offset, known.get(partition, 0))
    return merged


def to_json(offsets: Offsets) -> str:
    """As Spark's Kafka source takes them in `startingOffsets`."""
    return json.dumps(
        {topic: {str(one): parts[one] for one in sorted(parts)} for topic, parts in sorted(offsets.items())}
    )


def from_json(text: str | None) -> Offsets:
    """The inverse of `to_json`; nothing for None."""
    read = json.loads(text) if text else {}
    return {topic: {int(number): offset for number, offset in parts.items()} for topic, parts in read.items()}
