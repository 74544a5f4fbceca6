"""Is everything there that was promised, and nothing else?

`check_directory` holds an open directory against the promises. It reads every log once and asserts, of each, the rules
that must hold after any crash:

- No partition is quarantined and the write-ahead log has no damage: a power loss is never corruption.
- Offsets are dense (they rise, where the log was compacted), and every batch is one that was written at its offset.
- Nothing below the durable end is missing, and the high watermark is not below it.
- Of a compacted log, the newest committed record of every key stays, or a newer one; a tombstone goes only when its
  time has come, and never before the records it deletes. What is not decided stays.
- Producers, leader epochs, aborted transactions, index and time lookups agree with a scan of the log (see `agreement`).
"""

from typing import NamedTuple

from logbrook.model import TopicPartition
from logbrook.records.batch import read_header
from logbrook.records.record import RawRecord
from logbrook.storage.log import Log
from logbrook.storage.log_directory import LogDirectory
from logbrook.testing.crash.agreement import check_agreement
from logbrook.testing.crash.broken_promise import BrokenPromiseError
from logbrook.testing.crash.oracle import LogScan, ScannedBatch, decisions, scan_log
from logbrook.testing.crash.promises import PartitionPromise, Presence, Promises


def check_directory(
    directory: LogDirectory, promises: Promises, *, thorough: bool = True
) -> dict[TopicPartition, LogScan]:
    """What was read of each log. Raises BrokenPromiseError, or what a log raises when it is read."""
    report = directory.report
    if report.quarantined:
        raise BrokenPromiseError(f"quarantined: {report.quarantined[0]}")
    if report.wal_damage:
        raise BrokenPromiseError(f"the write-ahead log is damaged: {report.wal_damage}")
    logs = {log.partition: log for log in directory}
    for partition, promise in promises.partitions.items():
        if promise.presence is Presence.REQUIRED and partition not in logs:
            raise BrokenPromiseError(f"{partition} is gone")
    scans: dict[TopicPartition, LogScan] = {}
    for partition, log in logs.items():
        found = promises.partitions.get(partition)
        if found is None:
            raise BrokenPromiseError(f"{partition} is there, but was deleted or never created")
        scans[partition] = check_log(log, found, thorough=thorough)
    return scans


def check_log(log: Log, promise: PartitionPromise, *, thorough: bool = True) -> LogScan:
    start, end = log.log_start_offset, log.log_end_offset
    if not promise.start_min <= start <= promise.start_max:
        raise BrokenPromiseError(
            f"{log.partition} starts at {start}, not from {promise.start_min} to {promise.start_max}"
        )
    if not start <= log.last_stable_offset <= log.high_watermark <= end and start > log.high_watermark:
        raise BrokenPromiseError(f"{log.partition}: start {start}, high watermark {log.high_watermark}, end {end}")
    if log.high_watermark < promise.durable_end:
        raise BrokenPromiseError(
            f"{log.partition} is committed up to {log.high_watermark}, but {promise.durable_end} was acknowledged"
        )
    scan = scan_log(log)
    if promise.compactions:
        _check_compacted(log, promise, scan)
    else:
        _check_dense(log, promise, scan)
    check_agreement(log, scan, expired_before_ms=promise.expired_before_ms, thorough=thorough)
    return scan


def _check_dense(log: Log, promise: PartitionPromise, scan: LogScan) -> None:
    expected = scan.batches[0].header.base_offset if scan.batches else log.log_start_offset
    if expected > log.log_start_offset:
        raise BrokenPromiseError(f"{log.partition} starts at {log.log_start_offset}, its first batch at {expected}")
    for header, data in scan.batches:
        if header.base_offset != expected:
            raise BrokenPromiseError(f"{log.partition}: offset {header.base_offset} where {expected} is due")
        if data not in promise.batches.get(expected, ()):
            raise BrokenPromiseError(f"{log.partition}: the batch at offset {expected} was never written there")
        expected = header.next_offset
    if expected != log.log_end_offset:
        raise BrokenPromiseError(f"{log.partition}: batches end at {expected}, the log at {log.log_end_offset}")


def _check_compacted(log: Log, promise: PartitionPromise, scan: LogScan) -> None:
    written, newest_durable, undecided = _written(log, promise)
    expected = 0
    for batch in scan.batches:
        if batch.header.base_offset < expected:
            raise BrokenPromiseError(f"{log.partition}: offset {batch.header.base_offset} comes after {expected - 1}")
        expected = batch.header.next_offset
    if expected > log.log_end_offset:
        raise BrokenPromiseError(f"{log.partition}: batches end at {expected}, the log at {log.log_end_offset}")
    for record in scan.records:
        if not any(_is_same(record, original) for original in written.get(record.offset, ())):
            raise BrokenPromiseError(f"{log.partition}: the record at offset {record.offset} was never written there")
    lost = undecided - {record.offset for record in scan.records}
    if lost:
        raise BrokenPromiseError(f"{log.partition}: records of open transactions are gone: {sorted(lost)}")
    found: dict[bytes | None, list[RawRecord]] = {}
    for batch, is_committed in zip(scan.batches, scan.is_committed, strict=True):
        if is_committed and not batch.header.is_control:
            for record in batch.records():
                if record.offset >= log.log_start_offset:
                    found.setdefault(record.key, []).append(record)
    for key, newest in newest_durable.items():
        if newest.offset < promise.cut_keys.get(key, 0):
            continue
        _check_key(log, promise, newest, found.get(key, []))


class _Written(NamedTuple):
    """What was written to a log that was compacted: every record by its offset, the newest committed one of each key
    that is durable, and the offsets of those that are durable and not decided."""

    records: dict[int, list[RawRecord]]
    newest_durable: dict[bytes | None, RawRecord]
    undecided: set[int]


def _written(log: Log, promise: PartitionPromise) -> _Written:
    """A marker that is not in the log any more decides as well: it went after what it had decided."""
    found = _Written({}, {}, set())
    promised = (data for _, candidates in sorted(promise.batches.items()) for data in candidates)
    batches = [ScannedBatch(read_header(data), data) for data in promised]
    in_log = [batch for batch in batches if batch.header.base_offset < log.log_end_offset]
    for batch in batches:
        for record in batch.records():
            found.records.setdefault(record.offset, []).append(record)
    for batch, is_committed in zip(in_log, decisions(in_log), strict=True):
        if not batch.header.is_control:
            for record in batch.records():
                if log.log_start_offset <= record.offset < promise.durable_end:
                    if is_committed:
                        found.newest_durable[record.key] = record
                    elif is_committed is None and record.offset >= promise.cut_keys.get(record.key, 0):
                        # One whose marker was cut off was decided before, and may have gone because of that.
                        found.undecided.add(record.offset)
    return found


def _check_key(log: Log, promise: PartitionPromise, newest: RawRecord, found: list[RawRecord]) -> None:
    if found and found[-1].offset >= newest.offset:
        return
    if not newest.is_tombstone:
        raise BrokenPromiseError(f"{log.partition}: the newest value of {newest.key!r}, at {newest.offset}, is gone")
    if found:
        raise BrokenPromiseError(f"{log.partition}: {newest.key!r} was deleted at {newest.offset} and is back")
    times = [begun.now_ms for begun in promise.compactions if begun.end_offset > newest.offset]
    if not times or times[-1] - times[0] < log.config.delete_retention_ms:
        raise BrokenPromiseError(f"{log.partition}: the tombstone at {newest.offset} went before its time")


def _is_same(record: RawRecord, original: RawRecord) -> bool:
    return (record.key, record.value, record.headers, record.timestamp) == (
        original.key,
        original.value,
        original.headers,
        original.timestamp,
    )
