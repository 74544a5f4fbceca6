"""Verification of every byte of a log."""

from collections.abc import Callable
from contextlib import closing

import pytest

from logbrook.model.identifiers import Offset
from logbrook.storage.errors import CorruptLogError, LogModifiedError, PartitionNotFoundError
from logbrook.storage.transaction_index import TransactionIndex
from logbrook.storage.truncation import truncate
from logbrook.storage.verification import FAILURES, LogVerification, verify
from tests.unit.storage.kit import BATCH_BYTES, Store, batch, flip, numbered

NewStore = Callable[..., Store]


def test_a_good_log_is_counted(new_store: NewStore) -> None:
    store = new_store(segment_bytes=4 * BATCH_BYTES)
    store.write(*numbered(9), batch(b"a", b"b"))
    report = verify(store.log)
    assert (report.segments, report.batches, report.records, report.bytes) == (3, 10, 11, store.log.size)


@pytest.mark.parametrize("position", [0, 8, 16, 17, 22, 60, 61, BATCH_BYTES - 1])
def test_one_bad_byte_is_found_wherever_it_is(new_store: NewStore, position: int) -> None:
    store = new_store(segment_bytes=4 * BATCH_BYTES)
    store.write(*numbered(9))
    flip(store.files, store.log.closed[1].path, BATCH_BYTES + position)
    with pytest.raises(CorruptLogError) as raised:
        verify(store.log)
    assert raised.value.file == store.log.closed[1].path
    assert raised.value.position == BATCH_BYTES
    assert store.log.corruption is raised.value


def test_the_quarantine_is_remembered_after_a_restart(new_store: NewStore) -> None:
    store = new_store(segment_bytes=4 * BATCH_BYTES)
    store.write(*numbered(9))
    store.directory.checkpoint()
    flip(store.files, store.log.closed[0].path, 30)
    with pytest.raises(CorruptLogError):
        verify(store.log)
    again = store.killed()
    assert again.directory.report.quarantined == [again.log.corruption]
    with pytest.raises(CorruptLogError, match="quarantined"):
        again.append(batch())


def test_an_index_with_wrong_entries_is_rebuilt(new_store: NewStore) -> None:
    store = new_store(segment_bytes=8 * BATCH_BYTES, index_interval_bytes=0)
    store.write(*numbered(9))
    store = store.reopened()
    stale_index = store.log.closed[0].index_path
    flip(store.files, stale_index, 8)
    rebuilt = store.directory.environment.probe.indexes_rebuilt
    verify(store.log)
    assert store.directory.environment.probe.indexes_rebuilt == rebuilt + 1
    verify(store.log)
    assert store.directory.environment.probe.indexes_rebuilt == rebuilt + 1


def test_an_aborted_transaction_that_was_forgotten_is_found_again(new_store: NewStore) -> None:
    store = new_store(segment_bytes=1)
    store.write(batch(producer=(7, 0, 0), transactional=True))
    store.end(7, commits=False)
    known = store.log.producers.aborted
    verify(store.log)
    assert store.log.producers.aborted is known, "what is right stays as it is"
    store.log.producers.aborted = TransactionIndex()
    verify(store.log)
    assert store.log.aborted_between(Offset(0), Offset(2)) == [(7, 0)]


@pytest.mark.parametrize(
    ("written_at", "batches", "total"), [(range(1, 99), 8, 14), (range(3, 4), 7, 7), (range(5, 6), 6, 7)]
)
def test_a_log_may_grow_and_roll_while_it_is_read_piece_by_piece(
    new_store: NewStore, written_at: range, batches: int, total: int
) -> None:
    store = new_store(segment_bytes=4 * BATCH_BYTES, index_interval_bytes=0)
    store.write(*numbered(6))
    check = LogVerification(store.log)
    pieces = 0
    while check.begin_segment():
        while True:
            pieces += 1
            if pieces in written_at:
                store.write(batch(b"later"))
            if not check.read(BATCH_BYTES):
                break
        check.end_segment()
    check.end()
    assert (check.verified.segments, check.verified.batches, check.verified.records) == (2, batches, batches)
    assert pieces == batches
    assert store.log.corruption is None
    assert verify(store.log).batches == total


def test_an_index_of_a_segment_that_was_closed_meanwhile_is_rebuilt(new_store: NewStore) -> None:
    store = new_store(segment_bytes=4 * BATCH_BYTES, index_interval_bytes=0)
    store.write(*numbered(3))
    active = store.log.active
    active.copy_index()
    active._index().entries[8] ^= 1
    check = LogVerification(store.log)
    assert check.begin_segment()
    store.write(*numbered(3, 3))
    assert store.log.active is not active
    assert not check.read(1 << 20)
    check.end_segment()
    check.close()
    assert [batch.header.base_offset for batch in store.log.closed[0].batches()] == [0, 1, 2, 3]
    rebuilt = store.directory.environment.probe.indexes_rebuilt
    assert rebuilt >= 1
    verify(store.log)
    assert store.directory.environment.probe.indexes_rebuilt == rebuilt


def test_transactions_that_are_aborted_while_it_reads_stay_known(new_store: NewStore) -> None:
    store = new_store()
    store.write(batch(producer=(7, 0, 0), transactional=True))
    store.end(7, commits=False)
    store.log.producers.aborted = TransactionIndex()
    check = LogVerification(store.log)
    assert check.begin_segment()
    store.write(batch(producer=(7, 0, 1), transactional=True))
    store.end(7, commits=False)
    assert not check.read(1 << 20)
    check.end_segment()
    check.end()
    assert store.log.aborted_between(Offset(0), Offset(4)) == [(7, 0), (7, 2)]


def test_a_log_that_is_deleted_meanwhile_is_not_found(new_store: NewStore) -> None:
    store = new_store()
    store.write(*numbered(3))
    check = LogVerification(store.log)
    assert check.begin_segment()
    store.directory.delete(store.log.partition, 0)
    check.read(1 << 20)
    with pytest.raises(PartitionNotFoundError):
        check.end_segment()
    check.close()


def truncated_after(step: int, store: Store, cut: int) -> None:
    """Verify a log that is truncated when this many pieces are read. Raises LogModifiedError."""
    with closing(LogVerification(store.log)) as check:
        try:
            while check.begin_segment():
                has_more = True
                while has_more:
                    step -= 1
                    if step == 0:
                        truncate(store.log, Offset(cut))
                    has_more = check.read(1)
                check.end_segment()
            if step > 0:
                truncate(store.log, Offset(cut))
            check.end()
        except FAILURES as error:
            check.fail(error)


@pytest.mark.parametrize("segment_bytes", [4 * BATCH_BYTES, 1 << 20], ids=["closed segments", "the active one"])
@pytest.mark.parametrize("is_replaced", [False, True])
@pytest.mark.parametrize("step", range(1, 12))
def test_a_truncation_ends_the_verification_and_the_log_stays_healthy(
    new_store: NewStore, step: int, segment_bytes: int, is_replaced: bool
) -> None:
    """A follower's log loses records to a new leader while the scrub reads them."""
    store = new_store(segment_bytes=segment_bytes)
    store.write(*numbered(9))
    store.directory.checkpoint()
    reads = LogVerification.read

    def read(check: LogVerification, bytes_max: int) -> bool:
        if is_replaced and store.log.log_end_offset == 5:
            store.write(batch(b"x" * 300), batch(b"y"))
        return reads(check, bytes_max)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LogVerification, "read", read)
        with pytest.raises(LogModifiedError):
            truncated_after(step, store, 5)
    assert store.log.corruption is None
    verify(store.log)


def test_aborted_transactions_that_are_truncated_meanwhile_are_not_restored(new_store: NewStore) -> None:
    store = new_store(segment_bytes=1 << 20)
    store.write(*numbered(2), batch(producer=(7, 0, 0), transactional=True))
    store.end(7, commits=False)
    with pytest.raises(LogModifiedError):
        truncated_after(99, store, 2)
    assert store.log.aborted_between(Offset(0), Offset(9)) == []
