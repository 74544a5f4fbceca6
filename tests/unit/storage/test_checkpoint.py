"""Checkpoints: segments are synced while appends continue, so that recovery and the write-ahead log stay short."""

from dataclasses import replace

import pytest

from logbrook.config import CleanupPolicy
from logbrook.model.identifiers import Offset, ProducerId
from logbrook.storage.compaction import compact
from logbrook.storage.errors import DiskFullError, StorageOfflineError
from logbrook.storage.paths import WAL_DIRECTORY
from logbrook.storage.retention import apply_retention
from logbrook.storage.truncation import truncate
from logbrook.testing import FaultyFiles, MemoryFiles, RecordingFiles
from tests.unit.storage.kit import BATCH_BYTES, NOW_MS, OTHER, PARTITION, NewStore, Store, batch, flip, numbered


@pytest.fixture
def store(new_store: NewStore) -> Store:
    return new_store(segment_bytes=4 * BATCH_BYTES)


def expected(end: int) -> list[bytes]:
    return [b"%05d" % number for number in range(end)]


def test_a_checkpoint_moves_the_recovery_point_to_the_end(store: Store) -> None:
    store.write(*numbered(6))
    assert store.log.recovery_point.offset == 0
    assert store.directory.checkpoint() == 1
    assert store.log.recovery_point == (6, 4, 2 * BATCH_BYTES)


def test_a_log_with_nothing_new_is_not_synced_again(store: Store) -> None:
    store.create(OTHER)
    store.write(*numbered(2))
    store.directory.checkpoint()
    assert store.directory.checkpoint() == 0
    store.write(*numbered(1))
    assert store.directory.checkpoint() == 1


def test_recovery_reads_nothing_after_a_checkpoint(store: Store) -> None:
    store.write(*numbered(6))
    store.directory.checkpoint()
    again = store.killed()
    assert again.values() == expected(6)
    report = again.directory.report
    assert (report.entries_redone, report.bytes_scanned, report.bytes_cut) == (0, 0, 0)


def test_recovery_reads_only_records_after_the_checkpoint(store: Store) -> None:
    store.write(*numbered(6))
    store.directory.checkpoint()
    store.write(*numbered(3, first=6))
    again = store.killed()
    assert again.values() == expected(9)
    assert again.directory.report.entries_redone == 3
    assert again.directory.report.bytes_scanned == 3 * BATCH_BYTES


def test_with_interval_a_power_loss_keeps_the_records_of_the_last_checkpoint(new_store: NewStore) -> None:
    store = new_store(RecordingFiles(), durability="interval", segment_bytes=4 * BATCH_BYTES)
    store.write(*numbered(6))
    store.directory.checkpoint()
    store.write(*numbered(1, first=6))
    assert store.without_power().values() == expected(6)


def test_a_checkpoint_lets_the_write_ahead_log_continue_in_the_same_files(new_store: NewStore) -> None:
    store = new_store(wal_file_bytes=4096)
    for round_number in range(10):
        store.write(*numbered(20, first=20 * round_number))
        store.directory.checkpoint()
    assert len(store.files.list(WAL_DIRECTORY)) <= 4
    assert store.directory.environment.durability.bytes_in_use == 0
    assert store.killed().values() == expected(200)


def test_a_power_loss_after_a_checkpoint_loses_nothing_though_the_files_are_written_over(new_store: NewStore) -> None:
    store = new_store(RecordingFiles(), wal_file_bytes=4096, segment_bytes=4 * BATCH_BYTES)
    for round_number in range(5):
        store.write(*numbered(10, first=10 * round_number))
        store.directory.checkpoint()
    store.write(*numbered(3, first=50))
    assert store.without_power().values() == expected(53)


def test_appends_continue_while_the_segments_are_synced(store: Store) -> None:
    store.write(*numbered(3))
    run = store.directory.begin_checkpoint()
    store.write(*numbered(5, first=3))
    run.run()
    assert store.directory.finish_checkpoint(run) == 1
    assert store.log.recovery_point.offset == 3
    again = store.killed()
    assert again.values() == expected(8)
    assert again.directory.report.entries_redone == 5


def test_only_one_checkpoint_is_under_way_at_a_time(store: Store) -> None:
    run = store.directory.begin_checkpoint()
    with pytest.raises(AssertionError, match="in progress"):
        store.directory.begin_checkpoint()
    run.run()
    store.directory.finish_checkpoint(run)
    store.directory.checkpoint()


def test_a_checkpoint_does_not_acknowledge_pending_appends(store: Store) -> None:
    early = store.append(batch(b"early"))
    store.directory.checkpoint()
    assert not early.done
    late = store.append(batch(b"later"))
    store.directory.commit()
    assert early.done
    assert late.done
    assert store.killed().values() == [b"early", b"later"]


def test_a_commit_around_a_checkpoint_survives_a_power_loss(new_store: NewStore) -> None:
    store = new_store(RecordingFiles())
    store.append(batch(b"early"))
    store.directory.checkpoint()
    store.append(batch(b"later"))
    store.directory.commit()
    assert store.without_power().values() == [b"early", b"later"]


def test_a_partition_that_is_deleted_meanwhile_is_left_out(store: Store) -> None:
    store.create(OTHER)
    store.write(*numbered(3))
    run = store.directory.begin_checkpoint()
    store.directory.delete(PARTITION, NOW_MS)
    run.run()
    store.directory.finish_checkpoint(run)
    assert [log.partition for log in store.killed().directory] == [OTHER]


def test_a_partition_that_is_recreated_meanwhile_has_nothing_of_the_old_one(store: Store) -> None:
    for sequence in range(3):
        store.write(batch(b"old", producer=(5, 0, sequence)))
    run = store.directory.begin_checkpoint()
    store.directory.delete(PARTITION, NOW_MS)
    store.create()
    run.run()
    store.directory.finish_checkpoint(run)
    again = store.killed()
    assert again.values() == []
    assert again.log.producers.get(ProducerId(5)) is None
    again.write(batch(b"new", producer=(5, 0, 0)))
    assert again.killed().values() == [b"new"]


def test_a_segment_that_retention_removes_meanwhile_needs_no_sync(new_store: NewStore) -> None:
    store = new_store(segment_bytes=4 * BATCH_BYTES, retention_bytes=0, file_delete_delay_ms=0)
    store.write(*numbered(4))
    store.directory.checkpoint()
    store.write(*numbered(6, first=4))
    run = store.directory.begin_checkpoint()
    assert apply_retention(store.log, NOW_MS).removed != []
    store.directory.remove_files(NOW_MS)
    run.run()
    store.directory.finish_checkpoint(run)
    again = store.killed()
    assert again.directory.report.quarantined == []
    assert again.values() == expected(10)[4:]


def test_a_segment_that_compaction_replaces_meanwhile_needs_no_sync(new_store: NewStore) -> None:
    batches = [batch(b"%05d" % n, key=b"%d" % (n == 3)) for n in range(12)]
    store = new_store(segment_bytes=4 * len(batches[0]), cleanup_policy={CleanupPolicy.COMPACT})
    store.write(*batches[:8])
    store.directory.checkpoint()
    store.write(*batches[8:])
    store.log.config = replace(store.log.config, segment_bytes=1 << 20)
    run = store.directory.begin_checkpoint()
    assert compact(store.log, NOW_MS, force=True) is not None
    store.directory.remove_files(NOW_MS + 10**9)
    run.run()
    store.directory.finish_checkpoint(run)
    again = store.killed()
    assert again.directory.report.quarantined == []
    assert again.values() == store.values() == [b"00003", *[b"%05d" % n for n in range(7, 12)]]


def test_producers_and_epochs_are_in_the_snapshot(store: Store) -> None:
    for sequence in range(3):
        store.append(batch(producer=(5, 1, sequence)), leader_epoch=sequence)
    store.directory.commit()
    store.directory.checkpoint()
    again = store.killed()
    assert again.directory.report.bytes_scanned == 0
    assert again.log.producers.to_json() == store.log.producers.to_json()
    assert again.log.epochs.starts == store.log.epochs.starts == [(0, 0), (1, 1), (2, 2)]


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("checkpoints_after", [0, 2, 4, None])
def test_producer_state_is_the_same_after_a_kill(
    new_store: NewStore, timestamp_type: str, checkpoints_after: int | None
) -> None:
    store = new_store(message_timestamp_type=timestamp_type, segment_bytes=200)
    for number in range(6):
        if number == checkpoints_after:
            store.directory.checkpoint()
        data = batch(b"v", timestamps=[1000 + number], producer=(number % 2, 0, number // 2))
        store.append(data, now_ms=NOW_MS + number)
    store.directory.commit()
    assert store.killed().log.producers.to_json() == store.log.producers.to_json()


def test_a_snapshot_that_is_lost_is_rebuilt_from_the_log(store: Store) -> None:
    for sequence in range(6):
        store.append(batch(producer=(5, 1, sequence)), leader_epoch=sequence)
    store.directory.commit()
    store.directory.checkpoint()
    state = store.log.producers.to_json()
    flip(store.files, f"{PARTITION}/snapshot", -3)
    again = store.killed()
    assert again.log.producers.to_json() == state
    assert again.log.epochs.starts == store.log.epochs.starts


def test_on_a_full_disk_a_checkpoint_is_refused_and_the_next_may_succeed(store: Store, files: MemoryFiles) -> None:
    store.write(*numbered(3))
    files.capacity_bytes = 0
    with pytest.raises(DiskFullError):
        store.directory.checkpoint()
    assert store.log.recovery_point.offset == 0
    assert store.values() == expected(3)
    files.capacity_bytes = None
    assert store.directory.checkpoint() == 1
    assert store.killed().values() == expected(3)


@pytest.mark.parametrize("call", ["fsync", "fsync_dir"])
def test_a_checkpoint_whose_sync_fails_takes_the_directory_offline(new_store: NewStore, call: str) -> None:
    files = FaultyFiles(MemoryFiles(), only={call})
    store = new_store(files)
    store.write(*numbered(3))
    files.fail_at = files.calls + 1
    with pytest.raises(StorageOfflineError) as raised:
        store.directory.checkpoint()
    assert store.directory.environment.health.failure is raised.value
    for refused in (store.directory.checkpoint, lambda: store.append(batch())):
        with pytest.raises(StorageOfflineError) as again:
            refused()
        assert again.value is raised.value
    assert store.values() == expected(3)


def test_a_checkpoint_that_fails_in_another_thread_takes_the_directory_offline_at_once(new_store: NewStore) -> None:
    """The next handle of the segment would not get the error, and a commit would acknowledge what it has lost."""
    files = FaultyFiles(MemoryFiles(), only={"fsync"})
    store = new_store(files)
    store.write(*numbered(3))
    pending = store.append(batch())
    run = store.directory.begin_checkpoint()
    files.fail_at = files.calls + 1
    with pytest.raises(StorageOfflineError) as raised:
        run.run()
    assert store.directory.environment.health.failure is raised.value
    store.directory.commit()
    assert pending.error is raised.value
    with pytest.raises(StorageOfflineError):
        store.directory.finish_checkpoint(run, raised.value)
    assert store.directory.environment.health.failure is raised.value


def test_no_checkpoint_covers_bytes_whose_sync_failed(new_store: NewStore) -> None:
    """A handle is synced when it makes room for another; where that fails, the kernel forgets, but we do not."""
    files = FaultyFiles(RecordingFiles(), only={"fsync"}, forget_unsynced=True)
    store = new_store(files, open_files_max=1, durability="interval")
    other_log = store.create(OTHER)
    other_log.append(batch(), now_ms=NOW_MS)
    store.write(*numbered(3))
    files.fail_at = files.calls + 1
    with pytest.raises(StorageOfflineError) as raised:
        other_log.read(Offset(0), 1 << 20)
    assert store.directory.environment.health.failure is raised.value
    with pytest.raises(StorageOfflineError):
        store.directory.checkpoint()


def test_a_quarantined_log_loses_nothing_that_was_acknowledged(new_store: NewStore) -> None:
    store = new_store(RecordingFiles(), segment_bytes=4 * BATCH_BYTES)
    store.write(*numbered(8))
    store.directory.checkpoint()
    store.write(*numbered(2, first=8))
    closed = store.log.closed[0]
    store.files.unlink(closed.index_path)
    flip(store.files, closed.path, 16)
    with pytest.raises(Exception, match="quarantined"):
        store.read(0)
    store.directory.checkpoint()
    store.directory.checkpoint()
    tail = store.without_power().files.size(store.log.active.path)
    assert tail == 2 * BATCH_BYTES


def test_checkpoints_are_counted(store: Store) -> None:
    store.directory.checkpoint()
    store.directory.checkpoint()
    assert store.directory.environment.probe.checkpoints == 2


@pytest.fixture
def disk() -> FaultyFiles:
    return FaultyFiles(MemoryFiles(), only={"fsync", "fsync_dir"})


@pytest.fixture
def unsynced(new_store: NewStore, disk: FaultyFiles) -> Store:
    """Segments at 0, 4 and 8, none of them in a checkpoint."""
    store = new_store(disk, segment_bytes=4 * BATCH_BYTES)
    store.write(*numbered(10))
    return store


def test_a_log_with_nothing_new_has_nothing_to_sync(new_store: NewStore) -> None:
    assert new_store().log.begin_sync() is None


def test_only_segments_from_the_recovery_point_on_are_synced(unsynced: Store, disk: FaultyFiles) -> None:
    unsynced.directory.checkpoint()
    unsynced.write(*numbered(4))
    begin = disk.calls
    sync = unsynced.log.begin_sync()
    assert sync is not None
    sync.sync_segments(disk)
    logs = [call.path for call in disk.log[begin:] if call.path.endswith(".log")]
    assert logs == [f"{PARTITION}/{base:020d}.log" for base in (8, 12)]


def test_names_are_synced_after_the_bytes(unsynced: Store, disk: FaultyFiles) -> None:
    sync = unsynced.log.begin_sync()
    assert sync is not None
    sync.sync_segments(disk)
    assert disk.log[-1][1:] == ("fsync_dir", PARTITION.directory)


def test_a_snapshot_is_taken_only_after_a_change(unsynced: Store) -> None:
    sync = unsynced.log.begin_sync()
    assert sync is not None
    assert sync.snapshot is not None
    unsynced.directory.checkpoint()
    unsynced.write(batch())
    sync = unsynced.log.begin_sync()
    assert sync is not None
    assert sync.snapshot is None


def test_finishing_moves_the_recovery_point_to_where_the_log_ended_at_the_beginning(unsynced: Store) -> None:
    sync = unsynced.log.begin_sync()
    assert sync is not None
    unsynced.write(batch())
    sync.run(unsynced.files)
    sync.finish()
    assert unsynced.log.recovery_point == (10, 8, 2 * BATCH_BYTES)


def test_a_truncation_makes_a_sync_outdated(unsynced: Store) -> None:
    sync = unsynced.log.begin_sync()
    assert sync is not None
    assert not sync.is_outdated
    truncate(unsynced.log, Offset(2))
    assert sync.is_outdated
    sync.run(unsynced.files)
    sync.finish()
    assert unsynced.log.recovery_point.offset == 2


def test_a_deletion_makes_a_sync_outdated(unsynced: Store) -> None:
    sync = unsynced.log.begin_sync()
    assert sync is not None
    unsynced.directory.delete(PARTITION, NOW_MS)
    assert sync.is_outdated
    sync.run(unsynced.files)


def test_a_segment_that_is_missing_without_a_reason_is_an_error(unsynced: Store) -> None:
    sync = unsynced.log.begin_sync()
    assert sync is not None
    path = unsynced.log.closed[0].path
    unsynced.files.rename(path, f"{path}.gone")
    with pytest.raises(FileNotFoundError):
        sync.run(unsynced.files)
    unsynced.files.rename(f"{path}.gone", path)
