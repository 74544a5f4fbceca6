"""Verification of a log: checksums, offsets, indexes and the transaction index.

    verification = LogVerification(log)
    while verification.begin_segment():
        while verification.read(bytes_max):
            pass
        verification.end_segment()
    verification.end()

`read` only reads the bytes that the file has when its segment is begun, and may run in another thread while the log is
appended to. The other steps run on the log owner's thread; the owner ensures that no compaction or retention runs
meanwhile. A truncation ends the verification, since what was read may be gone. `verify` does all steps, and `check_log`
returns its outcome as a `LogCheckResult`, which the command line, the broker's verification and its clients share.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.ports import Advice, File
from logbrook.records.batch import NO_PRODUCER_ID
from logbrook.records.errors import RecordsError
from logbrook.storage.durable_files import IO_FAILURES
from logbrook.storage.errors import (
    CorruptLogError,
    LogModifiedError,
    PartitionNotFoundError,
    StorageError,
    StorageOfflineError,
)
from logbrook.storage.index import BadIndexError, Index, IndexEntry
from logbrook.storage.log import Log
from logbrook.storage.producer_state import ProducerStateTable
from logbrook.storage.segment import Segment, VerifiedBatch, scan_batches
from logbrook.storage.transaction_index import TransactionIndex

# Exceptions of a step, to be passed to `LogVerification.fail`.
FAILURES = (CorruptLogError, *IO_FAILURES)
_PIECE_BYTES = 1 << 26


class VerificationTotals(NamedTuple):
    """Amounts verified."""

    segments: int
    batches: int
    records: int
    bytes: int


def verify(log: Log) -> VerificationTotals:
    """Verify every byte of a log and its transaction index, which is replaced if it lacks an aborted transaction.

    Raises as `LogVerification.fail` does, at the first damage.
    """
    check = LogVerification(log)
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


class LogVerification:
    """A verification of one log in steps. Must be closed."""

    def __init__(self, log: Log, segments: Sequence[Segment] | None = None) -> None:
        """`segments` are those to verify, by default all; without all of them, `end` may not be called."""
        self.verified = VerificationTotals(0, 0, 0, 0)
        self._log = log
        self._segments = deque(log.segments if segments is None else segments)
        # End offset of the segment begun last.
        self._end_offset = log.log_start_offset
        self._producers = ProducerStateTable(log.partition, log.environment.config.producer_ids_max)
        # It changes with each truncation.
        self._floor_number = log.state.floor_number
        self._current: _SegmentCheck | None = None

    @property
    def progress(self) -> VerificationTotals:
        """Amounts verified so far. Counts completed segments."""
        return self.verified if self._current is None else _sum(self.verified, self._current.progress)

    def begin_segment(self) -> bool:
        """Begin the next segment. Returns False at the end.

        Raises one of FAILURES, PartitionNotFoundError or LogModifiedError. May be repeated after NotCachedError.
        """
        self._check_unchanged()
        if not self._segments:
            return False
        self._current = _SegmentCheck(self._log, self._segments[0], self._producers)
        self._segments.popleft()
        self._end_offset = self._current.limit
        return True

    def read(self, bytes_max: int) -> bool:
        """Verify about `bytes_max` bytes of the segment. Returns True if there is more. Raises one of FAILURES."""
        assert self._current is not None
        return self._current.read(bytes_max)

    def end_segment(self) -> None:
        """Finish the segment; rebuild its index if it does not match. Raises as `begin_segment` does."""
        assert self._current is not None
        self._check_unchanged()
        current = self._current
        if not current.index_check.is_matched:
            # A segment rolled meanwhile is represented by another object.
            for segment in self._log.segments:
                if segment.base_offset == current.segment.base_offset:
                    segment.rebuild_index()
        self.verified = _sum(self.verified, current.progress._replace(segments=1))
        self.close()

    def end(self) -> None:
        """Compare the aborted transactions with the log's index, and replace an index that lacks one.

        Raises as `begin_segment` does.
        """
        self._check_unchanged()
        log, aborted = self._log, self._producers.aborted
        aborted.drop_before(log.log_start_offset)
        if not _has_all(log, aborted):
            # Transactions aborted after the verified range are in the log's index only.
            for txn in log.producers.aborted.overlapping(self._end_offset, log.log_end_offset):
                if txn.last_offset >= self._end_offset:
                    aborted.add(txn)
            log.replace_transaction_index(aborted)

    def fail(self, error: CorruptLogError | OSError | StorageOfflineError) -> NoReturn:
        """Raise the error of a failed step: CorruptLogError after quarantining the log, ReadFailedError or
        TooManyOpenFilesError; PartitionNotFoundError or LogModifiedError if the log was deleted or truncated meanwhile.
        """
        self._check_unchanged()
        if isinstance(error, CorruptLogError):
            self._log.quarantine(error)
            raise error
        path = self._log.partition.directory if self._current is None else self._current.segment.path
        raise self._log.environment.read_error(path, error) from error

    def close(self) -> None:
        if self._current is not None:
            self._current.close()
            self._current = None

    def _check_unchanged(self) -> None:
        log = self._log
        if log.is_deleted:
            raise PartitionNotFoundError(log.partition)
        if log.state.truncate_to is not None or log.state.floor_number != self._floor_number:
            raise LogModifiedError(log.partition)


class _SegmentCheck:
    """Verification of one segment, up to its size at creation."""

    def __init__(self, log: Log, segment: Segment, producers: ProducerStateTable) -> None:
        self.segment = segment
        self._size = segment.size
        self._expected = segment.base_offset
        later = (other.base_offset for other in log.segments if other.base_offset > segment.base_offset)
        self.limit = min(later, default=log.log_end_offset)
        self._producers = producers
        self.index_check = _IndexCheck(segment.copy_index())
        self._batches = self._records = self._position = 0
        self._file: File = log.environment.files.open(segment.path)
        self._file.advise(Advice.SEQUENTIAL)
        self._scan = scan_batches(self._file, 0, self._size)

    @property
    def progress(self) -> VerificationTotals:
        return VerificationTotals(0, self._batches, self._records, self._position)

    def read(self, bytes_max: int) -> bool:
        stop_position = self._position + bytes_max
        try:
            for batch in self._scan:
                self._verify(batch)
                if self._position >= stop_position:
                    break
        except RecordsError as error:
            raise self.segment.corrupt(self._position, str(error), self._expected) from error
        return self._position < self._size

    def close(self) -> None:
        self._file.close()

    def _verify(self, batch: VerifiedBatch) -> None:
        header = batch.header
        if not self._expected <= header.base_offset < header.next_offset <= self.limit:
            reason = f"offset {header.base_offset} is not in the expected range {self._expected} to {self.limit - 1}"
            raise self.segment.corrupt(self._position, reason, self._expected)
        if header.producer_id != NO_PRODUCER_ID:
            self._producers.replay(header, header.base_offset, batch.data if header.is_control else b"")
        self.index_check.match(batch.position, header.base_offset)
        self._expected = header.next_offset
        self._batches += 1
        self._records += header.count
        self._position = batch.position + header.size


class _IndexCheck:
    """Matches the entries of an index against the batches of its segment, in order."""

    def __init__(self, index: Index) -> None:
        self._remaining = (index.entry(number) for number in range(len(index)))
        self._is_good = True
        self._next = self._advance()

    @property
    def is_matched(self) -> bool:
        return self._is_good and self._next is None

    def match(self, position: int, offset: Offset) -> None:
        if self._next is not None and self._next.position <= position:
            self._is_good &= (self._next.position, self._next.offset) == (position, offset)
            self._next = self._advance()

    def _advance(self) -> IndexEntry | None:
        try:
            return next(self._remaining, None) if self._is_good else None
        except BadIndexError:
            self._is_good = False
            return None


def _has_all(log: Log, aborted: TransactionIndex) -> bool:
    """Return True if the log's index has each of these transactions, starting at the same offset or earlier.

    The index may also have transactions whose batches have all been removed.
    """
    indexed = {txn.last_offset: txn for txn in log.producers.aborted.overlapping(Offset(0), log.log_end_offset)}
    for txn in aborted.overlapping(Offset(0), log.log_end_offset):
        entry = indexed.get(txn.last_offset)
        if entry is None or entry.producer_id != txn.producer_id or entry.first_offset > txn.first_offset:
            return False
    return True


def _sum(first: VerificationTotals, second: VerificationTotals) -> VerificationTotals:
    return VerificationTotals(*(a + b for a, b in zip(first, second, strict=True)))


class Damage(NamedTuple):
    """Location of a log's damage, as far as known, and the reason."""

    reason: str
    file: str | None = None
    position: int | None = None
    offset: Offset | None = None

    def __str__(self) -> str:
        place = "" if self.file is None else f"{self.file}, byte {self.position}, "
        around = "" if self.offset is None else f"around offset {self.offset}: "
        return f"{place}{around}{self.reason}"


class LogCheckResult(NamedTuple):
    """Result of verifying a log, on disk or through a broker, which does not see segments."""

    partition: TopicPartition
    segments: int | None
    batches: int | None
    records: int | None
    bytes: int | None
    damage: Damage | None

    @classmethod
    def passed(cls, partition: TopicPartition, totals: VerificationTotals) -> "LogCheckResult":
        return cls(partition, totals.segments, totals.batches, totals.records, totals.bytes, None)

    @classmethod
    def failed(cls, partition: TopicPartition, error: StorageError) -> "LogCheckResult":
        if isinstance(error, CorruptLogError):
            damage = Damage(error.reason, error.file, error.position, error.offset)
        else:
            damage = Damage(str(error))
        return cls(partition, None, None, None, None, damage)

    def form(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "segments": self.segments,
            "batches": self.batches,
            "records": self.records,
            "bytes": self.bytes,
            "damage": None if self.damage is None else self.damage._asdict(),
        }

    @classmethod
    def from_form(cls, form: Mapping[str, Any]) -> "LogCheckResult":
        """Parse a JSON object. Raises KeyError or TypeError if it is malformed."""
        damage = form["damage"]
        return cls(
            TopicPartition(form["topic"], form["partition"]),
            form["segments"],
            form["batches"],
            form["records"],
            form["bytes"],
            None if damage is None else Damage(**damage),
        )


def check_log(log: Log) -> LogCheckResult:
    """Verify a log. A damaged log is quarantined."""
    try:
        if log.corruption is not None:
            raise log.corruption.with_traceback(None)
        return LogCheckResult.passed(log.partition, verify(log))
    except StorageError as error:
        return LogCheckResult.failed(log.partition, error)
