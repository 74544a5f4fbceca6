"""`logbrook replay`: records of a topic or of a table into a topic, at full speed or as they once came.

With a pace, a record is sent when as much time has passed since the start as lies between its timestamp and the first
one's, divided by the pace. Each task keeps time on its own from its first record on, so there must be room for all of
them to run at once.
"""

import time
from collections.abc import Iterator, Mapping
from threading import Event
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

from logbrook.spark.errors import SparkError
from logbrook.spark.sending import send_rows
from logbrook.spark.write_options import write_options

_SENT = ("key", "value", "headers")
_SENT_SCHEMA = pa.schema([("records", pa.int64())])
# Records that are due within so much of each other are sent together.
_TICK_US = 20_000


class NotReplayableError(SparkError):
    def __init__(self, column: str) -> None:
        super().__init__(f"there is no column {column!r} to replay; records have at least a value and a timestamp")


def replay(
    rows: DataFrame,
    options: Mapping[str, str],
    *,
    pace: float | None = None,
    keep_partitions: bool = False,
    keep_timestamps: bool = False,
) -> int:
    """Write `rows` with the options of the topic sink, and return how many there were. Raises SparkError.

    `pace` 1 takes as long as it once took, 10 a tenth of that; without one there is no waiting.
    """
    for column in ("value", "timestamp"):
        if column not in rows.columns:
            raise NotReplayableError(column)
    target = write_options(options)
    kept = [name for name in _SENT if name in rows.columns]
    kept += ["partition"] if keep_partitions else []
    began_us = _first_time_us(rows) if pace is not None else None
    if began_us is None and pace is not None:
        return 0

    def send(batches: Iterator[Any]) -> Iterator[Any]:
        if pace is not None and began_us is not None:
            batches = paced(batches, pace, began_us)
        columns = [*kept, "timestamp"] if keep_timestamps else kept
        sent = send_rows(target, (batch.select(columns) for batch in batches))
        yield pa.RecordBatch.from_pydict({"records": [sent]}, schema=_SENT_SCHEMA)

    chosen = rows.select(*kept, "timestamp")
    if pace is not None:
        chosen = chosen.sortWithinPartitions("timestamp")
    counted = chosen.mapInArrow(send, "records long").agg(F.sum("records").alias("records")).first()
    return 0 if counted is None or counted.records is None else int(counted.records)


def paced(batches: Iterator[Any], pace: float, began_us: int) -> Iterator[Any]:
    """The rows, which are in the order of their times, a tick's worth at a time and each when it is due."""
    pause = Event()
    starts_s: float | None = None
    for batch in batches:
        if starts_s is None:
            starts_s = time.time()
        times = batch.column("timestamp").cast(pa.int64()).to_numpy()
        first = 0
        while first < batch.num_rows:
            due_s = starts_s + (int(times[first]) - began_us) / 1e6 / pace
            wait_s = due_s - time.time()
            if wait_s > 0:
                pause.wait(wait_s)
            passed_us = began_us + int((time.time() - starts_s) * 1e6 * pace) + _TICK_US
            end = max(first + 1, int(np.searchsorted(times, passed_us, side="right")))
            yield batch.slice(first, end - first)
            first = end


def _first_time_us(rows: DataFrame) -> int | None:
    found = rows.agg(F.unix_micros(F.min("timestamp")).alias("first")).first()
    return None if found is None else found["first"]
