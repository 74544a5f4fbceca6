"""Sizes of the Arrow batches between Spark and Python.

Towards Spark, batches are split: the JVM holds a batch outside its heap, in memory that large values would exhaust.
From Spark come batches of at most `session_settings.ARROW_ROWS_MAX` rows, and sinks gather them, because each becomes
record batches or row groups of its own.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from logbrook.spark.worker_memory import freeze_imports

# Spark consumes Arrow batches of about this size fastest.
ROWS_MAX = 65_536
BYTES_MAX = 16 << 20
# A gathered batch; small enough for the processor's caches.
_GATHERED_ROWS = 10_000
_GATHERED_BYTES = 8 << 20


def split_batch(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `batch` in slices of at most `ROWS_MAX` rows and about `BYTES_MAX` bytes, but whole rows.

    The size of a slice follows from the average row. A slice with larger rows than that is split again.
    """
    if not batch.num_rows:
        return
    rows = min(ROWS_MAX, max(1, batch.num_rows * BYTES_MAX // max(1, batch.nbytes)))
    if rows >= batch.num_rows:
        yield batch
        return
    for first in range(0, batch.num_rows, rows):
        piece = batch.slice(first, rows)
        if rows > 1 and piece.nbytes > 2 * BYTES_MAX:
            yield from split_batch(piece)
        else:
            yield piece


def gather_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `batches` in larger batches; empty ones are dropped. Called in tasks of a sink."""
    freeze_imports()
    waiting: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        rows += batch.num_rows
        size_bytes += batch.nbytes
        if rows >= _GATHERED_ROWS or size_bytes >= _GATHERED_BYTES:
            yield _concatenated(waiting)
            waiting, rows, size_bytes = [], 0, 0
    if waiting:
        yield _concatenated(waiting)


def _concatenated(batches: list[Any]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
