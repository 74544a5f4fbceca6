"""The reading half of a log: offsets, fetches, timestamp lookups and aborted transactions.

A READ_COMMITTED reader reads up to the last stable offset and skips the transactions that `aborted_between` returns for
the range it read.
"""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset, ProducerId
from logbrook.records.batch import iter_headers
from logbrook.storage.active_segment import ActiveSegment
from logbrook.storage.closed_segment import ClosedSegment
from logbrook.storage.durable_files import IO_FAILURES, is_unreadable
from logbrook.storage.environment import Environment
from logbrook.storage.errors import CorruptLogError, OffsetOutOfRangeError, PartitionNotFoundError
from logbrook.storage.partition_files import PartitionState
from logbrook.storage.pending_append import CommittedOffset
from logbrook.storage.producer_state import ProducerStateTable
from logbrook.storage.segment import BatchBoundary, LogSlice, Segment, TimestampedOffset


class LogRead(NamedTuple):
    """Whole batches in offset order. The first contains the requested offset or the next existing one."""

    slices: list[LogSlice]
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    # Offset to continue reading at.
    next_offset: Offset

    @property
    def length(self) -> int:
        slices = self.slices
        return slices[0].length if len(slices) == 1 else sum(part.length for part in slices)


class ReadableLog(ABC):
    """The reading half of `Log`. Reads do not change it, except for a quarantine when they find damage."""

    def __init__(
        self,
        partition: TopicPartition,
        environment: Environment,
        state: PartitionState,
        closed: list[ClosedSegment],
        active: ActiveSegment,
        log_end_offset: Offset,
        producers: ProducerStateTable,
    ) -> None:
        self.partition = partition
        self.environment = environment
        self.state = state
        self.closed = closed
        self.active = active
        self.log_end_offset = log_end_offset
        self.producers = producers
        self.corruption: CorruptLogError | None = None
        self.is_deleted = False
        self._committed = CommittedOffset(log_end_offset)
        # None if the log has one replica: then everything that is synced is committed.
        self._replicated_high_watermark: Offset | None = None

    @abstractmethod
    def quarantine(self, error: CorruptLogError, durable_offset: Offset | None = None) -> None: ...

    @property
    def log_start_offset(self) -> Offset:
        return self.state.log_start_offset

    @property
    def is_replica(self) -> bool:
        """True if the high watermark depends on other replicas, too."""
        return self._replicated_high_watermark is not None

    @property
    def synced_end_offset(self) -> Offset:
        """The first offset that is not durable on this broker."""
        return self._committed.offset

    @property
    def high_watermark(self) -> Offset:
        high_watermark = self._replicated_high_watermark
        return self._committed.offset if high_watermark is None else high_watermark

    @property
    def last_stable_offset(self) -> Offset:
        return max(self.log_start_offset, self.producers.last_stable_offset(self.high_watermark))

    @property
    def segments(self) -> list[Segment]:
        return [*self.closed, self.active]

    def read(
        self,
        offset: Offset,
        bytes_max: int,
        *,
        up_to: Offset | None = None,
        at_least_one: bool = True,
        in_memory: bool = True,
    ) -> LogRead:
        """Read whole batches from the one that contains `offset`, up to `bytes_max` bytes.

        Without `in_memory` the slices may be regions of files, to be read when they are sent. Only for committed
        records: others may be truncated and overwritten until then.

        Excludes batches at or above `up_to`, by default the high watermark. The first batch is returned even if it is
        larger than `bytes_max`, unless `at_least_one` is False. Raises OffsetOutOfRangeError, PartitionNotFoundError if
        the log was deleted, CorruptLogError, ReadFailedError or TooManyOpenFilesError; NotCachedError within
        `FileReader.cached_only`.
        """
        if self.is_deleted:
            raise PartitionNotFoundError(self.partition)
        high_watermark, log_start_offset = self.high_watermark, self.state.log_start_offset
        end_offset = high_watermark if up_to is None else min(up_to, self.log_end_offset)
        if self.corruption is not None:
            if offset >= self.corruption.offset:
                # Also past the log end offset: records that cannot be read may have been there.
                raise self.corruption.with_traceback(None)
            end_offset = min(end_offset, self.corruption.offset)
        if not log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(self.partition, offset, log_start_offset, self.log_end_offset)
        slices: list[LogSlice] = []
        next_offset = offset
        if offset < end_offset and (bytes_max > 0 or at_least_one):
            try:
                read = self._read_slices(offset, end_offset, bytes_max, at_least_one, in_memory)
            except CorruptLogError as error:
                self.quarantine(error)
                raise
            except IO_FAILURES as error:
                raise self.environment.read_error(self.partition.directory, error) from error
            slices = [part for part, _ in read]
            if read:
                next_offset = read[-1][1]
        last_stable_offset = max(log_start_offset, self.producers.last_stable_offset(high_watermark))
        return LogRead(slices, high_watermark, last_stable_offset, log_start_offset, next_offset)

    def read_range(self, start_offset: Offset, end_offset: Offset, bytes_max: int = 1 << 20) -> Iterator[LogSlice]:
        """Iterate over all batches with offsets in [start_offset, end_offset), below the high watermark.

        `bytes_max` bounds the bytes per read. Raises as `read` does.
        """
        end_offset = min(end_offset, self.high_watermark)
        while start_offset < end_offset:
            # A batch that begins in the range is included whole.
            slices = self.read(start_offset, bytes_max).slices
            for part in slices:
                length = sum(header.size for _, header in iter_headers(part.data) if header.base_offset < end_offset)
                if length:
                    yield part._replace(length=length, content=part.data[:length])
            if not slices:
                return
            start_offset = Offset(_next_offset(slices[-1]))

    def aborted_between(self, start_offset: Offset, end_offset: Offset) -> list[tuple[ProducerId, Offset]]:
        """Return (producer id, first offset) of the aborted transactions that may have records in [start_offset,
        end_offset)."""
        return self.producers.aborted.between(start_offset, end_offset)

    def find_time(self, timestamp: int) -> TimestampedOffset | None:
        """Return the first record below the high watermark with a timestamp of at least `timestamp`, or None.

        Raises as `read` does.
        """
        if self.is_deleted:
            raise PartitionNotFoundError(self.partition)
        try:
            for segment in self.segments:
                if segment.size and segment.max_timestamp >= timestamp:
                    record = segment.find_time(
                        timestamp, self.log_start_offset, self.environment.config.decompressed_bytes_max
                    )
                    if record is not None:
                        return record if record.offset < self.high_watermark else None
        except CorruptLogError as error:
            self.quarantine(error)
            raise
        except IO_FAILURES as error:
            raise self.environment.read_error(self.partition.directory, error) from error
        return None

    def segment_of(self, offset: Offset) -> int:
        """Return the index in `segments` of the segment whose range contains `offset`."""
        if offset >= self.active.base_offset:
            return len(self.closed)
        return max(0, bisect_right(self.closed, offset, key=lambda segment: segment.base_offset) - 1)

    def _read_slices(
        self, offset: Offset, end_offset: Offset, bytes_max: int, at_least_one: bool, in_memory: bool
    ) -> list[tuple[LogSlice, Offset]]:
        """Return the slices, or the first batch alone if the disk cannot read all of them.

        So a reader gets the records before an unreadable sector, batch by batch. Raises OSError.
        """
        try:
            return list(self._slices(offset, end_offset, bytes_max, at_least_one, in_memory))
        except OSError as error:
            if not is_unreadable(error):
                raise
        return list(self._slices(offset, end_offset, 0, at_least_one, in_memory=True))

    def _slices(
        self, offset: Offset, end_offset: Offset, bytes_max: int, at_least_one: bool, in_memory: bool
    ) -> Iterator[tuple[LogSlice, Offset]]:
        """Yield slices and the offset after each. Holds no slice itself: an error's traceback would keep it alive."""
        closed, active = self.closed, self.active
        number = self.segment_of(offset)
        segment: Segment = closed[number] if number < len(closed) else active
        position = segment.read_position(offset)
        while True:
            number += 1
            is_last = number > len(closed)
            following: Segment = closed[number] if number < len(closed) else active
            after = self.log_end_offset if is_last else following.base_offset
            end = segment.size if end_offset >= after else self._end_position(segment, end_offset)
            if position < end:
                limit = position + bytes_max
                boundary = segment.boundary_before(limit, position) if limit < end else None
                if boundary is None or boundary.position == end:
                    boundary = BatchBoundary(end, min(after, end_offset))
                stop, next_offset = boundary
                if stop > limit and not at_least_one:
                    return
                segment.note_position(next_offset, stop)
                length = stop - position
                yield segment.read(position, length) if in_memory else segment.locate(position, length), next_offset
                at_least_one = False
                bytes_max -= stop - position
                if stop < end or bytes_max <= 0:
                    return
            if is_last or following.base_offset >= end_offset:
                return
            segment, position = following, 0

    def _end_position(self, segment: Segment, end_offset: Offset) -> int:
        """Return the position of the batch that contains `end_offset`, or of known damage there."""
        damage = self.corruption
        if damage is not None and damage.file == segment.path and damage.offset == end_offset:
            return damage.position
        return segment.read_position(end_offset)


def _next_offset(part: LogSlice) -> int:
    """Return the offset after the last record of a slice."""
    return max(header.next_offset for _, header in iter_headers(part.data))
