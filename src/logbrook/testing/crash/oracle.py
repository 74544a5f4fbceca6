"""What a log implies, worked out the slow way: read everything, and count.

Nothing here uses an index, a snapshot or the engine's own bookkeeping. What the engine says is compared with this.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple

from logbrook.records.batch import NO_PRODUCER_ID, NO_SEQUENCE, BatchHeader, check_batch
from logbrook.records.reader import iter_records
from logbrook.records.record import RawRecord
from logbrook.storage.log import Log

_DECOMPRESSED_BYTES_MAX = 1 << 24
_BATCHES_KEPT = 5
_ABORT_KEY = b"\0\0\0\0"


# The same batches are met in state after state.
@lru_cache(maxsize=8192)
def records_of(data: bytes) -> tuple[RawRecord, ...]:
    """The records of a batch."""
    return tuple(iter_records(data, bytes_max=_DECOMPRESSED_BYTES_MAX))


class ScannedBatch(NamedTuple):
    header: BatchHeader
    data: bytes

    def records(self) -> tuple[RawRecord, ...]:
        return records_of(self.data)


class SeenBatch(NamedTuple):
    base_sequence: int
    last_sequence: int
    base_offset: int


@dataclass(slots=True)
class SeenProducer:
    """What the batches of a log tell of one producer."""

    epoch: int
    batches: list[SeenBatch] = field(default_factory=list)
    transaction_start_offset: int | None = None
    last_seen_ms: int = -1


@dataclass
class LogScan:
    """Every batch that holds an offset from the log's start on, in order."""

    log_start_offset: int
    batches: list[ScannedBatch]

    @cached_property
    def records(self) -> list[RawRecord]:
        """The records that may be read, those of control batches left out."""
        return [
            record
            for batch in self.batches
            if not batch.header.is_control
            for record in batch.records()
            if record.offset >= self.log_start_offset
        ]

    @cached_property
    def is_dense(self) -> bool:
        """Whether no offset is missing, as it is where nothing was compacted away."""
        pairs = zip(self.batches, self.batches[1:], strict=False)
        return (not self.batches or self.batches[0].header.base_offset <= self.log_start_offset) and all(
            one.header.next_offset == other.header.base_offset for one, other in pairs
        )

    def epochs(self) -> list[tuple[int, int]]:
        """(epoch, first offset) of each leader epoch, the first of them from the log's start."""
        found: list[tuple[int, int]] = []
        for batch in self.batches:
            epoch = batch.header.leader_epoch
            if not found or epoch > found[-1][0]:
                found.append((epoch, max(batch.header.base_offset, self.log_start_offset)))
        return found

    def producers(self) -> dict[int, SeenProducer]:
        found: dict[int, SeenProducer] = {}
        for batch in self.batches:
            header = batch.header
            if header.producer_id == NO_PRODUCER_ID:
                continue
            seen = found.get(header.producer_id)
            if seen is None:
                seen = found[header.producer_id] = SeenProducer(header.producer_epoch)
            elif header.producer_epoch > seen.epoch:
                seen.epoch = header.producer_epoch
                seen.batches.clear()
            seen.last_seen_ms = max(seen.last_seen_ms, header.max_timestamp)
            if header.is_control:
                seen.transaction_start_offset = None
                continue
            if header.is_transactional and seen.transaction_start_offset is None:
                seen.transaction_start_offset = header.base_offset
            if header.base_sequence == NO_SEQUENCE:
                continue
            seen.batches.append(SeenBatch(header.base_sequence, header.last_sequence, header.base_offset))
            del seen.batches[:-_BATCHES_KEPT]
        return found

    @cached_property
    def is_committed(self) -> list[bool | None]:
        """Of each batch: whether its records are committed; None for one whose transaction is open."""
        return decisions(self.batches)

    def committed_records(self, start_offset: int, end_offset: int, aborted: list[tuple[int, int]]) -> list[int]:
        """The offsets of the records in this range that a client shows, which is told that these were aborted.

        It does what clients do: from its first offset on a transaction is skipped, up to its producer's next marker
        that says abort.
        """
        coming = sorted(aborted, key=lambda one: one[1], reverse=True)
        skipped: set[int] = set()
        shown: list[int] = []
        for header, data in self.batches:
            if header.last_offset < start_offset or header.base_offset >= end_offset:
                continue
            while coming and coming[-1][1] <= header.last_offset:
                skipped.add(coming.pop()[0])
            if header.is_control:
                if _is_abort(data):
                    skipped.discard(header.producer_id)
            elif not header.is_transactional or header.producer_id not in skipped:
                shown += [record.offset for record in records_of(data)]
        return shown

    def find_time(self, timestamp: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record at `timestamp` or later."""
        return next(
            ((record.offset, record.timestamp) for record in self.records if record.timestamp >= timestamp), None
        )


def decisions(batches: Sequence[ScannedBatch]) -> list[bool | None]:
    """Of each batch, in the order of the log, whether it is committed. A producer's next marker decides."""
    found: list[bool | None] = []
    ends: dict[int, bool] = {}
    for header, data in reversed(batches):
        if header.is_control:
            ends[header.producer_id] = not _is_abort(data)
        found.append(ends.get(header.producer_id) if header.is_transactional and not header.is_control else True)
    return found[::-1]


def _is_abort(data: bytes) -> bool:
    """Whether a control batch is the marker of an abort."""
    return [record.key for record in records_of(data)] == [_ABORT_KEY]


def scan_log(log: Log) -> LogScan:
    """Read the whole log as a reader would, every checksum verified. Raises RecordsError or what `read` raises."""
    batches: list[ScannedBatch] = []
    for part in log.read_range(log.log_start_offset, log.log_end_offset):
        position, end = 0, len(part.data)
        while position < end:
            header = check_batch(part.data, position, end)
            batches.append(ScannedBatch(header, bytes(part.data[position : position + header.size])))
            position += header.size
    return LogScan(log.log_start_offset, batches)
