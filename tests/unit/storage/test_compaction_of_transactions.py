"""Compaction of transactions: committed records are compacted, aborted ones removed, markers kept as needed."""

from dataclasses import replace

import pytest

from logbrook.config import CleanupPolicy, Durability
from logbrook.model.identifiers import Offset
from logbrook.records.batch import BatchHeader, iter_headers, renew_crc
from logbrook.records.control import read_marker
from logbrook.records.reader import iter_records
from logbrook.storage.batch_set import AppendOrigin
from logbrook.storage.compaction import compact, plan_compaction
from logbrook.storage.errors import InvalidProducerEpochError
from tests.unit.storage.kit import ALL_BYTES, NOW_MS, NewStore, Store, batch, flip

DELETE_RETENTION_MS = 1_000
LATER_MS = NOW_MS + DELETE_RETENTION_MS


@pytest.fixture
def store(new_store: NewStore) -> Store:
    return new_store(cleanup_policy={CleanupPolicy.COMPACT}, delete_retention_ms=DELETE_RETENTION_MS)


def put(store: Store, value: bytes, producer: tuple[int, int, int], key: bytes = b"k") -> None:
    store.write(batch(value, key=key, producer=producer, transactional=True))


def compacted(store: Store, now_ms: int = NOW_MS) -> None:
    store.log.roll()
    store.directory.checkpoint()
    assert compact(store.log, now_ms, force=True) is not None


def touch(store: Store) -> None:
    """Append records, so that the next pass has something to compact."""
    store.write(batch(b"touch", key=b"touch"))


def headers(store: Store) -> list[BatchHeader]:
    return [header for part in store.read(store.log.log_start_offset) for _, header in iter_headers(part.data)]


def records(store: Store) -> list[bytes | None]:
    """Return the values of all records that are not in control batches."""
    return [
        record.value
        for part in store.read(store.log.log_start_offset)
        for position, header in iter_headers(part.data)
        if not header.is_control
        for record in iter_records(part.data, position, bytes_max=ALL_BYTES)
    ]


def markers(store: Store) -> list[int]:
    return [header.base_offset for header in headers(store) if header.is_control]


def test_a_committed_record_supersedes_and_an_aborted_one_does_not(store: Store) -> None:
    store.write(batch(b"before", key=b"k"), batch(b"other before", key=b"o"))
    put(store, b"aborted", (7, 0, 0))
    store.end(7, commits=False)
    put(store, b"committed", (8, 0, 0), key=b"o")
    store.end(8)
    compacted(store)
    assert records(store) == [b"before", b"committed"]


def test_an_aborted_record_is_removed_even_if_it_is_the_only_one_of_its_key(store: Store) -> None:
    put(store, b"aborted", (7, 0, 0))
    store.end(7, commits=False)
    compacted(store)
    assert records(store) == []


def test_a_committed_record_is_superseded(store: Store) -> None:
    put(store, b"committed", (7, 0, 0))
    store.end(7)
    store.write(batch(b"after", key=b"k"))
    compacted(store)
    assert records(store) == [b"after"]


def test_a_producers_transactions_are_distinguished(store: Store) -> None:
    put(store, b"1", (7, 0, 0), key=b"a")
    store.end(7)
    put(store, b"2", (7, 0, 1), key=b"a")
    put(store, b"3", (7, 0, 2), key=b"b")
    store.end(7, commits=False)
    put(store, b"4", (7, 0, 3), key=b"c")
    store.end(7)
    compacted(store)
    assert records(store) == [b"1", b"4"]
    store.files.unlink("orders-0/snapshot")
    assert records(store.killed()) == [b"1", b"4"]


@pytest.mark.parametrize("commits", [True, False])
def test_an_open_transaction_is_not_touched(new_store: NewStore, commits: bool) -> None:
    store = new_store(cleanup_policy={CleanupPolicy.COMPACT}, segment_bytes=1)
    store.write(batch(b"before", key=b"k"))
    put(store, b"undecided", (7, 0, 0))
    store.write(batch(b"after", key=b"x"), batch(b"after", key=b"x"))
    store.log.roll()
    store.directory.checkpoint()
    compact(store.log, NOW_MS, force=True)
    assert store.values() == [b"before", b"undecided", b"after", b"after"]
    store.end(7, commits=commits)
    compacted(store)
    assert records(store) == [b"undecided" if commits else b"before", b"after"]


@pytest.mark.parametrize("commits", [True, False])
def test_a_marker_that_is_not_synced_decides_nothing_yet(new_store: NewStore, commits: bool) -> None:
    """It may be lost in a power loss, and the transaction may then end differently."""
    store = new_store(cleanup_policy={CleanupPolicy.COMPACT}, durability=Durability.INTERVAL)
    store.write(batch(b"before", key=b"k"))
    put(store, b"in the transaction", (7, 0, 0))
    store.log.roll()
    store.directory.checkpoint()
    store.end(7, commits=commits)
    assert store.log.last_stable_offset == 3
    assert plan_compaction(store.log, NOW_MS, force=True) is None
    store.directory.checkpoint()
    assert plan_compaction(store.log, NOW_MS, force=True) is not None


def test_a_marker_stays_as_long_as_a_batch_of_its_transaction_does(store: Store) -> None:
    put(store, b"committed", (7, 0, 0))
    store.end(7)
    put(store, b"next", (7, 0, 1), key=b"other")
    store.end(7)
    compacted(store)
    assert records(store) == [b"committed", b"next"]
    for later_ms in (LATER_MS, LATER_MS + 10**9):
        touch(store)
        compacted(store, later_ms)
        assert markers(store) == [1, 3]


def test_a_marker_without_batches_is_kept_until_its_delete_horizon(store: Store) -> None:
    put(store, b"aborted", (7, 0, 0))
    store.end(7, commits=False)
    put(store, b"next", (7, 0, 1))
    store.end(7)
    compacted(store)
    assert [header.base_offset for header in headers(store)] == [1, 2, 3]
    assert headers(store)[0].delete_horizon_ms == LATER_MS
    touch(store)
    compacted(store, LATER_MS - 1)
    assert markers(store) == [1, 3]
    assert headers(store)[0].delete_horizon_ms == LATER_MS, "it is set once"
    touch(store)
    compacted(store, LATER_MS)
    assert markers(store) == [3]


def test_an_aborted_transaction_without_batches_is_not_reported_to_readers(store: Store) -> None:
    """A client skips the records of the aborted producer up to the marker, and would skip later committed ones."""
    put(store, b"aborted", (7, 0, 0))
    store.end(7, commits=False)
    put(store, b"committed", (7, 0, 1))
    store.end(7)
    compacted(store)
    assert store.log.aborted_between(Offset(0), Offset(4)) == []
    touch(store)
    compacted(store, LATER_MS)
    assert markers(store) == [3]
    for again in (store.killed(), store.killed(lambda disk: disk.unlink("orders-0/snapshot"))):
        assert again.log.aborted_between(Offset(0), Offset(4)) == []


def test_the_marker_of_an_abort_stays_until_the_abort_is_durably_removed(store: Store) -> None:
    put(store, b"aborted", (7, 0, 0))
    store.end(7, commits=False)
    put(store, b"committed", (7, 0, 1))
    store.end(7)
    compacted(store)
    assert store.killed().log.aborted_between(Offset(0), Offset(4)) == [(7, 0)], "the file has it still"
    for expected in ([1, 3], [3]):
        # Have it do all of it once more, without new records that would ask for a checkpoint.
        store.log.save_state(replace(store.log.state, cleaned_offset=Offset(0)))
        assert compact(store.log, LATER_MS, force=True) is not None
        assert markers(store) == expected
        store.directory.checkpoint()
    assert store.killed().log.aborted_between(Offset(0), Offset(4)) == []


def test_a_marker_with_a_horizon_is_still_one(store: Store) -> None:
    put(store, b"aborted", (7, 0, 0))
    store.end(7, commits=False)
    put(store, b"next", (7, 0, 1))
    store.end(7)
    compacted(store)
    part = store.read(1)[0]
    position, header = next(iter_headers(part.data))
    marker = read_marker(part.data[position : position + header.size])
    assert marker is not None
    assert not marker.is_commit
    assert header.max_timestamp == NOW_MS


def test_the_last_batch_and_the_last_marker_of_a_producer_stay(store: Store) -> None:
    """They carry the producer state for a log that is read again from its start."""
    put(store, b"aborted", (7, 0, 0))
    put(store, b"aborted too", (7, 0, 1))
    store.end(7, epoch=1, commits=False)
    for now_ms in (NOW_MS, LATER_MS, LATER_MS + DELETE_RETENTION_MS):
        touch(store)
        compacted(store, now_ms)
    kept = [(header.base_offset, header.count) for header in headers(store) if header.producer_id == 7]
    assert kept == [(1, 0), (2, 1)]
    store.files.unlink("orders-0/snapshot")
    again = store.killed()
    assert again.log.last_stable_offset == again.log.log_end_offset
    with pytest.raises(InvalidProducerEpochError):
        again.append(batch(b"zombie", key=b"k", producer=(7, 0, 2), transactional=True))
    put(again, b"alive", (7, 1, 0))


def test_an_emptied_batch_and_its_marker_are_removed_after_the_producers_next_batch(store: Store) -> None:
    put(store, b"aborted", (7, 0, 0))
    store.end(7, commits=False)
    compacted(store)
    assert [(header.base_offset, header.count) for header in headers(store)] == [(0, 0), (1, 1)]
    put(store, b"next", (7, 0, 1))
    store.end(7)
    for now_ms in (NOW_MS, LATER_MS):
        touch(store)
        compacted(store, now_ms)
    kept = [(header.base_offset, header.count) for header in headers(store) if header.producer_id == 7]
    assert kept == [(2, 1), (3, 1)]


def test_the_marker_of_an_expired_producer_is_removed(store: Store) -> None:
    put(store, b"aborted", (7, 0, 0))
    store.end(7, commits=False)
    store.log.expire_producers(NOW_MS + 1)
    for now_ms in (NOW_MS, LATER_MS):
        touch(store)
        compacted(store, now_ms)
    assert [header.producer_id for header in headers(store)] == [-1]


def test_batches_of_a_coordinator_without_a_sequence_are_compacted_like_others(store: Store) -> None:
    for value, commits in ((b"1", True), (b"2", False), (b"3", True), (b"4", False)):
        data = batch(value, key=b"group", producer=(7, 0, -1), transactional=True)
        store.append(data, origin=AppendOrigin.COORDINATOR)
        store.end(7, commits=commits)
    compacted(store)
    assert records(store) == [b"3"]


def test_a_control_batch_of_another_kind_stays(store: Store) -> None:
    odd = batch(b"new leader", key=b"\0\0\0\2", control=True)
    store.append(odd, origin=AppendOrigin.COORDINATOR)
    for now_ms in (NOW_MS, LATER_MS, LATER_MS + DELETE_RETENTION_MS):
        touch(store)
        compacted(store, now_ms)
    assert store.values() == [b"new leader", b"touch"]


def test_an_undecodable_batch_is_removed_if_aborted_and_kept_if_committed(store: Store) -> None:
    for producer_id, commits in ((7, False), (8, True)):
        odd = batch(b"value", key=b"k", producer=(producer_id, 0, 0), transactional=True)
        # The offset delta: only the first record's length is checked when a batch is appended.
        odd[64] = 0x7F
        renew_crc(memoryview(odd), 0, len(odd))
        store.write(odd)
        store.end(producer_id, commits=commits)
    store.log.expire_producers(NOW_MS + 1)
    compacted(store)
    assert [header.base_offset for header in headers(store) if not header.is_control] == [2]


def test_the_aborted_are_known_when_their_file_is_damaged_after_a_compaction(store: Store) -> None:
    store.write(batch(b"before", key=b"k"))
    put(store, b"aborted", (7, 0, 0))
    put(store, b"other", (8, 0, 0), key=b"o")
    store.end(7, commits=False)
    store.log.roll()
    store.end(8, commits=False)
    compacted(store)
    store.directory.checkpoint()
    again = store.killed(lambda disk: flip(disk, "orders-0/aborted", 9))
    assert again.log.aborted_between(Offset(0), Offset(6)) == [(7, 1), (8, 2)]
