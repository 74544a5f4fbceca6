"""Transactions in a log: what is stable, what was aborted, and that both are known whatever happened to the files."""

from collections.abc import Callable

import pytest

from logbrook.config import CleanupPolicy
from logbrook.model.identifiers import Offset, ProducerId
from logbrook.records.errors import CorruptBatchError
from logbrook.storage.batch_set import AppendOrigin
from logbrook.storage.durable_files import write_sealed
from logbrook.storage.errors import InvalidProducerEpochError, OutOfOrderSequenceError
from logbrook.storage.log import Log
from logbrook.storage.partition_files import read_snapshot
from logbrook.storage.retention import apply_retention
from logbrook.storage.transaction_index import ENTRY_BYTES
from logbrook.storage.truncation import truncate
from logbrook.testing import FaultyFiles, MemoryFiles
from tests.unit.storage.kit import NOW_MS, PARTITION, NewStore, Store, batch, content, flip, marker, put

ABORTED = "orders-0/aborted"
SNAPSHOT = "orders-0/snapshot"


def send(store: Store, producer_id: int, sequence: int, epoch: int = 0) -> int:
    """A batch of the producer's transaction. Returns its offset."""
    return store.write(batch(producer=(producer_id, epoch, sequence), transactional=True)).base_offset


def all_aborted(log: Log) -> list[tuple[ProducerId, Offset]]:
    return log.aborted_between(log.log_start_offset, log.log_end_offset)


@pytest.fixture
def store(new_store: NewStore) -> Store:
    """Producer 1 aborted (0 to 2), 2 committed (1 to 4), 3 aborted (3 to 6), 1 aborted again (5 to 7), 4 is open."""
    store = new_store(segment_bytes=1)
    send(store, 1, 0)
    send(store, 2, 0)
    store.end(1, commits=False)
    send(store, 3, 0)
    store.end(2)
    send(store, 1, 1)
    store.end(3, commits=False)
    store.end(1, commits=False)
    send(store, 4, 0)
    return store


EXPECTED = [(1, 0), (3, 3), (1, 5)]


def test_the_aborted_transactions_of_a_range_are_known(store: Store) -> None:
    assert all_aborted(store.log) == EXPECTED
    assert store.log.aborted_between(Offset(0), Offset(1)) == [(1, 0)]
    assert store.log.aborted_between(Offset(3), Offset(5)) == [(3, 3)]
    assert store.log.aborted_between(Offset(7), Offset(9)) == [(1, 5)]
    assert store.log.aborted_between(Offset(8), Offset(9)) == []
    assert store.log.last_stable_offset == 8


def test_a_marker_without_a_transaction_aborts_nothing(new_store: NewStore) -> None:
    store = new_store()
    store.end(5, commits=False)
    assert all_aborted(store.log) == []


def test_an_abort_marker_with_a_bumped_epoch_aborts_the_previous_epochs_batches(new_store: NewStore) -> None:
    store = new_store()
    send(store, 5, 0)
    store.end(5, epoch=1, commits=False)
    assert all_aborted(store.log) == [(5, 0)]
    with pytest.raises(InvalidProducerEpochError):
        store.append(batch(producer=(5, 0, 1), transactional=True))
    with pytest.raises(OutOfOrderSequenceError):
        store.append(batch(producer=(5, 1, 1), transactional=True))
    send(store, 5, 0, epoch=1)


def test_a_marker_of_an_older_epoch_is_fenced_and_ends_nothing(new_store: NewStore) -> None:
    store = new_store()
    send(store, 5, 0, epoch=3)
    with pytest.raises(InvalidProducerEpochError):
        store.append(marker(5, 2), origin=AppendOrigin.COORDINATOR)
    assert (store.log.log_end_offset, store.log.last_stable_offset) == (1, 0)
    store.end(5, 3)
    assert store.log.last_stable_offset == 2


def test_a_marker_that_cannot_be_read_is_refused(new_store: NewStore) -> None:
    store = new_store()
    send(store, 5, 0)
    with pytest.raises(CorruptBatchError):
        store.append(batch(producer=(5, 0, -1), transactional=True, control=True), origin=AppendOrigin.COORDINATOR)
    assert store.log.log_end_offset == 1


def test_a_control_batch_of_another_kind_ends_nothing(new_store: NewStore) -> None:
    store = new_store()
    send(store, 5, 0)
    control = batch(producer=(5, 0, -1), transactional=True, control=True, key=b"\0\0\0\2")
    store.append(control, origin=AppendOrigin.COORDINATOR)
    store.directory.commit()
    assert store.log.last_stable_offset == 0
    assert store.killed().log.last_stable_offset == 0


def test_a_coordinators_batches_have_no_sequence_and_are_checked_by_their_epoch(new_store: NewStore) -> None:
    store = new_store()
    for epoch in (0, 0, 1):
        data = batch(producer=(5, epoch, -1), transactional=True)
        assert not store.append(data, origin=AppendOrigin.COORDINATOR).duplicate
    with pytest.raises(InvalidProducerEpochError):
        store.append(batch(producer=(5, 0, -1), transactional=True), origin=AppendOrigin.COORDINATOR)
    producer = store.log.producers.get(ProducerId(5))
    assert producer is not None
    assert (producer.epoch, producer.batches, producer.transaction_start_offset) == (1, [], 0)
    store.end(5, 1, commits=False)
    assert all_aborted(store.log) == [(5, 0)]
    assert all_aborted(store.killed().log) == [(5, 0)]


def test_the_open_transactions_are_known(store: Store) -> None:
    send(store, 2, 1)
    assert store.log.producers.open_transactions() == [(4, 0, 8), (2, 0, 9)]
    assert store.killed().log.producers.open_transactions() == [(4, 0, 8), (2, 0, 9)]


def test_the_last_stable_offset_is_never_before_the_start_of_the_log(store: Store) -> None:
    store.write(batch())
    store.log.delete_before(Offset(9))
    assert (store.log.log_start_offset, store.log.last_stable_offset) == (9, 9)
    assert store.killed().log.last_stable_offset == 9


# What the next process finds.


@pytest.mark.parametrize("checkpoints_at", [set(), {9}, {3}, {7}, {8}, {1, 3, 5, 7, 9}, set(range(10))])
def test_the_aborted_are_known_after_a_kill(new_store: NewStore, checkpoints_at: set[int]) -> None:
    store = new_store(segment_bytes=200)
    steps: list[Callable[[], object]] = [
        lambda: send(store, 1, 0),
        lambda: send(store, 2, 0),
        lambda: store.end(1, commits=False),
        lambda: send(store, 3, 0),
        lambda: store.end(2),
        lambda: send(store, 1, 1),
        lambda: store.end(3, commits=False),
        lambda: store.end(1, commits=False),
        lambda: send(store, 4, 0),
    ]
    for number, step in enumerate(steps):
        if number in checkpoints_at:
            store.directory.checkpoint()
        step()
    if len(steps) in checkpoints_at:
        store.directory.checkpoint()
    again = store.killed()
    assert all_aborted(again.log) == EXPECTED
    assert again.log.producers.to_json() == store.log.producers.to_json()
    assert all_aborted(again.killed().log) == EXPECTED
    assert all_aborted(again.reopened().log) == EXPECTED


def test_only_a_partition_with_an_abort_has_the_file(new_store: NewStore) -> None:
    store = new_store()
    send(store, 1, 0)
    store.end(1)
    store.directory.checkpoint()
    assert "aborted" not in store.files.list(PARTITION.directory)
    send(store, 1, 1)
    store.end(1, commits=False)
    store.directory.checkpoint()
    assert len(content(store.files, ABORTED)) == ENTRY_BYTES


def test_a_clean_start_reads_the_file_and_not_the_log(store: Store) -> None:
    again = store.reopened()
    assert all_aborted(again.log) == EXPECTED
    assert again.directory.report.bytes_scanned == 0
    before = content(again.files, ABORTED)
    again.log.expire_producers(NOW_MS + 1)
    again.directory.checkpoint()
    assert content(again.files, ABORTED) == before


def _missing(disk: MemoryFiles) -> None:
    disk.unlink(ABORTED)


def _empty(disk: MemoryFiles) -> None:
    put(disk, ABORTED, b"")


def _short(disk: MemoryFiles) -> None:
    put(disk, ABORTED, content(disk, ABORTED)[:-1])


def _one_less(disk: MemoryFiles) -> None:
    put(disk, ABORTED, content(disk, ABORTED)[:-ENTRY_BYTES])


def _flipped(position: int) -> Callable[[MemoryFiles], None]:
    return lambda disk: flip(disk, ABORTED, position)


@pytest.mark.parametrize("damage", [_missing, _empty, _short, _one_less, _flipped(0), _flipped(50), _flipped(-9)])
@pytest.mark.parametrize("is_last", [True, False])
def test_a_damaged_file_is_rebuilt_from_the_log(
    store: Store, damage: Callable[[MemoryFiles], None], is_last: bool
) -> None:
    store.directory.checkpoint()
    expected = list(EXPECTED)
    if not is_last:
        store.end(4, commits=False)
        expected.append((4, 8))
    again = store.killed(damage)
    assert all_aborted(again.log) == expected
    again.directory.checkpoint()
    assert len(content(again.files, ABORTED)) == len(expected) * ENTRY_BYTES
    third = again.killed()
    assert all_aborted(third.log) == expected
    assert third.log.corruption is None


def test_bytes_after_the_last_entry_of_the_index_are_ignored(store: Store) -> None:
    store.directory.checkpoint()
    again = store.killed(lambda disk: put(disk, ABORTED, content(disk, ABORTED) + b"\x5a" * 3 * ENTRY_BYTES))
    assert all_aborted(again.log) == EXPECTED
    again.end(4, commits=False)
    third = again.reopened()
    assert len(content(third.files, ABORTED)) == 4 * ENTRY_BYTES
    assert all_aborted(third.log) == [*EXPECTED, (4, 8)]


def test_entries_after_the_snapshot_are_overwritten(store: Store) -> None:
    """The file had been written, but the power went before the snapshot was."""
    store.directory.checkpoint()
    snapshot = content(store.files, SNAPSHOT)
    store.end(4, commits=False)
    send(store, 4, 1)
    store.log.take_snapshot()
    assert len(content(store.files, ABORTED)) == 4 * ENTRY_BYTES
    again = store.killed(lambda disk: put(disk, SNAPSHOT, snapshot))
    assert all_aborted(again.log) == [*EXPECTED, (4, 8)]
    again.end(4, commits=False)
    assert all_aborted(again.reopened().log) == [*EXPECTED, (4, 8), (4, 10)]


def test_a_snapshot_from_before_there_was_such_a_file_is_read(new_store: NewStore) -> None:
    store = new_store()
    send(store, 1, 0)
    store.directory.checkpoint()

    def age(disk: MemoryFiles) -> None:
        snapshot = read_snapshot(disk, PARTITION.directory)
        assert snapshot is not None
        rows = [row[:5] for row in snapshot.producers]
        write_sealed(disk, SNAPSHOT, [snapshot.offset, snapshot.number, snapshot.epochs, rows])

    again = store.killed(age)
    assert again.log.producers.open_transactions() == [(1, 0, 0)]
    again.end(1, commits=False)
    assert all_aborted(again.log) == [(1, 0)]


def test_the_file_is_synced_before_the_snapshot_that_counts_on_it(new_store: NewStore) -> None:
    disk = FaultyFiles(MemoryFiles(), only={"fsync", "rename"})
    store = new_store(disk)
    send(store, 1, 0)
    store.end(1, commits=False)
    begin = disk.calls
    store.directory.checkpoint()
    paths = [call.path for call in disk.log[begin:]]
    assert paths.index(ABORTED) < min(number for number, path in enumerate(paths) if path.startswith(SNAPSHOT))


# Cutting, at either end.


@pytest.mark.parametrize("offset", range(9))
def test_a_truncation_removes_aborted_transactions(store: Store, offset: int) -> None:
    store.directory.checkpoint()
    truncate(store.log, Offset(offset))
    expected = [aborted for aborted, last in zip(EXPECTED, (2, 6, 7), strict=True) if last < offset]
    assert all_aborted(store.log) == expected
    assert all_aborted(store.killed().log) == expected
    # What comes after is not mistaken for what was there.
    store.write(batch(), batch())
    send(store, 9, 0)
    store.end(9, commits=False)
    expected.append((9, offset + 2))
    assert all_aborted(store.log) == expected
    assert all_aborted(store.killed().log) == expected
    assert all_aborted(store.reopened().log) == expected


@pytest.mark.parametrize("start", range(10))
def test_transactions_wholly_below_the_log_start_are_dropped(store: Store, start: int) -> None:
    store.directory.checkpoint()
    store.log.delete_before(Offset(start))
    expected = [aborted for aborted, last in zip(EXPECTED, (2, 6, 7), strict=True) if last >= start]
    assert all_aborted(store.log) == expected
    again = store.killed()
    assert all_aborted(again.log) == expected
    send(again, 9, 0)
    again.end(9, commits=False)
    assert all_aborted(again.reopened().log) == [*expected, (9, 9)]


def test_an_open_transaction_survives_retention(new_store: NewStore) -> None:
    """Also when its first batch is gone: what is left of it is not stable, and its marker decides it."""
    store = new_store(segment_bytes=1, retention_bytes=1, cleanup_policy={CleanupPolicy.DELETE})
    send(store, 5, 0)
    send(store, 5, 1)
    store.write(batch(), batch())
    store.directory.checkpoint()
    apply_retention(store.log, NOW_MS, segments_max=1)
    assert store.log.log_start_offset == 1
    for state in (store, store.killed()):
        assert (state.log.last_stable_offset, state.log.producers.open_transactions()) == (1, [(5, 0, 0)])
        state.end(5, commits=False)
        assert state.log.aborted_between(Offset(1), state.log.log_end_offset) == [(5, 0)]
        assert state.log.last_stable_offset == state.log.log_end_offset == 5
    # From the log alone it began with the first batch that is left, which comes to the same.
    store.directory.checkpoint()
    assert store.killed(lambda disk: disk.unlink(SNAPSHOT)).log.aborted_between(Offset(1), Offset(5)) == [(5, 1)]


def test_transactions_whose_batches_retention_removed_are_not_rebuilt(store: Store) -> None:
    store.directory.checkpoint()
    store.log.delete_before(Offset(6))
    apply_retention(store.log, NOW_MS)
    assert store.log.aborted_between(Offset(6), Offset(9)) == [(3, 3), (1, 5)]
    assert store.killed(lambda disk: disk.unlink(SNAPSHOT)).log.aborted_between(Offset(6), Offset(9)) == []


def test_a_file_of_which_most_is_dead_is_written_anew_after_the_next_start(store: Store) -> None:
    store.log.delete_before(Offset(7))
    again = store.reopened()
    assert len(content(again.files, ABORTED)) == 3 * ENTRY_BYTES
    send(again, 9, 0)
    again.directory.checkpoint()
    assert len(content(again.files, ABORTED)) == ENTRY_BYTES
    assert all_aborted(again.killed().log) == [(1, 5)]


def test_a_repair_rebuilds_the_transaction_index_from_the_valid_batches(store: Store) -> None:
    store.directory.checkpoint()
    store.directory.repair(PARTITION)
    assert all_aborted(store.log) == EXPECTED
    store.end(4, commits=False)
    assert all_aborted(store.reopened().log) == [*EXPECTED, (4, 8)]


@pytest.mark.parametrize("damage", [_missing, lambda disk: disk.unlink(SNAPSHOT)])
def test_a_quarantined_log_does_not_show_aborted_records_as_committed(
    new_store: NewStore, damage: Callable[[MemoryFiles], None]
) -> None:
    """The marker lies behind the bad bytes, or the file that knows of it is gone too."""
    store = new_store()
    store.write(batch())
    send(store, 1, 0)
    store.end(1, commits=False)
    send(store, 2, 0)
    store.directory.checkpoint()
    store.write(batch(), batch())
    store.end(2, commits=False)

    def rot(disk: MemoryFiles) -> None:
        damage(disk)
        path = f"orders-0/{0:020d}.log"
        size = store.log.active.size
        # Both the log and the write-ahead log: nothing brings it back.
        disk.open(path).truncate(size - 100)
        for name in disk.list("wal"):
            disk.open(f"wal/{name}").truncate(0)

    again = store.killed(rot)
    assert again.log.aborted_between(Offset(0), Offset(10)) == [(1, 1)]
    assert again.log.last_stable_offset == 3
