"""Making what a log has written durable, while its owner goes on."""

import pytest

from logbrook.storage.truncation import truncate
from logbrook.testing import FaultyFiles, MemoryFiles
from tests.unit.storage.kit import BATCH_BYTES, NOW_MS, PARTITION, NewStore, Store, batch, numbered


@pytest.fixture
def disk() -> FaultyFiles:
    return FaultyFiles(MemoryFiles(), only={"fsync", "fsync_dir"})


@pytest.fixture
def store(new_store: NewStore, disk: FaultyFiles) -> Store:
    """Segments at 0, 4 and 8, none of them in a checkpoint."""
    store = new_store(disk, segment_bytes=4 * BATCH_BYTES)
    store.write(*numbered(10))
    return store


def test_a_log_with_nothing_new_has_nothing_to_sync(new_store: NewStore) -> None:
    assert new_store().log.begin_sync() is None


def test_only_segments_from_the_recovery_point_on_are_synced(store: Store, disk: FaultyFiles) -> None:
    store.directory.checkpoint()
    store.write(*numbered(4))
    begin = disk.calls
    sync = store.log.begin_sync()
    assert sync is not None
    sync.sync_segments(disk)
    logs = [call.path for call in disk.log[begin:] if call.path.endswith(".log")]
    assert logs == [f"{PARTITION}/{base:020d}.log" for base in (8, 12)]


def test_names_are_synced_after_the_bytes(store: Store, disk: FaultyFiles) -> None:
    sync = store.log.begin_sync()
    assert sync is not None
    sync.sync_segments(disk)
    assert disk.log[-1][1:] == ("fsync_dir", PARTITION.directory)


def test_a_snapshot_is_taken_only_when_there_is_something_new_in_it(store: Store) -> None:
    sync = store.log.begin_sync()
    assert sync is not None
    assert sync.snapshot is not None
    store.directory.checkpoint()
    store.write(batch())
    sync = store.log.begin_sync()
    assert sync is not None
    assert sync.snapshot is None


def test_finishing_moves_the_recovery_point_to_where_the_log_ended_at_the_beginning(store: Store) -> None:
    sync = store.log.begin_sync()
    assert sync is not None
    store.write(batch())
    sync.run(store.files)
    sync.finish()
    assert store.log.recovery_point == (10, 8, 2 * BATCH_BYTES)


def test_a_truncation_overtakes_it(store: Store) -> None:
    sync = store.log.begin_sync()
    assert sync is not None
    assert not sync.is_overtaken
    truncate(store.log, 2)
    assert sync.is_overtaken
    sync.run(store.files)
    sync.finish()
    assert store.log.recovery_point.offset == 2


def test_a_deletion_overtakes_it(store: Store) -> None:
    sync = store.log.begin_sync()
    assert sync is not None
    store.directory.delete(PARTITION, NOW_MS)
    assert sync.is_overtaken
    sync.run(store.files)


def test_a_segment_that_is_missing_without_a_reason_is_an_error(store: Store) -> None:
    sync = store.log.begin_sync()
    assert sync is not None
    path = store.log.closed[0].path
    store.files.rename(path, f"{path}.gone")
    with pytest.raises(FileNotFoundError):
        sync.run(store.files)
    store.files.rename(f"{path}.gone", path)
