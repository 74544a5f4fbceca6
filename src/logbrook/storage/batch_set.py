"""The batches of one append: checked before anything is written, then given their offsets.

Every append runs through here, so these are plain tuples: (position, header) of a batch that was checked, (position,
base offset, max timestamp) of one that was placed.
"""

from collections.abc import Sequence
from enum import Enum
from typing import TypeAlias

from logbrook.config import LogConfig, TimestampSource
from logbrook.model import TopicPartition
from logbrook.records.batch import (
    LENGTH_PREFIX_BYTES,
    NO_PRODUCER_ID,
    BatchHeader,
    check_batch,
    check_produced,
    stamp,
    stamp_log_append_time,
)
from logbrook.records.control import read_marker
from logbrook.records.errors import InvalidBatchError
from logbrook.storage.errors import BatchTooLargeError

Checked: TypeAlias = tuple[int, BatchHeader]
Placed: TypeAlias = tuple[int, int, int]


class Origin(Enum):
    """Who wrote a batch, which decides what it may contain."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


def check_batches(
    view: memoryview, partition: TopicPartition, config: LogConfig, origin: Origin
) -> tuple[list[Checked], int, bool]:
    """(every batch in `view`, all of them good; how many offsets they take up; whether any has a producer).

    Raises RecordsError or BatchTooLargeError.
    """
    batches: list[Checked] = []
    position, end, records = 0, len(view), 0
    size_max = config.max_message_bytes
    is_append_time = config.message_timestamp_type is TimestampSource.LOG_APPEND_TIME
    from_producers = False
    while position < end:
        header = check_batch(view, position, end)
        if origin is Origin.CLIENT:
            check_produced(header, is_log_append_time=is_append_time)
        elif header.is_control:
            # What it says must be known when the log is read again.
            read_marker(view[position : position + header.size])
        size = LENGTH_PREFIX_BYTES + header.batch_length
        if size > size_max:
            raise BatchTooLargeError(partition, size, size_max)
        if header.producer_id != NO_PRODUCER_ID:
            from_producers = True
        batches.append((position, header))
        records += header.last_offset_delta + 1
        position += size
    if not batches:
        raise InvalidBatchError("there is no batch to append")
    return batches, records, from_producers


def stamp_batches(
    view: memoryview, batches: Sequence[Checked], offset: int, leader_epoch: int, append_time_ms: int | None
) -> list[Placed]:
    """Write offsets from `offset` on, the epoch, and the time if there is one, into the batches."""
    placed: list[Placed] = []
    for position, header in batches:
        stamp(view, position, offset, leader_epoch)
        if append_time_ms is not None:
            stamp_log_append_time(view, position, append_time_ms)
        placed.append((position, offset, header.max_timestamp if append_time_ms is None else append_time_ms))
        offset += header.last_offset_delta + 1
    return placed
