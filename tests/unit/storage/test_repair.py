"""Repair of a quarantined partition: valid batches stay, damaged files are kept aside."""

from collections.abc import Callable

import pytest

from logbrook.storage.errors import CorruptLogError
from logbrook.storage.verification import verify
from tests.unit.storage.kit import BATCH_BYTES, PARTITION, Store, batch, content, flip, numbered, offsets_of

NewStore = Callable[..., Store]


def broken(new_store: NewStore, segment: int, position: int) -> Store:
    """Nine batches in segments of four, with a corrupt byte that was detected."""
    store = new_store(segment_bytes=4 * BATCH_BYTES)
    store.write(*numbered(9))
    store.directory.checkpoint()
    flip(store.files, store.log.segments[segment].path, position)
    with pytest.raises(CorruptLogError):
        verify(store.log)
    return store


@pytest.mark.parametrize("position", [BATCH_BYTES, BATCH_BYTES + 8, BATCH_BYTES + 16, BATCH_BYTES + 70])
def test_a_repair_removes_only_the_bad_batch(new_store: NewStore, position: int) -> None:
    store = broken(new_store, 0, position)
    repaired = store.directory.repair(PARTITION)
    assert repaired.bytes_dropped == BATCH_BYTES
    assert offsets_of(store.read(0)) == [0, 2, 3, 4, 5, 6, 7, 8]
    verify(store.log)
    assert store.log.corruption is None


def test_the_original_file_is_kept_aside(new_store: NewStore) -> None:
    store = broken(new_store, 1, 61)
    path = store.log.closed[1].path
    before = content(store.files, path)
    repaired = store.directory.repair(PARTITION)
    assert repaired.kept_aside == [path + ".damaged"]
    assert content(store.files, path + ".damaged") == before


def test_the_log_continues_after_its_old_end(new_store: NewStore) -> None:
    store = broken(new_store, 2, 61)
    store.directory.repair(PARTITION)
    assert store.log.log_end_offset == 9, "offset 8 was shown to clients and is never given out again"
    assert store.write(batch()).base_offset == 9
    assert offsets_of(store.read(0)) == [0, 1, 2, 3, 4, 5, 6, 7, 9]
    again = store.killed()
    assert offsets_of(again.read(0)) == [0, 1, 2, 3, 4, 5, 6, 7, 9]
    assert again.directory.report.quarantined == []


def test_repair_of_a_quarantined_partition_keeps_the_records_after_the_damage(
    new_store: NewStore,
) -> None:
    store = new_store(segment_bytes=4 * BATCH_BYTES)
    store.write(*numbered(2))
    store.directory.checkpoint()
    store.write(*numbered(9))
    flip(store.files, "orders-0/00000000000000000000.log", 61)
    store.files.unlink("wal/00000000000000000000.wal")
    again = store.killed()
    assert again.log.corruption is None, "the bad byte is below the recovery point, which recovery does not read"
    with pytest.raises(CorruptLogError):
        verify(again.log)
    again.directory.repair(PARTITION)
    assert offsets_of(again.read(0)) == list(range(1, 11))


def test_repair_leaves_an_undamaged_partition_unchanged(new_store: NewStore) -> None:
    store = new_store(segment_bytes=4 * BATCH_BYTES)
    store.write(*numbered(9), batch(b"x", producer=(7, 0, 0)))
    repaired = store.directory.repair(PARTITION)
    assert (repaired.bytes_dropped, repaired.kept_aside) == (0, [])
    assert offsets_of(store.read(0)) == list(range(10))
    assert store.append(batch(b"x", producer=(7, 0, 0))).base_offset == 9, "producers are known again"
