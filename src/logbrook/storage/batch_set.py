"""The batches of one append: all are validated before any is written, then stamped with their offsets.

Every append runs through here, so the batches are plain tuples: (position, header) once validated, (position, base
offset, max timestamp) once stamped.
"""

from collections.abc import Sequence
from enum import Enum
from typing import TypeAlias

from logbrook.config import LogConfig
from logbrook.model import TopicPartition
from logbrook.model.identifiers import LeaderEpoch, Offset
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
from logbrook.records.record_count import check_record_count
from logbrook.storage.errors import BatchTooLargeError, UnexpectedOffsetError

CheckedBatch: TypeAlias = tuple[int, BatchHeader]
PlacedBatch: TypeAlias = tuple[int, int, int]


class AppendOrigin(Enum):
    """The writer of a batch. Only a coordinator may write control batches and batches without a sequence."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    # Fetched from the leader, which has checked it.
    LEADER = "leader"


# Python 3.11 takes as long to look up a member of an enumeration as to call a function.
_CLIENT = AppendOrigin.CLIENT


def check_batches(
    view: memoryview,
    partition: TopicPartition,
    config: LogConfig,
    origin: AppendOrigin,
    first_header: BatchHeader | None = None,
) -> tuple[list[CheckedBatch], int, bool]:
    """Validate all batches in `view`. Returns (the batches, their number of offsets, True if any has a producer id).

    `first_header` is the header of the first batch, if the caller has parsed it. Raises RecordsError or
    BatchTooLargeError.
    """
    batches: list[CheckedBatch] = []
    position, end, records = 0, len(view), 0
    size_max = config.max_message_bytes
    is_append_time = config.uses_log_append_time
    from_producers = False
    while position < end:
        header = check_batch(view, position, end, None if position else first_header)
        if origin is _CLIENT:
            check_produced(header, is_log_append_time=is_append_time)
            check_record_count(view, position, header)
        elif header.is_control:
            # Raises if it is malformed: recovery must be able to read every marker in the log.
            read_marker(view[position : position + header.size])
        size = LENGTH_PREFIX_BYTES + header.batch_length
        if size > size_max and origin is not AppendOrigin.LEADER:
            raise BatchTooLargeError(partition, size, size_max)
        if header.producer_id != NO_PRODUCER_ID:
            from_producers = True
        batches.append((position, header))
        records += header.last_offset_delta + 1
        position += size
    if not batches:
        raise InvalidBatchError("the records contain no batch")
    return batches, records, from_producers


def stamp_batches(
    view: memoryview,
    batches: Sequence[CheckedBatch],
    offset: Offset,
    leader_epoch: LeaderEpoch,
    append_time_ms: int | None,
) -> list[PlacedBatch]:
    """Write offsets from `offset` on, the leader epoch and, if given, the log append time into the batches."""
    placed: list[PlacedBatch] = []
    for position, header in batches:
        stamp(view, position, offset, leader_epoch)
        if append_time_ms is not None:
            stamp_log_append_time(view, position, append_time_ms)
        placed.append((position, offset, header.max_timestamp if append_time_ms is None else append_time_ms))
        offset = Offset(offset + header.last_offset_delta + 1)
    return placed


def place_fetched(
    partition: TopicPartition, batches: Sequence[CheckedBatch], log_end_offset: Offset
) -> tuple[list[PlacedBatch], Offset, bool]:
    """Check that fetched batches follow the log end offset, in order.

    Returns (the batches with their own offsets, the offset after them, True if there is a gap before one). Raises
    UnexpectedOffsetError.
    """
    placed: list[PlacedBatch] = []
    has_gap = False
    for position, header in batches:
        if header.base_offset < log_end_offset:
            raise UnexpectedOffsetError(partition, header.base_offset, log_end_offset)
        has_gap = has_gap or header.base_offset > log_end_offset
        placed.append((position, header.base_offset, header.max_timestamp))
        log_end_offset = header.next_offset
    return placed, log_end_offset, has_gap
