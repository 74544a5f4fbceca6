"""Derives the state of a log from a full scan, as the reference for the engine's own state.

Nothing here uses an index, a snapshot or the engine's bookkeeping.
"""

from collections.abc import Iterable, Sequence
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


# The same batches occur in many states.
@lru_cache(maxsize=8192)
def records_of(data: bytes) -> tuple[RawRecord, ...]:
    """The records of a batch."""
    return tuple(iter_records(data, bytes_max=_DECOMPRESSED_BYTES_MAX))


class OracleBatch(NamedTuple):
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
    """The state of a producer derived from its batches."""

    epoch: int
    batches: list[SeenBatch] = field(default_factory=list)
    transaction_start_offset: int | None = None
    last_seen_ms: int = -1


@dataclass
class LogScan:
    """All batches with an offset at or above the log start offset, in order."""

    log_start_offset: int
    log_end_offset: int
    batches: list[OracleBatch]

    @cached_property
    def records(self) -> list[RawRecord]:
        """The readable records, without control records."""
        return [
            record
            for batch in self.batches
            if not batch.header.is_control
            for record in batch.records()
            if record.offset >= self.log_start_offset
        ]

    @cached_property
    def is_dense(self) -> bool:
        """True if no offset is missing, as in a log that was never compacted.

        A truncation of a compacted log can leave offsets without a batch at its end, or no batch at all.
        """
        if not self.batches:
            return self.log_start_offset == self.log_end_offset
        pairs = zip(self.batches, self.batches[1:], strict=False)
        return (
            self.batches[0].header.base_offset <= self.log_start_offset
            and self.batches[-1].header.next_offset == self.log_end_offset
            and all(batch.header.next_offset == following.header.base_offset for batch, following in pairs)
        )

    def epochs(self) -> list[tuple[int, int]]:
        """(epoch, first offset) of each leader epoch, the first of them from the log's start."""
        starts: list[tuple[int, int]] = []
        for batch in self.batches:
            epoch = batch.header.leader_epoch
            if not starts or epoch > starts[-1][0]:
                starts.append((epoch, max(batch.header.base_offset, self.log_start_offset)))
        return starts

    def producers(self) -> dict[int, SeenProducer]:
        producers: dict[int, SeenProducer] = {}
        for batch in self.batches:
            header = batch.header
            if header.producer_id == NO_PRODUCER_ID:
                continue
            seen = producers.get(header.producer_id)
            if seen is None:
                seen = producers[header.producer_id] = SeenProducer(header.producer_epoch)
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
        return producers

    @cached_property
    def is_committed(self) -> list[bool | None]:
        """For each batch: True if committed, False if aborted, None if its transaction is open."""
        return decisions(self.batches)

    def committed_records(self, start_offset: int, end_offset: int, aborted: Iterable[tuple[int, int]]) -> list[int]:
        """The offsets of the records in this range that a read_committed client delivers, given what was aborted.

        Clients skip a transaction from its first offset up to its producer's next abort marker.
        """
        pending = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
        skipped: set[int] = set()
        shown: list[int] = []
        for header, data in self.batches:
            if header.last_offset < start_offset or header.base_offset >= end_offset:
                continue
            while pending and pending[-1][1] <= header.last_offset:
                skipped.add(pending.pop()[0])
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


def decisions(batches: Sequence[OracleBatch]) -> list[bool | None]:
    """For each batch: True if committed, False if aborted, None if open. A producer's next marker decides."""
    results: list[bool | None] = []
    ends: dict[int, bool] = {}
    for header, data in reversed(batches):
        if header.is_control:
            ends[header.producer_id] = not _is_abort(data)
        results.append(ends.get(header.producer_id) if header.is_transactional and not header.is_control else True)
    return results[::-1]


def _is_abort(data: bytes) -> bool:
    """True if a control batch is an abort marker."""
    return [record.key for record in records_of(data)] == [_ABORT_KEY]


def scan_log(log: Log) -> LogScan:
    """Read the whole log through the read path, verifying every checksum. Raises RecordsError or StorageError."""
    batches: list[OracleBatch] = []
    for part in log.read_range(log.log_start_offset, log.log_end_offset):
        position, end = 0, len(part.data)
        while position < end:
            header = check_batch(part.data, position, end)
            batches.append(OracleBatch(header, bytes(part.data[position : position + header.size])))
            position += header.size
    return LogScan(log.log_start_offset, log.log_end_offset, batches)
