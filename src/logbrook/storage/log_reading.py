"""What a log shows those who read it: the offsets that matter to them, batches, times, and what was aborted.

A reader of committed records reads up to the last stable offset, and leaves out the transactions that
`aborted_between` names for the offsets it was given.
"""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from logbrook.model import TopicPartition
from logbrook.records.batch import iter_headers
from logbrook.storage.active_segment import ActiveSegment
from logbrook.storage.closed_segment import ClosedSegment
from logbrook.storage.disk_errors import IO_FAILURES
from logbrook.storage.environment import Environment
from logbrook.storage.errors import CorruptLogError, OffsetOutOfRangeError, PartitionNotFoundError
from logbrook.storage.partition_files import PartitionState
from logbrook.storage.producers import Producers
from logbrook.storage.segment import LogSlice, Segment, TimestampedOffset
from logbrook.storage.ticket import CommitLine


class LogRead(NamedTuple):
    """Whole batches, in order, the first of which holds the offset asked for or the next one there is."""

    slices: list[LogSlice]
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    # Where to go on reading.
    next_offset: int

    @property
    def length(self) -> int:
        return sum(part.length for part in self.slices)


class ReadableLog(ABC):
    """The reading half of a log. It changes nothing, but for a quarantine when it finds bad bytes."""

    def __init__(
        self,
        partition: TopicPartition,
        environment: Environment,
        state: PartitionState,
        closed: list[ClosedSegment],
        active: ActiveSegment,
        log_end_offset: int,
        producers: Producers,
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
        self._commit_line = CommitLine(log_end_offset)

    @abstractmethod
    def quarantine(self, error: CorruptLogError, durable_offset: int | None = None) -> None: ...

    @property
    def log_start_offset(self) -> int:
        return self.state.log_start_offset

    @property
    def high_watermark(self) -> int:
        return self._commit_line.offset

    @property
    def last_stable_offset(self) -> int:
        return max(self.log_start_offset, self.producers.last_stable_offset(self.high_watermark))

    @property
    def segments(self) -> list[Segment]:
        return [*self.closed, self.active]

    def read(self, offset: int, bytes_max: int, *, up_to: int | None = None, at_least_one: bool = True) -> LogRead:
        """Batches from the one that holds `offset` on, as many whole ones as fit into `bytes_max`.

        Batches with records at or past `up_to` are left out; without it, those past the high watermark are. The first
        batch is there even when it alone is larger than `bytes_max`, unless `at_least_one` is false. Raises
        OffsetOutOfRangeError, PartitionNotFoundError for a log that was deleted, CorruptLogError, ReadFailedError or
        TooManyOpenFilesError.
        """
        if self.is_deleted:
            raise PartitionNotFoundError(self.partition)
        end_offset = self.high_watermark if up_to is None else min(up_to, self.log_end_offset)
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(self.partition, offset, self.log_start_offset, self.log_end_offset)
        if self.corruption is not None:
            if offset >= self.corruption.offset:
                raise self.corruption.with_traceback(None)
            end_offset = min(end_offset, self.corruption.offset)
        slices: list[LogSlice] = []
        next_offset = offset
        if offset < end_offset and (bytes_max > 0 or at_least_one):
            try:
                found = list(self._slices(offset, end_offset, bytes_max, at_least_one))
            except CorruptLogError as error:
                self.quarantine(error)
                raise
            except IO_FAILURES as error:
                raise self.environment.read_error(self.partition.directory, error) from error
            slices = [part for part, _ in found]
            next_offset = found[-1][1] if found else offset
        return LogRead(slices, self.high_watermark, self.last_stable_offset, self.log_start_offset, next_offset)

    def read_range(self, start_offset: int, end_offset: int, bytes_max: int = 1 << 20) -> Iterator[LogSlice]:
        """All batches that hold an offset from `start_offset` up to, not including, `end_offset`, bit by bit.

        It ends at the high watermark when that comes first. Raises as `read` does.
        """
        end_offset = min(end_offset, self.high_watermark)
        while start_offset < end_offset:
            # A batch that begins in the range belongs to it, though it may end outside.
            part = self.read(start_offset, bytes_max).slices
            for one in part:
                length = sum(header.size for _, header in iter_headers(one.data) if header.base_offset < end_offset)
                if length:
                    yield one._replace(length=length, data=one.data[:length])
            if not part:
                return
            start_offset = _next_offset(part[-1])

    def aborted_between(self, start_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions that may have records from `start_offset` up to, not
        including, `end_offset`."""
        return self.producers.aborted.between(start_offset, end_offset)

    def find_time(self, timestamp: int) -> TimestampedOffset | None:
        """The first record whose timestamp is `timestamp` or later; None when there is none that readers may see.

        Raises as `read` does.
        """
        if self.is_deleted:
            raise PartitionNotFoundError(self.partition)
        try:
            for segment in self.segments:
                if segment.size and segment.max_timestamp >= timestamp:
                    found = segment.find_time(
                        timestamp, self.log_start_offset, self.environment.config.decompressed_bytes_max
                    )
                    if found is not None:
                        return found if found.offset < self.high_watermark else None
        except CorruptLogError as error:
            self.quarantine(error)
            raise
        except IO_FAILURES as error:
            raise self.environment.read_error(self.partition.directory, error) from error
        return None

    def segment_of(self, offset: int) -> int:
        """The number in `segments` of the one in which `offset` is or would be."""
        if offset >= self.active.base_offset:
            return len(self.closed)
        return max(0, bisect_right(self.closed, offset, key=lambda segment: segment.base_offset) - 1)

    def _slices(
        self, offset: int, end_offset: int, bytes_max: int, at_least_one: bool
    ) -> Iterator[tuple[LogSlice, int]]:
        """What there is to read, and the offset after it. Keeps no slice: an error keeps its frames."""
        closed, active = self.closed, self.active
        number = self.segment_of(offset)
        segment: Segment = closed[number] if number < len(closed) else active
        position = segment.position_of(offset)
        while True:
            number += 1
            is_last = number > len(closed)
            following: Segment = closed[number] if number < len(closed) else active
            after = self.log_end_offset if is_last else following.base_offset
            end = segment.size if end_offset >= after else self._end_position(segment, end_offset)
            if position < end:
                limit = position + bytes_max
                stop = end if limit >= end else segment.batch_end_before(limit, position)
                if stop > limit and not at_least_one:
                    return
                next_offset = min(after, end_offset) if stop == end else segment.offset_at(stop)
                yield segment.read(position, stop - position), next_offset
                at_least_one = False
                bytes_max -= stop - position
                if stop < end or bytes_max <= 0:
                    return
            if is_last or following.base_offset >= end_offset:
                return
            segment, position = following, 0

    def _end_position(self, segment: Segment, end_offset: int) -> int:
        """Where to stop in a segment: before the batch with `end_offset`, or before what is known to be bad."""
        bad = self.corruption
        if bad is not None and bad.file == segment.path and bad.offset == end_offset:
            return bad.position
        return segment.position_of(end_offset)


def _next_offset(part: LogSlice) -> int:
    """The offset after the last record of a slice."""
    return max(header.next_offset for _, header in iter_headers(part.data))
