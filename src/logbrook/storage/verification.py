"""Reading a log to see whether it is good: checksums, offsets, indexes that tell the truth, and the transactions that
were aborted.

    check = LogCheck(log)
    while check.begin_segment():
        while check.read(bytes_max):
            pass
        check.end_segment()
    check.end()

`read` only reads what is in the file when its segment is begun, and may run in another thread while the log grows; the
other steps belong to the log's owner, who sees to it that nothing is compacted or removed meanwhile. `verify` does all
of it at once.
"""

from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from logbrook.ports import Advice, File
from logbrook.records.batch import NO_PRODUCER_ID
from logbrook.records.errors import RecordsError
from logbrook.storage.disk_errors import IO_FAILURES
from logbrook.storage.errors import CorruptLogError, PartitionNotFoundError, StorageOfflineError
from logbrook.storage.index import BadIndexError, Index, IndexEntry
from logbrook.storage.log import Log
from logbrook.storage.producers import Producers
from logbrook.storage.replay import adopt_aborted, knows_aborted
from logbrook.storage.scan import ScannedBatch, scan_batches
from logbrook.storage.segment import Segment

# What a step that goes wrong raises; `LogCheck.fail` says what it means.
FAILURES = (CorruptLogError, *IO_FAILURES)
_PIECE_BYTES = 1 << 26


class Verified(NamedTuple):
    """What was read and found good."""

    segments: int
    batches: int
    records: int
    bytes: int


def verify(log: Log) -> Verified:
    """Read every byte of a log, and find out whether it knows the transactions that were aborted.

    If it does not, it does now: they are all in the log. Raises as `LogCheck.fail` does, at the first bad byte.
    """
    check = LogCheck(log)
    try:
        while check.begin_segment():
            while check.read(_PIECE_BYTES):
                pass
            check.end_segment()
        check.end()
    except FAILURES as error:
        check.fail(error)
    finally:
        check.close()
    return check.verified


class LogCheck:
    """A log that is read a piece at a time. `close` it however it ends."""

    def __init__(self, log: Log) -> None:
        self.verified = Verified(0, 0, 0, 0)
        self._log = log
        self._segments = iter(list(log.segments))
        # How far it has been read, once the segment that was begun last has been.
        self._end_offset = log.log_start_offset
        self._producers = Producers(log.partition)
        self._current: _SegmentCheck | None = None

    @property
    def progress(self) -> Verified:
        """How far it is; segments are counted when they are read to their end."""
        return self.verified if self._current is None else _sum(self.verified, self._current.progress)

    def begin_segment(self) -> bool:
        """Whether there is another. Raises one of FAILURES, or PartitionNotFoundError once the log is deleted."""
        self._refuse_if_deleted()
        segment = next(self._segments, None)
        if segment is None:
            return False
        self._current = _SegmentCheck(self._log, segment, self._producers)
        self._end_offset = self._current.limit
        return True

    def read(self, bytes_max: int) -> bool:
        """Read that much of the segment. Returns whether there is more of it. Raises one of FAILURES."""
        assert self._current is not None
        return self._current.read(bytes_max)

    def end_segment(self) -> None:
        """An index that does not fit is made again, since it is only a cache. Raises as `begin_segment` does."""
        assert self._current is not None
        self._refuse_if_deleted()
        current = self._current
        if not current.is_index_good:
            # A segment that was closed since is another object.
            for segment in self._log.segments:
                if segment.base_offset == current.segment.base_offset:
                    segment.rebuild_index()
        self.verified = _sum(self.verified, current.progress._replace(segments=1))
        self.close()

    def end(self) -> None:
        found = self._producers.aborted
        found.drop_before(self._log.log_start_offset)
        if not knows_aborted(self._log, found):
            adopt_aborted(self._log, found, self._end_offset)

    def fail(self, error: CorruptLogError | OSError | StorageOfflineError) -> NoReturn:
        """Say what stopped it. Raises CorruptLogError, with which the log is quarantined, ReadFailedError or
        TooManyOpenFilesError; PartitionNotFoundError if it was deleted under the reader's eyes."""
        self._refuse_if_deleted()
        if isinstance(error, CorruptLogError):
            self._log.quarantine(error)
            raise error
        path = self._log.partition.directory if self._current is None else self._current.segment.path
        raise self._log.environment.read_error(path, error) from error

    def close(self) -> None:
        if self._current is not None:
            self._current.close()
            self._current = None

    def _refuse_if_deleted(self) -> None:
        if self._log.is_deleted:
            raise PartitionNotFoundError(self._log.partition)


class _SegmentCheck:
    """One segment, as long as it is when this is made."""

    def __init__(self, log: Log, segment: Segment, producers: Producers) -> None:
        self.segment = segment
        self._size = segment.size
        self._expected = segment.base_offset
        later = (one.base_offset for one in log.segments if one.base_offset > segment.base_offset)
        self.limit = min(later, default=log.log_end_offset)
        self._producers = producers
        self._entries = _Entries(segment.copy_index())
        self._batches = self._records = self._position = 0
        self._file: File = log.environment.files.open(segment.path)
        self._file.advise(Advice.SEQUENTIAL)
        self._scan = scan_batches(self._file, 0, self._size)

    @property
    def progress(self) -> Verified:
        return Verified(0, self._batches, self._records, self._position)

    @property
    def is_index_good(self) -> bool:
        return self._entries.are_all_met

    def read(self, bytes_max: int) -> bool:
        enough = self._position + bytes_max
        try:
            for batch in self._scan:
                self._take(batch)
                if self._position >= enough:
                    break
        except RecordsError as error:
            raise self.segment.corrupt(self._position, str(error), self._expected) from error
        return self._position < self._size

    def close(self) -> None:
        self._file.close()

    def _take(self, batch: ScannedBatch) -> None:
        header = batch.header
        if not self._expected <= header.base_offset < header.next_offset <= self.limit:
            reason = f"offset {header.base_offset} stands where one from {self._expected} to {self.limit - 1} belongs"
            raise self.segment.corrupt(self._position, reason, self._expected)
        if header.producer_id != NO_PRODUCER_ID:
            self._producers.replay(header, header.base_offset, batch.data if header.is_control else b"")
        self._entries.pass_by(batch.position, header.base_offset)
        self._expected = header.next_offset
        self._batches += 1
        self._records += header.count
        self._position = batch.position + header.size


class _Entries:
    """The entries of an index, each of which has to meet its batch as the batches go by."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._waiting = self._in_order()
        self._is_good = True
        self._next = self._advance()

    @property
    def are_all_met(self) -> bool:
        return self._is_good and self._next is None

    def pass_by(self, position: int, offset: int) -> None:
        if self._next is not None and self._next.position <= position:
            self._is_good &= (self._next.position, self._next.offset) == (position, offset)
            self._next = self._advance()

    def _advance(self) -> IndexEntry | None:
        try:
            return next(self._waiting, None) if self._is_good else None
        except BadIndexError:
            self._is_good = False
            return None

    def _in_order(self) -> Iterator[IndexEntry]:
        return (self._index.entry(number) for number in range(len(self._index)))


def _sum(one: Verified, other: Verified) -> Verified:
    return Verified(*(a + b for a, b in zip(one, other, strict=True)))
