"""Checks a recovered directory against the promises of its workload.

`check_directory` reads every log once and checks the rules that must hold after any crash:

- No partition is quarantined and the write-ahead log has no damage: a power loss is never corruption.
- Offsets are dense (ascending, in a compacted log), and every batch is one that was written at its offset.
- Nothing below the durable end is missing, and the high watermark is not below it.
- A compacted log keeps the newest committed record of every key, or a newer one; a tombstone is removed only after its
  retention time, and never before the records it deletes. Records of open transactions are kept.
- Producer state, leader epochs, aborted transactions, index and time lookups agree with a scan of the log (see
  `agreement`).
"""

from typing import NamedTuple

from logbrook.model import TopicPartition
from logbrook.records.batch import read_header
from logbrook.records.record import RawRecord
from logbrook.storage.log import Log
from logbrook.storage.log_directory import LogDirectory
from logbrook.testing.crash.agreement import check_agreement
from logbrook.testing.crash.oracle import LogScan, OracleBatch, decisions, scan_log
from logbrook.testing.crash.promises import BrokenPromiseError, PartitionPromise, Presence, Promises


def check_directory(
    directory: LogDirectory, promises: Promises, *, thorough: bool = True
) -> dict[TopicPartition, LogScan]:
    """Return a scan of each log. Raises BrokenPromiseError, or the error of reading a log."""
    report = directory.report
    if report.quarantined:
        raise BrokenPromiseError(f"quarantined: {report.quarantined[0]}")
    if report.wal_damage:
        raise BrokenPromiseError(f"the write-ahead log is damaged: {report.wal_damage}")
    logs = {log.partition: log for log in directory}
    for partition, promise in promises.partitions.items():
        if promise.presence is Presence.REQUIRED and partition not in logs:
            raise BrokenPromiseError(f"{partition} does not exist")
    scans: dict[TopicPartition, LogScan] = {}
    for partition, log in logs.items():
        promised = promises.partitions.get(partition)
        if promised is None:
            raise BrokenPromiseError(f"{partition} exists, but was deleted or never created")
        scans[partition] = check_log(log, promised, thorough=thorough)
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
            raise BrokenPromiseError(f"{log.partition}: offset {header.base_offset} instead of {expected}")
        if data not in promise.batches.get(expected, ()):
            raise BrokenPromiseError(f"{log.partition}: the batch at offset {expected} was never written there")
        expected = header.next_offset
    if expected != log.log_end_offset:
        raise BrokenPromiseError(f"{log.partition}: batches end at {expected}, the log at {log.log_end_offset}")


def _check_compacted(log: Log, promise: PartitionPromise, scan: LogScan) -> None:
    written, newest_durable, undecided = _written(log, promise)
    _check_ascending(log, scan)
    for record in scan.records:
        if not any(_is_same(record, original) for original in written.get(record.offset, ())):
            raise BrokenPromiseError(f"{log.partition}: the record at offset {record.offset} was never written there")
    lost = undecided - {record.offset for record in scan.records}
    if lost:
        raise BrokenPromiseError(f"{log.partition}: records of open transactions are missing: {sorted(lost)}")
    by_key = _committed_by_key(log, scan)
    for key, newest in newest_durable.items():
        if newest.offset >= promise.cut_keys.get(key, 0):
            _check_key(log, promise, newest, by_key.get(key, []))


def _check_ascending(log: Log, scan: LogScan) -> None:
    expected = 0
    for batch in scan.batches:
        if batch.header.base_offset < expected:
            raise BrokenPromiseError(f"{log.partition}: offset {batch.header.base_offset} comes after {expected - 1}")
        expected = batch.header.next_offset
    if expected > log.log_end_offset:
        raise BrokenPromiseError(f"{log.partition}: batches end at {expected}, the log at {log.log_end_offset}")


def _committed_by_key(log: Log, scan: LogScan) -> dict[bytes | None, list[RawRecord]]:
    by_key: dict[bytes | None, list[RawRecord]] = {}
    for batch, is_committed in zip(scan.batches, scan.is_committed, strict=True):
        if is_committed and not batch.header.is_control:
            for record in batch.records():
                if record.offset >= log.log_start_offset:
                    by_key.setdefault(record.key, []).append(record)
    return by_key


class _WrittenRecords(NamedTuple):
    """The records written to a compacted log: all by offset, the newest durable committed one of each key, and the
    offsets of durable records of open transactions."""

    records: dict[int, list[RawRecord]]
    newest_durable: dict[bytes | None, RawRecord]
    undecided: set[int]


def _written(log: Log, promise: PartitionPromise) -> _WrittenRecords:
    """Markers that compaction has removed still decide their transactions."""
    written = _WrittenRecords({}, {}, set())
    promised = (data for _, candidates in sorted(promise.batches.items()) for data in candidates)
    batches = [OracleBatch(read_header(data), data) for data in promised]
    in_log = [batch for batch in batches if batch.header.base_offset < log.log_end_offset]
    for batch in batches:
        for record in batch.records():
            written.records.setdefault(record.offset, []).append(record)
    for batch, is_committed in zip(in_log, decisions(in_log), strict=True):
        if not batch.header.is_control:
            for record in batch.records():
                if log.log_start_offset <= record.offset < promise.durable_end:
                    if is_committed:
                        written.newest_durable[record.key] = record
                    elif is_committed is None and record.offset >= promise.cut_keys.get(record.key, 0):
                        # A truncated marker may have decided it before; then compaction may have removed it.
                        written.undecided.add(record.offset)
    return written


def _check_key(log: Log, promise: PartitionPromise, newest: RawRecord, kept: list[RawRecord]) -> None:
    if kept and kept[-1].offset >= newest.offset:
        return
    if not newest.is_tombstone:
        raise BrokenPromiseError(f"{log.partition}: the newest value of {newest.key!r}, at {newest.offset}, is missing")
    if kept:
        raise BrokenPromiseError(f"{log.partition}: {newest.key!r} was deleted at {newest.offset} and has reappeared")
    times = [begun.now_ms for begun in promise.compactions if begun.end_offset > newest.offset]
    if not times or times[-1] - times[0] < log.config.delete_retention_ms:
        raise BrokenPromiseError(
            f"{log.partition}: the tombstone at {newest.offset} was removed before its retention time"
        )


def _is_same(record: RawRecord, original: RawRecord) -> bool:
    return (record.key, record.value, record.headers, record.timestamp) == (
        original.key,
        original.value,
        original.headers,
        original.timestamp,
    )
