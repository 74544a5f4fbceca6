"""The segments of a log: rolling and removal."""

import pytest

from logbrook.model.identifiers import Offset
from logbrook.records.batch import HEADER, read_header, renew_crc
from logbrook.storage.batch_set import AppendOrigin
from logbrook.storage.errors import DiskFullError, OffsetOutOfRangeError
from logbrook.storage.log import Log
from logbrook.testing import MemoryFiles
from tests.unit.storage.kit import BATCH_BYTES, NOW_MS, PARTITION, NewStore, Store, batch, numbered, offsets_of

DAY_MS = 24 * 60 * 60 * 1000


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_a_segment_is_rolled_before_it_exceeds_its_size(new_store: NewStore) -> None:
    store = new_store(segment_bytes=3 * BATCH_BYTES)
    store.write(*numbered(3))
    assert bases(store.log) == [0]
    store.write(*numbered(1))
    assert bases(store.log) == [0, 3]
    assert store.directory.environment.probe.segments_rolled == 1


def test_an_append_is_never_split_over_segments(new_store: NewStore) -> None:
    store = new_store(segment_bytes=3 * BATCH_BYTES)
    store.write(*numbered(2))
    store.write(b"".join(numbered(2)))
    assert bases(store.log) == [0, 2]


def test_a_batch_larger_than_a_segment_gets_its_own_segment(new_store: NewStore) -> None:
    store = new_store(segment_bytes=100)
    store.write(batch(), batch(bytes(1000)), batch())
    assert bases(store.log) == [0, 1, 2]


def test_a_segment_is_closed_when_its_first_append_is_old(new_store: NewStore) -> None:
    store = new_store(segment_ms=DAY_MS)
    store.append(batch(), now_ms=NOW_MS)
    store.append(batch(), now_ms=NOW_MS + DAY_MS - 1)
    assert bases(store.log) == [0]
    store.append(batch(), now_ms=NOW_MS + DAY_MS)
    assert bases(store.log) == [0, 2]
    store.append(batch(), now_ms=NOW_MS + 2 * DAY_MS - 1)
    assert bases(store.log) == [0, 2]


@pytest.mark.parametrize("timestamp", [NOW_MS, 0, -1, 2**62])
@pytest.mark.parametrize("later_ms", [1000, 2 * DAY_MS])
def test_a_restart_does_not_change_when_a_segment_is_closed(new_store: NewStore, timestamp: int, later_ms: int) -> None:
    """The records' timestamps do not matter."""
    store = new_store(segment_ms=DAY_MS)
    store.write(batch(timestamps=[timestamp]))
    again = store.killed()
    store.append(batch(), now_ms=NOW_MS + later_ms)
    again.append(batch(), now_ms=NOW_MS + later_ms)
    assert bases(again.log) == bases(store.log)


def spanning(offsets: int) -> bytearray:
    """Return a batch with offset gaps, as left by compaction."""
    data = batch()
    header = read_header(data)._replace(last_offset_delta=offsets - 1)
    HEADER.pack_into(data, 0, *header)
    renew_crc(memoryview(data), 0, len(data))
    return data


def test_a_segment_is_closed_before_its_offsets_outgrow_the_index(new_store: NewStore) -> None:
    store = new_store(index_interval_bytes=0)
    for _ in range(4):
        store.append(spanning(2**30), origin=AppendOrigin.COORDINATOR)
    store.append(batch())
    store.directory.commit()
    assert len(store.log.segments) > 2
    for segment in store.log.segments:
        assert all(batch.header.last_offset - segment.base_offset < 2**31 for batch in segment.batches())
    assert [store.log.segment_of(Offset(n * 2**30)) for n in range(4)] == sorted(
        store.log.segment_of(Offset(n * 2**30)) for n in range(4)
    )
    assert offsets_of(store.read(2**32))[-1:] == [2**32]


def test_rolling_closes_the_active_segment_and_loses_nothing(new_store: NewStore) -> None:
    store = new_store()
    store.write(*numbered(3))
    store.log.roll()
    assert bases(store.log) == [0, 3]
    store.write(*numbered(2, first=3))
    assert offsets_of(store.read(0)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("checkpoints", [False, True])
@pytest.mark.parametrize("more", [1, 5])
def test_files_left_by_a_failed_roll_hide_no_records_after_a_restart(
    new_store: NewStore, files: MemoryFiles, checkpoints: bool, more: int
) -> None:
    """The files of the next segment exist, but appends continued in the old one."""
    store = new_store(segment_bytes=4 * BATCH_BYTES, index_interval_bytes=0)
    store.write(*numbered(3))
    if checkpoints:
        store.directory.checkpoint()
    files.capacity_bytes = files.used_bytes()
    with pytest.raises(DiskFullError):
        store.append(b"".join(numbered(2)))
    files.capacity_bytes = None
    store.write(*numbered(more, first=3))
    assert offsets_of(store.read(0)) == list(range(3 + more))
    for again in (store.killed(), store.reopened()):
        assert offsets_of(again.read(0)) == list(range(3 + more))
        assert again.log.log_end_offset == 3 + more
        for offset in range(3 + more):
            assert offsets_of(again.read(offset))[0] == offset


def test_rolling_an_empty_segment_changes_nothing(new_store: NewStore) -> None:
    store = new_store()
    store.log.roll()
    assert bases(store.log) == [0]
    store.write(*numbered(2))
    store.log.roll()
    store.log.roll()
    assert bases(store.log) == [0, 2]
    store.write(*numbered(1))
    assert offsets_of(store.read(0)) == [0, 1, 2]


def test_a_closed_segment_is_written_and_synced_with_its_index(new_store: NewStore) -> None:
    store = new_store(index_interval_bytes=0)
    store.write(*numbered(5))
    store.log.roll()
    closed = store.log.closed[0]
    assert closed.size == store.files.size(closed.path) == 5 * BATCH_BYTES
    assert store.files.size(closed.index_path) > 0
    store.read(0)
    assert store.directory.environment.probe.indexes_rebuilt == 0


def test_the_segment_of_an_offset_is_the_last_that_begins_at_or_before_it(new_store: NewStore) -> None:
    store = new_store(segment_bytes=3 * BATCH_BYTES)
    store.write(*numbered(8))
    assert [store.log.segment_of(Offset(offset)) for offset in range(10)] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 2]
    store.log.delete_before(Offset(3))
    store.log.remove_segments(1, due_ms=0)
    assert store.log.segment_of(Offset(0)) == 0


def test_the_size_of_a_log_is_that_of_its_segments(new_store: NewStore) -> None:
    store = new_store(segment_bytes=3 * BATCH_BYTES)
    assert store.log.size == 0
    store.write(*numbered(8))
    assert store.log.size == 8 * BATCH_BYTES


@pytest.fixture
def store(new_store: NewStore) -> Store:
    """Segments at 0, 3 and 6; offsets up to 8 are committed, 9 is not."""
    store = new_store(segment_bytes=3 * BATCH_BYTES)
    store.write(*numbered(8))
    store.append(batch())
    return store


def test_records_before_the_start_cannot_be_read_any_more(store: Store) -> None:
    store.log.delete_before(Offset(4))
    assert store.log.log_start_offset == 4
    with pytest.raises(OffsetOutOfRangeError):
        store.read(3)
    assert offsets_of(store.read(4)) == [4, 5, 6, 7]


def test_the_log_start_offset_never_decreases(store: Store) -> None:
    store.log.delete_before(Offset(4))
    store.log.delete_before(Offset(2))
    assert store.log.log_start_offset == 4


def test_the_start_may_be_the_high_watermark_and_no_more(store: Store) -> None:
    with pytest.raises(OffsetOutOfRangeError) as raised:
        store.log.delete_before(Offset(9))
    assert raised.value.log_end_offset == 8
    store.log.delete_before(Offset(8))
    assert store.read(8) == []


@pytest.mark.parametrize("durability", ["fsync", "interval"])
def test_the_start_survives_a_kill(new_store: NewStore, durability: str) -> None:
    store = new_store(durability=durability)
    store.write(*numbered(5))
    store.log.delete_before(Offset(3))
    assert store.killed().log.log_start_offset == 3


def test_leader_epochs_that_ended_before_the_start_are_removed_now_and_after_a_kill(new_store: NewStore) -> None:
    store = new_store()
    for epoch in (0, 0, 3, 3, 5):
        store.append(batch(), leader_epoch=epoch)
    store.directory.commit()
    store.directory.checkpoint()
    store.log.delete_before(Offset(3))
    assert store.log.epochs.starts == [(3, 2), (5, 4)]
    assert store.killed().log.epochs.starts == [(3, 2), (5, 4)]


def test_removed_segments_leave_the_log_at_once_and_the_disk_later(store: Store, files: MemoryFiles) -> None:
    paths = [segment.path for segment in store.log.closed]
    store.log.delete_before(Offset(6))
    assert store.log.remove_segments(2, due_ms=NOW_MS + 100) == paths
    assert bases(store.log) == [6]
    assert all(f"{path}.deleted" in listed(files) for path in paths)
    assert store.directory.remove_files(NOW_MS + 99) == []
    removed = store.directory.remove_files(NOW_MS + 100)
    assert {f"{path}.deleted" for path in paths} <= set(removed)
    assert not [name for name in files.list(PARTITION.directory) if name.endswith(".deleted")]


def listed(files: MemoryFiles) -> list[str]:
    return [f"{PARTITION}/{name}" for name in files.list(PARTITION.directory)]


def test_removed_segments_do_not_reappear_after_a_kill(store: Store) -> None:
    store.directory.checkpoint()
    store.log.delete_before(Offset(6))
    store.log.remove_segments(2, due_ms=NOW_MS + 100)
    again = store.killed()
    assert bases(again.log) == [6]
    assert again.directory.remove_files(NOW_MS) != []
    assert not [name for name in again.files.list(PARTITION.directory) if name.endswith(".deleted")]


def test_a_segment_that_never_had_an_index_can_be_removed(store: Store, files: MemoryFiles) -> None:
    files.unlink(store.log.closed[0].index_path)
    store.log.delete_before(Offset(3))
    store.log.remove_segments(1, due_ms=0)
    assert bases(store.log) == [3, 6]


def test_removing_nothing_touches_nothing(store: Store, files: MemoryFiles) -> None:
    before = files.snapshot()
    assert store.log.remove_segments(0, due_ms=0) == []
    assert files.snapshot() == before
