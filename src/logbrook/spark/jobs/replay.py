"""`logbrook replay`: write the rows of a topic or a table to a topic, at full speed or paced by their timestamps.

With a pace, a record is sent (timestamp - first timestamp) / pace after the start. Each task measures from its own
first record, so all tasks must be able to run at the same time.
"""

import time
from collections.abc import Iterator, Mapping
from threading import Event
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from logbrook.spark.arrow_batches import gather_batches
from logbrook.spark.errors import OptionError, SparkError
from logbrook.spark.headers import without_null_headers
from logbrook.spark.sending import send_rows
from logbrook.spark.write_options import write_options

_SENT = ("key", "value", "headers")
_SENT_SCHEMA = pa.schema([("records", pa.int64())])
# Records due within this time are sent together.
_TICK_US = 20_000


class ReplayColumnError(SparkError):
    """The rows to replay lack a required column."""

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
    """Write `rows` with the options of the topic sink, and return their number. Raises SparkError.

    `pace` 1 replays in the original time, 10 ten times as fast; None does not wait.
    """
    for column in ("value", "timestamp"):
        if column not in rows.columns:
            raise ReplayColumnError(column)
    target = write_options(options)
    if target.is_exactly_once:
        raise OptionError("delivery", "exactly-once is not possible here: each replay writes all rows")
    kept = [name for name in _SENT if name in rows.columns]
    kept += ["partition"] if keep_partitions else []
    first_us = _first_time_us(rows) if pace is not None else None
    if first_us is None and pace is not None:
        return 0

    def send(batches: Iterator[Any]) -> Iterator[Any]:
        if pace is not None and first_us is not None:
            batches = paced(batches, pace, first_us)
        else:
            batches = gather_batches(batches)
        columns = [*kept, "timestamp"] if keep_timestamps else kept
        sent = send_rows(target, (batch.select(columns) for batch in batches))
        yield pa.RecordBatch.from_pydict({"records": [sent]}, schema=_SENT_SCHEMA)

    chosen = without_null_headers(rows.select(*kept, "timestamp"))
    if pace is not None:
        chosen = chosen.sortWithinPartitions("timestamp")
    counted = chosen.mapInArrow(send, "records long").agg(F.sum("records").alias("records")).first()
    return 0 if counted is None or counted.records is None else int(counted.records)


def paced(batches: Iterator[Any], pace: float, first_us: int) -> Iterator[Any]:
    """Yield rows, which must be sorted by timestamp, when they are due, in slices of about a tick."""
    pause = Event()
    starts_s: float | None = None
    for batch in batches:
        if starts_s is None:
            starts_s = time.time()
        times = batch.column("timestamp").cast(pa.int64()).to_numpy()
        first = 0
        while first < batch.num_rows:
            due_s = starts_s + (int(times[first]) - first_us) / 1e6 / pace
            wait_s = due_s - time.time()
            if wait_s > 0:
                pause.wait(wait_s)
            passed_us = first_us + int((time.time() - starts_s) * 1e6 * pace) + _TICK_US
            end = max(first + 1, int(np.searchsorted(times, passed_us, side="right")))
            yield batch.slice(first, end - first)
            first = end


def _first_time_us(rows: DataFrame) -> int | None:
    row = rows.agg(F.unix_micros(F.min("timestamp")).alias("first")).first()
    return None if row is None else row["first"]
