"""Reading a log to see whether it is good: checksums, offsets, and an index that tells the truth."""

from typing import NamedTuple

from logbrook.ports import Advice
from logbrook.records.errors import RecordsError
from logbrook.storage.errors import CorruptLogError
from logbrook.storage.index import BadIndexError
from logbrook.storage.log import Log
from logbrook.storage.scan import scan_batches
from logbrook.storage.segment import Segment


class Verified(NamedTuple):
    """What was read and found good."""

    segments: int
    batches: int
    records: int
    bytes: int


def verify(log: Log) -> Verified:
    """Read every byte of a log. Raises CorruptLogError at the first bad one, with which the log is quarantined."""
    total = Verified(0, 0, 0, 0)
    for segment in log.segments:
        found = verify_segment(log, segment)
        total = Verified(*(a + b for a, b in zip(total, found, strict=True)))
    return total


def verify_segment(log: Log, segment: Segment) -> Verified:
    """One segment of a log: the bounded step. An index that does not fit is rebuilt, since it is only a cache."""
    batches = records = position = 0
    expected = segment.base_offset
    starts: dict[int, int] = {}
    file = log.environment.files.open(segment.path)
    try:
        file.advise(Advice.SEQUENTIAL)
        for batch in scan_batches(file, 0, segment.size):
            if batch.header.base_offset < expected:
                raise segment.corrupt(
                    batch.position, f"offset {batch.header.base_offset} comes after {expected - 1}", expected
                )
            expected = batch.header.next_offset
            starts[batch.position] = batch.header.base_offset
            batches += 1
            records += batch.header.count
            position = batch.position + batch.header.size
    except RecordsError as error:
        corrupt = segment.corrupt(position, str(error), expected)
        log.quarantine(corrupt)
        raise corrupt from error
    except CorruptLogError as error:
        log.quarantine(error)
        raise
    finally:
        file.close()
    try:
        segment.check_index(starts)
    except BadIndexError:
        segment.rebuild_index()
    return Verified(1, batches, records, segment.size)
