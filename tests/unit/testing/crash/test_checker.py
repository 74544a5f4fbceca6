"""The checker finds every broken promise: each is made by hand, on a directory that is otherwise valid.

A promise is broken either by the log (records are lost, changed or added) or, to the same effect, by promising records
that the log does not have.
"""

from random import Random

import pytest

from logbrook.model import TopicPartition
from logbrook.model.identifiers import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from logbrook.records.batch import stamp
from logbrook.records.builder import build_batch
from logbrook.records.control import build_marker
from logbrook.records.record import Record
from logbrook.storage.batch_set import AppendOrigin
from logbrook.storage.compaction import compact
from logbrook.storage.errors import CorruptLogError
from logbrook.storage.leader_epochs import EpochStart
from logbrook.storage.log import Log
from logbrook.storage.log_directory import LogDirectory
from logbrook.storage.retention import apply_retention
from logbrook.storage.transaction_index import AbortedTxn, TransactionIndex
from logbrook.storage.truncation import truncate
from logbrook.testing import MemoryFiles
from logbrook.testing.crash import BrokenPromiseError, Promises, check_directory
from logbrook.testing.crash.batches import BatchSource
from logbrook.testing.crash.oracle import scan_log
from logbrook.testing.crash.promises import (
    Acked,
    BatchWritten,
    CompactionBegun,
    CreateBegun,
    Created,
    Deleted,
    PartitionPromise,
    Refused,
    Shown,
    StartMoved,
    StartMoving,
    TruncateBegun,
    Truncated,
)
from logbrook.testing.crash.settings import DELETE_RETENTION_MS, EVENTS, TABLE, config_of
from tests.crash.kit import closed_past, opened

LATER_MS = 1_500_000


@pytest.fixture
def promises() -> Promises:
    return closed_past(seed=1).promises.copy()


@pytest.fixture
def directory() -> LogDirectory:
    return opened(closed_past(seed=1).copy(), LATER_MS)


@pytest.fixture
def log(directory: LogDirectory) -> Log:
    return directory.get(EVENTS)


@pytest.fixture
def promise(promises: Promises) -> PartitionPromise:
    return promises.partitions[EVENTS]


def last_base(log: Log) -> int:
    return scan_log(log).batches[-1].header.base_offset


def test_a_directory_that_keeps_its_promises_passes(directory: LogDirectory, promises: Promises) -> None:
    scans = check_directory(directory, promises)
    assert all(scan.batches for scan in scans.values())


def test_a_lost_acknowledgement(directory: LogDirectory, promises: Promises, log: Log) -> None:
    promises.take(Acked(EVENTS, log.log_end_offset, log.log_end_offset + 1))
    with pytest.raises(BrokenPromiseError, match="was acknowledged"):
        check_directory(directory, promises)


def test_an_acknowledged_batch_that_was_cut_off(directory: LogDirectory, promises: Promises, log: Log) -> None:
    truncate(log, Offset(last_base(log)))
    with pytest.raises(BrokenPromiseError, match="was acknowledged"):
        check_directory(directory, promises)


def test_changed_bytes(directory: LogDirectory, promises: Promises, promise: PartitionPromise) -> None:
    base, (data,) = next(iter(promise.batches.items()))
    promise.batches[base] = [data[:-1] + bytes([data[-1] ^ 1])]
    with pytest.raises(BrokenPromiseError, match=f"the batch at offset {base} was never written there"):
        check_directory(directory, promises)


def test_a_batch_at_a_wrong_offset_is_a_broken_promise(
    directory: LogDirectory, promises: Promises, promise: PartitionPromise
) -> None:
    first, second, *_ = promise.batches
    promise.batches[first], promise.batches[second] = promise.batches[second], promise.batches[first]
    with pytest.raises(BrokenPromiseError, match="was never written there"):
        check_directory(directory, promises)


def test_records_never_written_are_reported(directory: LogDirectory, promises: Promises, log: Log) -> None:
    log.append(BatchSource(Random(0), "stranger").batch(LATER_MS), now_ms=LATER_MS)
    directory.commit()
    with pytest.raises(BrokenPromiseError, match="was never written there"):
        check_directory(directory, promises)


def test_a_refused_append_that_is_stored_is_a_broken_promise(
    directory: LogDirectory, promises: Promises, log: Log
) -> None:
    base, data = scan_log(log).batches[-1].header.base_offset, scan_log(log).batches[-1].data
    promises.take(Refused(EVENTS, base, data))
    with pytest.raises(BrokenPromiseError, match=f"the batch at offset {base} was never written there"):
        check_directory(directory, promises)


def test_a_log_whose_start_went_back(directory: LogDirectory, promises: Promises) -> None:
    promises.take(StartMoving(EVENTS, 3))
    check_directory(directory, promises)
    promises.take(StartMoved(EVENTS, 3))
    with pytest.raises(BrokenPromiseError, match="starts at 0, not from 3 to 3"):
        check_directory(directory, promises)


def test_a_log_that_lost_its_first_records_is_a_broken_promise(
    directory: LogDirectory, promises: Promises, log: Log
) -> None:
    apply_retention(log, LATER_MS)
    assert log.log_start_offset > 0
    with pytest.raises(BrokenPromiseError, match="starts at"):
        check_directory(directory, promises)


def test_a_log_end_before_a_shown_offset_is_a_broken_promise(
    directory: LogDirectory, promises: Promises, log: Log
) -> None:
    promises.partitions[EVENTS].durable_end = 0
    truncate(log, Offset(last_base(log)))
    check_directory(directory, promises)
    end = scan_log(log).batches[-1].header.next_offset
    promises.partitions[EVENTS].durable_end = end + 1
    with pytest.raises(BrokenPromiseError, match="was acknowledged"):
        check_directory(directory, promises)


def test_a_truncation_that_was_undone(directory: LogDirectory, promises: Promises, log: Log) -> None:
    base = last_base(log)
    promises.take(TruncateBegun(EVENTS, base))
    check_directory(directory, promises)
    promises.take(Truncated(EVENTS, base))
    with pytest.raises(BrokenPromiseError, match="was never written there"):
        check_directory(directory, promises)


def test_a_deleted_partition_that_is_back(directory: LogDirectory, promises: Promises) -> None:
    promises.take(Deleted(EVENTS))
    with pytest.raises(BrokenPromiseError, match="events-0 exists, but was deleted or never created"):
        check_directory(directory, promises)


def test_a_missing_partition_is_a_broken_promise(directory: LogDirectory, promises: Promises) -> None:
    missing = TopicPartition("events", 1)
    promises.take(CreateBegun(missing))
    check_directory(directory, promises)
    promises.take(Created(missing))
    with pytest.raises(BrokenPromiseError, match="events-1 does not exist"):
        check_directory(directory, promises)


def test_a_partition_that_was_recreated_with_the_old_records(directory: LogDirectory, promises: Promises) -> None:
    promises.take(Deleted(EVENTS))
    promises.take(CreateBegun(EVENTS))
    promises.take(Created(EVENTS))
    with pytest.raises(BrokenPromiseError, match="was never written there"):
        check_directory(directory, promises)


def test_a_partition_that_was_deleted_or_never_created_must_not_exist(
    directory: LogDirectory, promises: Promises
) -> None:
    promises.take(Shown({}))
    with pytest.raises(BrokenPromiseError, match="was deleted or never created"):
        check_directory(directory, promises)


def test_a_quarantined_partition(directory: LogDirectory, promises: Promises) -> None:
    directory.report.quarantined.append(CorruptLogError(EVENTS, "file", 0, Offset(0), "planted"))
    with pytest.raises(BrokenPromiseError, match="quarantined"):
        check_directory(directory, promises)


def test_damage_in_the_write_ahead_log(directory: LogDirectory, promises: Promises) -> None:
    directory.report.wal_damage.append("planted")
    with pytest.raises(BrokenPromiseError, match="damaged"):
        check_directory(directory, promises)


def test_leader_epochs_that_the_log_does_not_have(directory: LogDirectory, promises: Promises, log: Log) -> None:
    log.epochs.starts = [*log.epochs.starts, EpochStart(LeaderEpoch(99), Offset(log.log_end_offset - 1))]
    with pytest.raises(BrokenPromiseError, match="leader epochs"):
        check_directory(directory, promises)


def test_a_producer_that_was_forgotten_too_early(directory: LogDirectory, promises: Promises, log: Log) -> None:
    assert log.producers.expire(LATER_MS + 1)
    with pytest.raises(BrokenPromiseError, match=r"producer \d is None"):
        check_directory(directory, promises)
    promises.partitions[EVENTS].expired_before_ms = LATER_MS + 1
    check_directory(directory, promises)


def write_transactional(log: Log, promises: Promises, *batches: bytearray) -> None:
    for data in batches:
        offset = log.log_end_offset
        log.append(data, now_ms=LATER_MS, origin=AppendOrigin.COORDINATOR)
        log.environment.durability.commit()
        stamp(data, 0, offset, LeaderEpoch(0))
        promises.take(BatchWritten(log.partition, offset, bytes(data)))
        promises.take(Acked(log.partition, offset, log.log_end_offset))


def transactional(producer_id: int) -> bytearray:
    return build_batch(
        [Record(b"key-0", b"%d" % producer_id)],
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(0),
        transactional=True,
    )


def test_an_abort_missing_from_the_transaction_index_is_reported(
    directory: LogDirectory, promises: Promises, log: Log
) -> None:
    marker = build_marker(ProducerId(50), ProducerEpoch(0), False, LATER_MS, coordinator_epoch=0)
    write_transactional(log, promises, transactional(50), marker)
    check_directory(directory, promises)
    log.producers.aborted = TransactionIndex()
    with pytest.raises(BrokenPromiseError, match="shown as committed"):
        check_directory(directory, promises)


def test_an_abort_that_is_none(directory: LogDirectory, promises: Promises, log: Log) -> None:
    marker = build_marker(ProducerId(50), ProducerEpoch(0), True, LATER_MS, coordinator_epoch=0)
    write_transactional(log, promises, transactional(50), marker)
    check_directory(directory, promises)
    log.producers.aborted.add(
        AbortedTxn(ProducerId(50), Offset(log.log_end_offset - 2), Offset(log.log_end_offset - 1), log.log_end_offset)
    )
    with pytest.raises(BrokenPromiseError, match="shown as committed"):
        check_directory(directory, promises)


def test_an_open_transaction_that_is_taken_for_stable(directory: LogDirectory, promises: Promises, log: Log) -> None:
    write_transactional(log, promises, transactional(50))
    check_directory(directory, promises)
    log.producers._open_transactions.clear()
    with pytest.raises(BrokenPromiseError, match="below the last stable offset 17, but open"):
        check_directory(directory, promises)


def test_a_compacted_log_without_an_undecided_record_is_a_broken_promise(
    directory: LogDirectory, promises: Promises
) -> None:
    table = directory.get(TABLE)
    promises.take(CompactionBegun(TABLE, table.log_end_offset, LATER_MS))
    data = transactional(50)
    stamp(data, 0, Offset(100), LeaderEpoch(0))
    promises.take(BatchWritten(TABLE, 100, bytes(data)))
    promises.take(Acked(TABLE, 100, 101))
    table.log_end_offset = Offset(101)
    table.reset_committed_offset(Offset(101))
    with pytest.raises(BrokenPromiseError, match=r"records of open transactions are missing: \[100\]"):
        check_directory(directory, promises)


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_compacted_log_needs_only_what_was_committed(
    directory: LogDirectory, promises: Promises, is_commit: bool
) -> None:
    table = directory.get(TABLE)
    promises.take(CompactionBegun(TABLE, table.log_end_offset, LATER_MS))
    for offset, data in (
        (100, transactional(50)),
        (101, build_marker(ProducerId(50), ProducerEpoch(0), is_commit, 0, coordinator_epoch=0)),
    ):
        stamp(data, 0, Offset(offset), LeaderEpoch(0))
        promises.take(BatchWritten(TABLE, offset, bytes(data)))
        promises.take(Acked(TABLE, offset, offset + 1))
    table.log_end_offset = Offset(102)
    table.reset_committed_offset(Offset(102))
    if is_commit:
        with pytest.raises(BrokenPromiseError, match="the newest value of b'key-0', at 100, is missing"):
            check_directory(directory, promises)
    else:
        check_directory(directory, promises)


LOST_RECORDS = {
    "the newest value of b'new', at 100, is missing": Record(b"new", b"value"),
    "b'key-0' was deleted at 100 and has reappeared": Record(b"key-0", None),
    "the tombstone at 100 was removed before its retention time": Record(b"new", None),
}


@pytest.mark.parametrize("broken", LOST_RECORDS)
def test_a_compacted_log_that_lost_the_newest_record_of_a_key(
    directory: LogDirectory, promises: Promises, broken: str
) -> None:
    table = directory.get(TABLE)
    assert any(record.key == b"key-0" for record in scan_log(table).records)
    promises.take(CompactionBegun(TABLE, table.log_end_offset, LATER_MS))
    check_directory(directory, promises)
    data = build_batch([LOST_RECORDS[broken]])
    stamp(data, 0, Offset(100), LeaderEpoch(0))
    promises.take(BatchWritten(TABLE, 100, bytes(data)))
    promises.take(Acked(TABLE, 100, 101))
    table.log_end_offset = Offset(101)
    table.reset_committed_offset(Offset(101))
    with pytest.raises(BrokenPromiseError, match=broken):
        check_directory(directory, promises)


def test_a_tombstone_is_removed_after_delete_retention_ms(directory: LogDirectory, promises: Promises) -> None:
    table = directory.get(TABLE)
    data = build_batch([Record(b"new", None)])
    stamp(data, 0, Offset(100), LeaderEpoch(0))
    for mark in (BatchWritten(TABLE, 100, bytes(data)), Acked(TABLE, 100, 101)):
        promises.take(mark)
    for now_ms in (LATER_MS, LATER_MS + DELETE_RETENTION_MS):
        promises.take(CompactionBegun(TABLE, 101, now_ms))
    table.log_end_offset = Offset(101)
    table.reset_committed_offset(Offset(101))
    check_directory(directory, promises)


def test_a_compaction_without_a_request_is_reported(directory: LogDirectory, promises: Promises) -> None:
    table = directory.get(TABLE)
    before = len(scan_log(table).records)
    assert compact(table, LATER_MS, force=True)
    assert len(scan_log(table).records) < before
    with pytest.raises(BrokenPromiseError, match=r"is due|was never written there|its first batch at"):
        check_directory(directory, promises)
    promises.take(CompactionBegun(TABLE, table.log_end_offset, LATER_MS))
    check_directory(directory, promises)


def append_keyed(log: Log, promises: Promises, key: bytes, leader_epoch: int) -> None:
    data, offset = build_batch([Record(key, b"%d" % leader_epoch)]), log.log_end_offset
    log.append(data, now_ms=LATER_MS, leader_epoch=LeaderEpoch(leader_epoch))
    promises.take(BatchWritten(log.partition, offset, bytes(data)))
    promises.take(Acked(log.partition, offset, log.log_end_offset))


@pytest.mark.parametrize("kept", [0, 1])
def test_a_compacted_log_that_was_truncated_keeps_the_leader_epochs_of_removed_records(kept: int) -> None:
    """`kept` batches are left, and offsets without a batch after them."""
    directory, promises = opened(MemoryFiles(), LATER_MS), Promises()
    promises.take(CreateBegun(TABLE))
    table = directory.create(TABLE, config_of(TABLE))
    for key, leader_epoch in [(b"kept", 0)] * kept + [(b"key", 0), (b"key", 1), (b"key", 1), (b"key", 2)]:
        append_keyed(table, promises, key, leader_epoch)
    directory.commit()
    table.roll()
    directory.checkpoint()
    promises.take(CompactionBegun(TABLE, table.log_end_offset, LATER_MS))
    assert compact(table, LATER_MS, force=True)
    last = Offset(table.log_end_offset - 1)
    promises.take(TruncateBegun(TABLE, last))
    promises.take(Truncated(TABLE, truncate(table, last)))
    assert (table.log_end_offset, len(scan_log(table).batches)) == (last, kept)
    assert table.epochs.starts == [(0, 0), (1, kept + 1)]
    check_directory(directory, promises)
    directory.close()
    check_directory(opened(directory.environment.files, LATER_MS), promises)
