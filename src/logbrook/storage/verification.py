"""Reading a log to see whether it is good: checksums, offsets, and indexes that tell the truth."""

from typing import NamedTuple

from logbrook.ports import Advice
from logbrook.records.errors import RecordsError
from logbrook.storage.disk_errors import IO_FAILURES
from logbrook.storage.errors import CorruptLogError
from logbrook.storage.index import BadIndexError
from logbrook.storage.log import Log
from logbrook.storage.replay import check_aborted, derive_aborted
from logbrook.storage.scan import scan_batches
from logbrook.storage.segment import Segment


class Verified(NamedTuple):
    """What was read and found good."""

    segments: int
    batches: int
    records: int
    bytes: int


def verify(log: Log) -> Verified:
    """Read every byte of a log, and find out whether it knows the transactions that were aborted.

    If it does not, it does now: they are all in the log. Raises as `verify_segment` does, at the first bad byte.
    """
    total = Verified(0, 0, 0, 0)
    for segment in log.segments:
        found = verify_segment(log, segment)
        total = Verified(*(a + b for a, b in zip(total, found, strict=True)))
    try:
        if not check_aborted(log):
            derive_aborted(log)
    except CorruptLogError as error:
        log.quarantine(error)
        raise
    except IO_FAILURES as error:
        raise log.environment.read_error(log.partition.directory, error) from error
    return total


def verify_segment(log: Log, segment: Segment) -> Verified:
    """One segment of a log: the bounded step. An index that does not fit is rebuilt, since it is only a cache.

    Raises CorruptLogError, with which the log is quarantined, ReadFailedError or TooManyOpenFilesError.
    """
    try:
        return _read_all(log, segment)
    except CorruptLogError as error:
        log.quarantine(error)
        raise
    except IO_FAILURES as error:
        raise log.environment.read_error(segment.path, error) from error


def _read_all(log: Log, segment: Segment) -> Verified:
    batches = records = position = 0
    expected = segment.base_offset
    limit = min((one.base_offset for one in log.segments if one.base_offset > expected), default=log.log_end_offset)
    starts: dict[int, int] = {}
    file = log.environment.files.open(segment.path)
    try:
        file.advise(Advice.SEQUENTIAL)
        for batch in scan_batches(file, 0, segment.size):
            header = batch.header
            if not expected <= header.base_offset < header.next_offset <= limit:
                reason = f"offset {header.base_offset} stands where one from {expected} to {limit - 1} belongs"
                raise segment.corrupt(position, reason, expected)
            expected = header.next_offset
            starts[batch.position] = header.base_offset
            batches += 1
            records += header.count
            position = batch.position + header.size
    except RecordsError as error:
        raise segment.corrupt(position, str(error), expected) from error
    finally:
        file.close()
    try:
        segment.check_index(starts)
    except BadIndexError:
        segment.rebuild_index()
    return Verified(1, batches, records, segment.size)
