"""Recovery: acknowledged records are kept, only torn writes are truncated, and corruption is kept and reported."""

import errno
from collections.abc import Callable
from contextlib import suppress
from itertools import count

import pytest

from logbrook.config import CleanupPolicy
from logbrook.model.identifiers import Offset, ProducerId
from logbrook.ports import Files
from logbrook.records.batch import CRC_POSITION
from logbrook.storage.batch_set import AppendOrigin
from logbrook.storage.compaction import compact
from logbrook.storage.errors import CorruptLogError, StorageError
from logbrook.storage.paths import WAL_DIRECTORY, log_path, wal_path
from logbrook.storage.pending_append import PendingAppend
from logbrook.storage.retention import apply_retention
from logbrook.testing import FaultyFiles, MemoryFiles, RecordingFiles, Variant, materialise
from logbrook.testing.crash_states import crash_states
from tests.unit.storage.kit import (
    BATCH_BYTES,
    NOW_MS,
    OTHER,
    PARTITION,
    NewStore,
    Store,
    batch,
    content,
    flip,
    marker,
    numbered,
    offsets_of,
    put,
    values_of,
)

DIRECTORY = PARTITION.directory
SMALL = {"segment_bytes": 4 * BATCH_BYTES, "index_interval_bytes": 0}
BOTH = pytest.mark.parametrize("durability", ["fsync", "interval"])


def expected(end: int, start: int = 0) -> list[bytes]:
    return [b"%05d" % number for number in range(start, end)]


def test_an_empty_directory_needs_nothing(open_store: NewStore) -> None:
    report = open_store().directory.report
    assert (report.partitions, report.entries_redone, report.bytes_scanned, report.bytes_cut) == (0, 0, 0, 0)
    assert (report.quarantined, report.wal_damage) == ([], [])


# Kill: written bytes are still in the page cache.


@BOTH
def test_all_written_records_survive_a_kill(new_store: NewStore, durability: str) -> None:
    store = new_store(**SMALL, durability=durability)
    for data in numbered(10):
        store.append(data)
    again = store.killed()
    assert again.values() == expected(10)
    assert again.log.high_watermark == again.log.log_end_offset == 10
    assert [segment.base_offset for segment in again.log.segments] == [0, 4, 8]


@BOTH
def test_appends_continue_after_each_of_two_kills(new_store: NewStore, durability: str) -> None:
    store = new_store(**SMALL, durability=durability)
    for round_number in range(6):
        store.write(*numbered(3, first=3 * round_number))
        store = store.killed()
        assert store.directory.report.wal_damage == []
        assert store.values() == expected(3 * round_number + 3)


def test_recovery_does_nothing_after_a_clean_close(new_store: NewStore) -> None:
    store = new_store(**SMALL)
    store.write(*numbered(10))
    again = store.reopened()
    report = again.directory.report
    assert (report.partitions, report.entries_redone, report.bytes_scanned, report.bytes_cut) == (1, 0, 0, 0)
    assert again.values() == expected(10)


@pytest.mark.parametrize("segments", [2, 30])
def test_opening_costs_the_same_however_long_the_log_is(new_store: NewStore, segments: int) -> None:
    store = new_store(**SMALL)
    store.write(*numbered(4 * segments))
    store.directory.checkpoint()
    store.write(batch())
    assert isinstance(store.files, MemoryFiles)
    counted = FaultyFiles(MemoryFiles(store.files), only={"open", "pread", "map_readonly", "size"})
    Store(counted, store.settings, [])
    assert counted.calls < 60


@BOTH
def test_producer_state_and_leader_epochs_are_the_same_after_a_kill(new_store: NewStore, durability: str) -> None:
    store = new_store(**SMALL, durability=durability)
    for number in range(10):
        store.append(batch(producer=(number % 3, 0, number // 3)), leader_epoch=number // 4)
        if number == 5:
            store.directory.checkpoint()
    again = store.killed()
    assert again.log.producers.to_json() == store.log.producers.to_json()
    assert again.log.epochs.starts == store.log.epochs.starts
    assert again.write(batch(producer=(0, 0, 3))).duplicate


@pytest.mark.parametrize("checkpoints_after", [0, 1, 2, 3, None])
def test_an_open_transaction_is_open_after_a_kill_and_a_decided_one_is_decided(
    new_store: NewStore, checkpoints_after: int | None
) -> None:
    store = new_store(segment_bytes=1)
    steps: list[Callable[[], PendingAppend]] = [
        lambda: store.append(batch(producer=(1, 0, 0), transactional=True)),
        lambda: store.append(batch(producer=(2, 0, 0), transactional=True)),
        lambda: store.append(marker(1), origin=AppendOrigin.COORDINATOR),
    ]
    for number, step in enumerate(steps):
        if number == checkpoints_after:
            store.directory.checkpoint()
        step()
    if checkpoints_after == len(steps):
        store.directory.checkpoint()
    store.directory.commit()
    again = store.killed()
    assert again.log.last_stable_offset == store.log.last_stable_offset == 1
    assert again.log.producers.to_json() == store.log.producers.to_json()


# Power loss: bytes that were not synced are lost.


def test_everything_that_was_acknowledged_survives_a_power_loss(new_store: NewStore) -> None:
    store = new_store(RecordingFiles(), **SMALL)
    store.write(*numbered(10))
    assert store.without_power().values() == expected(10)
    for data in numbered(3, first=10):
        store.append(data)
    assert store.without_power().values()[:10] == expected(10)


@pytest.mark.parametrize("variant", Variant)
def test_however_the_disk_looks_after_a_power_loss(new_store: NewStore, variant: Variant) -> None:
    store = new_store(RecordingFiles(), **SMALL, wal_file_bytes=4096)
    other_log = store.create(OTHER)
    for number, data in enumerate(numbered(20)):
        store.write(data)
        other_log.append(batch(b"other"), now_ms=NOW_MS)
        store.directory.commit()
        if number in (7, 13):
            store.directory.checkpoint()
    again = store.without_power(variant)
    assert again.directory.report.quarantined == []
    assert again.directory.report.wal_damage == []
    assert again.values() == expected(20)
    assert again.directory.get(OTHER).log_end_offset == 20


def test_acknowledged_records_survive_a_power_loss_at_any_moment(new_store: NewStore, open_store: NewStore) -> None:
    files = RecordingFiles()
    store = new_store(files, **SMALL, wal_file_bytes=4096)
    for number, data in enumerate(numbered(9)):
        store.write(data)
        files.mark(number + 1)
        if number == 5:
            store.directory.checkpoint()
    for state in crash_states(files.journal, seeds=(0,), prefixes=range(0, len(files.journal.ops) + 1, 3)):
        promised = max((mark for mark in state.marks if isinstance(mark, int)), default=0)
        again = open_store(state.files, **store.settings)
        assert again.directory.report.quarantined == [], str(state)
        if promised:
            assert again.values()[:promised] == expected(promised), str(state)


def test_a_power_loss_during_recovery_is_recovered_from(new_store: NewStore, open_store: NewStore) -> None:
    store = new_store(RecordingFiles(), **SMALL)
    store.write(*numbered(6))
    store.directory.checkpoint()
    store.write(*numbered(5, first=6))
    assert isinstance(store.files, RecordingFiles)
    journal = store.files.journal
    files = RecordingFiles(materialise(journal, len(journal.ops), Variant.LOST))
    open_store(files, **store.settings)
    for state in crash_states(files.journal):
        again = open_store(state.files, **store.settings)
        assert again.values() == expected(11), str(state)


def test_the_first_append_after_a_clean_close_survives_a_power_loss(open_store: NewStore) -> None:
    for writes_before in (0, 3):
        files = RecordingFiles()
        store = open_store(files)
        store.create()
        for data in numbered(writes_before):
            store.write(data)
        again = store.reopened()
        again.write(*numbered(2, first=writes_before))
        assert again.without_power().values() == expected(writes_before + 2)


def test_an_append_to_a_new_partition_survives_whatever_else_is_in_its_commit(new_store: NewStore) -> None:
    store = new_store(RecordingFiles())
    store.append(batch(b"before"))
    other_log = store.create(OTHER)
    append = other_log.append(batch(b"first"), now_ms=NOW_MS)
    store.directory.commit()
    assert append.result().base_offset == 0
    again = store.without_power()
    assert values_of(again.directory.get(OTHER).read(Offset(0), 1 << 20).slices) == [b"first"]
    assert again.values() == [b"before"]


@BOTH
def test_the_log_start_offset_is_at_most_the_log_end_offset(new_store: NewStore, durability: str) -> None:
    store = new_store(RecordingFiles(), **SMALL, durability=durability)
    store.write(*numbered(3))
    store.log.delete_before(Offset(3))
    again = store.without_power()
    assert again.log.log_start_offset == 3
    assert again.log.log_end_offset >= 3
    append = again.write(batch(b"next"))
    assert append.base_offset >= 3
    assert again.values() == [b"next"]
    assert again.killed().values() == [b"next"]


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("variant", [Variant.LOST, Variant.KEPT])
def test_an_open_that_fails_at_any_call_can_be_repeated_without_loss(
    new_store: NewStore, variant: Variant, error: int
) -> None:
    store = new_store(RecordingFiles(), **SMALL)
    store.write(*numbered(6))
    store.directory.checkpoint()
    store.write(*numbered(5, first=6))
    assert isinstance(store.files, RecordingFiles)
    journal = store.files.journal
    for n in count(1):
        disk = materialise(journal, len(journal.ops), variant)
        faulty = FaultyFiles(disk, fail_at=n, error=error, partial_writes=True)
        with suppress(OSError, StorageError):
            Store(faulty, store.settings, []).directory.abandon()
        assert Store(disk, store.settings, []).values() == expected(11), n
        if faulty.calls < n:
            break
    assert n > 50


# Torn tail: truncated after the durable point, and only there.


@pytest.mark.parametrize("damage", [0, 8, 16, CRC_POSITION, 30, BATCH_BYTES - 1])
def test_above_the_durable_offset_the_log_ends_at_the_first_invalid_batch(new_store: NewStore, damage: int) -> None:
    store = new_store(durability="interval")
    store.write(*numbered(3))
    store.directory.checkpoint()
    store.write(*numbered(4, first=3))
    again = store.killed(lambda disk: flip(disk, log_path(DIRECTORY, Offset(0)), 5 * BATCH_BYTES + damage))
    assert again.values() == expected(5)
    assert again.directory.report.bytes_cut == 2 * BATCH_BYTES
    assert again.directory.report.quarantined == []
    again.write(batch(b"next"))
    assert again.killed().values() == [*expected(5), b"next"]


@BOTH
@pytest.mark.parametrize(
    "rest",
    [*(bytes(batch()[:length]) for length in range(1, BATCH_BYTES, 9)), bytes(5000), bytes(batch())],
    ids=lambda rest: f"{len(rest)}-{rest[:1].hex()}",
)
def test_bytes_that_are_not_the_next_batch_are_truncated(new_store: NewStore, durability: str, rest: bytes) -> None:
    store = new_store(durability=durability)
    store.write(*numbered(3))
    path = log_path(DIRECTORY, Offset(0))
    again = store.killed(lambda disk: put(disk, path, content(disk, path) + rest))
    assert again.values() == expected(3)
    assert again.directory.report.bytes_cut == len(rest)
    assert again.files.size(path) == 3 * BATCH_BYTES


def test_segments_after_the_end_are_removed(new_store: NewStore) -> None:
    store = new_store(**SMALL, durability="interval")
    store.write(*numbered(2))
    store.directory.checkpoint()
    store.write(*numbered(9, first=2))
    again = store.killed(lambda disk: flip(disk, log_path(DIRECTORY, Offset(0)), -1))
    assert again.values() == expected(3)
    assert _logs(again.files) == ["00000000000000000000.log"]
    again.write(*[batch(b"new")] * 8)
    assert again.killed().values() == [*expected(3), *[b"new"] * 8]


@pytest.mark.parametrize("damage", [0, 8, 16, CRC_POSITION, 30, BATCH_BYTES - 1])
def test_redo_repairs_damaged_bytes_that_the_write_ahead_log_has(new_store: NewStore, damage: int) -> None:
    store = new_store()
    store.write(*numbered(3))
    store.directory.checkpoint()
    store.write(*numbered(4, first=3))
    again = store.killed(lambda disk: flip(disk, log_path(DIRECTORY, Offset(0)), 5 * BATCH_BYTES + damage))
    assert again.values() == expected(7)
    assert again.directory.report.entries_redone == 4


def test_a_segment_whose_name_was_lost_is_rebuilt(new_store: NewStore) -> None:
    store = new_store(**SMALL)
    store.write(*numbered(10))
    assert store.killed(lambda disk: disk.unlink(log_path(DIRECTORY, Offset(8)))).values() == expected(10)


def test_records_of_a_synced_segment_survive_a_power_loss_without_their_data_in_the_write_ahead_log(
    new_store: NewStore,
) -> None:
    store = new_store(RecordingFiles(MemoryFiles()), **SMALL, segment_sync_min_bytes=2 * BATCH_BYTES)
    store.write(*numbered(1))
    store.write(*numbered(9, first=1))
    again = store.without_power()
    assert again.values() == expected(10)
    # The first batch was committed alone, and the last segment has two.
    assert again.directory.report.entries_redone == 1


def lose_the_last_batch(disk: MemoryFiles) -> None:
    path = log_path(DIRECTORY, Offset(8))
    put(disk, path, content(disk, path)[:-BATCH_BYTES])


def lose_the_last_segment(disk: MemoryFiles) -> None:
    disk.unlink(log_path(DIRECTORY, Offset(8)))


@pytest.mark.parametrize("damage", [lose_the_last_batch, lose_the_last_segment])
def test_records_missing_at_the_end_of_a_synced_segment_are_corruption(
    new_store: NewStore, damage: Callable[[MemoryFiles], None]
) -> None:
    store = new_store(**SMALL, segment_sync_min_bytes=1)
    store.write(*numbered(10))
    again = store.killed(damage)
    (error,) = again.directory.report.quarantined
    assert "was durable up to 10" in error.reason
    assert again.log.log_end_offset == 10


# Corruption: bad bytes below the durable point.


ROTTEN = log_path(DIRECTORY, Offset(4))


def rot(disk: MemoryFiles) -> None:
    flip(disk, ROTTEN, 16)
    put(disk, ROTTEN.replace(".log", ".index"), b"")


@pytest.fixture
def healthy(new_store: NewStore) -> Store:
    """Two partitions; offsets 0-5 of the first are in a checkpoint, 6 is in the write-ahead log."""
    store = new_store(**SMALL)
    store.create(OTHER)
    store.write(*numbered(6))
    store.directory.checkpoint()
    store.write(*numbered(1, first=6))
    return store


@pytest.fixture
def rotten(healthy: Store) -> Store:
    """The same, after the first header of the second segment was corrupted and its index lost."""
    return healthy.killed(rot)


def _logs(files: Files) -> list[str]:
    return [name for name in files.list(DIRECTORY) if name.endswith(".log")]


def test_bad_bytes_below_the_durable_point_quarantine_the_partition_and_nothing_is_deleted(healthy: Store) -> None:
    before: dict[str, bytes] = {}

    def rot_and_look(disk: MemoryFiles) -> None:
        rot(disk)
        before.update({name: content(disk, f"{DIRECTORY}/{name}") for name in _logs(disk)})

    again = healthy.killed(rot_and_look)
    (error,) = again.directory.report.quarantined
    assert (error.partition, error.file, error.position) == (PARTITION, ROTTEN, 0)
    assert {name: content(again.files, f"{DIRECTORY}/{name}") for name in _logs(again.files)} == before
    with pytest.raises(CorruptLogError):
        again.append(batch())


def test_other_partitions_open_and_work(rotten: Store) -> None:
    append = rotten.directory.get(OTHER).append(batch(), now_ms=NOW_MS)
    rotten.directory.commit()
    assert append.result().base_offset == 0


def test_the_quarantine_holds_after_every_restart(rotten: Store) -> None:
    store = rotten
    for _ in range(3):
        store = store.killed()
        assert [error.partition for error in store.directory.report.quarantined] == [PARTITION]
    store = store.reopened()
    assert store.log.corruption is not None


def test_records_before_the_damage_can_be_read(rotten: Store) -> None:
    assert offsets_of(rotten.read(0)) == [0, 1, 2, 3]
    assert offsets_of(rotten.read(0, 4 * BATCH_BYTES)) == [0, 1, 2, 3]


@pytest.mark.parametrize("offset", [4, 5, 6, 7])
def test_a_read_after_the_damage_raises_corrupt_log_not_offset_out_of_range(rotten: Store, offset: int) -> None:
    """OFFSET_OUT_OF_RANGE makes a consumer reset its position, and it would skip records."""
    for store in (rotten, rotten.killed()):
        with pytest.raises(CorruptLogError):
            store.read(offset)


def test_the_log_end_offset_of_a_quarantined_log_does_not_decrease(healthy: Store, rotten: Store) -> None:
    assert rotten.log.log_end_offset >= healthy.log.high_watermark
    assert rotten.killed().log.log_end_offset >= healthy.log.high_watermark


def test_a_missing_segment_below_the_durable_point_is_corruption(new_store: NewStore) -> None:
    store = new_store(**SMALL)
    store.write(*numbered(6))
    store.directory.checkpoint()
    again = store.killed(lambda disk: disk.unlink(ROTTEN))
    assert [error.partition for error in again.directory.report.quarantined] == [PARTITION]


def test_a_segment_shorter_than_its_synced_size_is_corrupt(new_store: NewStore) -> None:
    store = new_store(**SMALL)
    store.write(*numbered(6))
    store.directory.checkpoint()
    again = store.killed(lambda disk: put(disk, ROTTEN, content(disk, ROTTEN)[:-1]))
    (error,) = again.directory.report.quarantined
    assert error.position == 2 * BATCH_BYTES - 1


@pytest.mark.parametrize("snapshot", ["kept", "lost"])
def test_bad_bytes_in_a_closed_segment_never_keep_the_directory_from_opening(
    new_store: NewStore, snapshot: str
) -> None:
    store = new_store(**SMALL)
    store.create(OTHER)
    store.write(*numbered(6))
    store.directory.checkpoint()

    def damage(disk: MemoryFiles) -> None:
        flip(disk, log_path(DIRECTORY, Offset(0)), 16)
        if snapshot == "lost":
            disk.unlink(f"{DIRECTORY}/snapshot")

    again = store.killed(damage)
    assert len(again.directory) == 2
    if again.log.corruption is None:
        with pytest.raises(CorruptLogError):
            again.read(0)
    with pytest.raises(CorruptLogError):
        again.append(batch())


@pytest.mark.parametrize("damage", ["flipped", "missing"])
def test_a_damaged_state_quarantines_the_partition(new_store: NewStore, damage: str) -> None:
    store = new_store(**SMALL)
    store.write(*numbered(6))
    store.directory.checkpoint()
    before = {name: content(store.files, f"{DIRECTORY}/{name}") for name in _logs(store.files)}
    path = f"{DIRECTORY}/state"
    again = store.killed(lambda disk: flip(disk, path, -3) if damage == "flipped" else disk.unlink(path))
    (error,) = again.directory.report.quarantined
    assert error.file == path
    assert {name: content(again.files, f"{DIRECTORY}/{name}") for name in _logs(again.files)} == before
    with pytest.raises(CorruptLogError):
        again.append(batch())


# Indexes and leftover files.


def test_indexes_are_rebuilt_where_they_are_missing(new_store: NewStore) -> None:
    store = new_store(**SMALL)
    store.write(*numbered(10))

    def lose_indexes(disk: MemoryFiles) -> None:
        for name in disk.list(DIRECTORY):
            if name.endswith(".index"):
                disk.unlink(f"{DIRECTORY}/{name}")

    again = store.killed(lose_indexes)
    for offset in range(10):
        assert offsets_of(again.read(offset)) == list(range(offset, 10))


def test_partly_written_files_are_removed(new_store: NewStore) -> None:
    store = new_store(**SMALL)
    store.write(*numbered(2))
    put(store.files, f"{DIRECTORY}/state.tmp", b"half")
    put(store.files, f"{log_path(DIRECTORY, Offset(0))}.tmp", b"half")
    again = store.killed()
    assert not [name for name in again.files.list(DIRECTORY) if name.endswith(".tmp")]
    assert again.values() == expected(2)


def test_files_marked_for_deletion_are_removed_in_the_next_step(new_store: NewStore) -> None:
    store = new_store(**SMALL)
    put(store.files, f"{log_path(DIRECTORY, Offset(0))}.deleted", b"old")
    again = store.killed()
    assert again.directory.remove_files(NOW_MS) == [f"{log_path(DIRECTORY, Offset(0))}.deleted"]


# Reused names.


@BOTH
def test_a_partition_that_is_recreated_has_nothing_of_the_old_one(new_store: NewStore, durability: str) -> None:
    store = new_store(**SMALL, durability=durability)
    for number in range(10):
        store.write(batch(b"old %d" % number, producer=(5, 0, number)))
    store.directory.delete(PARTITION, NOW_MS)
    store.create()
    assert store.values() == []
    again = store.killed()
    assert again.values() == []
    assert again.log.producers.get(ProducerId(5)) is None
    again.write(batch(b"new"))
    assert again.killed().values() == [b"new"]


def test_entries_of_a_deleted_partition_are_not_written_to_its_successor_after_a_power_loss(
    new_store: NewStore,
) -> None:
    store = new_store(RecordingFiles(), **SMALL)
    store.write(*numbered(10))
    store.directory.delete(PARTITION, NOW_MS)
    store.create()
    store.write(batch(b"new"))
    for variant in (Variant.LOST, Variant.KEPT, Variant.DATA_ONLY, Variant.NAMES_ONLY):
        assert store.without_power(variant).values() == [b"new"]


def test_a_deleted_partition_does_not_reappear(new_store: NewStore) -> None:
    store = new_store(RecordingFiles(), **SMALL)
    store.write(*numbered(10))
    store.directory.delete(PARTITION, NOW_MS)
    assert len(store.killed().directory) == 0
    assert len(store.without_power().directory) == 0


# The write-ahead log.


def test_creating_and_dying_again_and_again_is_no_damage(open_store: NewStore) -> None:
    """Entry numbers are skipped when a partition is created; the gap is not a loss."""
    store = open_store()
    for number in range(4):
        log = store.create(PARTITION._replace(partition=number))
        store = store.killed()
        log = store.directory.get(log.partition)
        log.append(batch(), now_ms=NOW_MS)
        store.directory.commit()
        store = store.killed()
        assert store.directory.report.wal_damage == []


def test_damage_to_the_write_ahead_log_is_logged_and_its_file_kept_aside(new_store: NewStore) -> None:
    store = new_store(**SMALL)
    for data in numbered(6):
        store.write(data)
    again = store.killed(lambda disk: flip(disk, wal_path(0), 512 + 100))
    assert len(again.directory.report.wal_damage) >= 1
    assert [name for name in again.files.list(WAL_DIRECTORY) if name.endswith(".damaged")] != []
    # The segments have the entries that the write-ahead log lost, since this was no power loss.
    assert again.values() == expected(6)


def test_a_lost_entry_in_the_middle_is_corruption_and_not_the_end_of_the_log(new_store: NewStore) -> None:
    store = new_store(RecordingFiles())
    for data in numbered(6):
        store.write(data)
    assert isinstance(store.files, RecordingFiles)
    journal = store.files.journal
    files = materialise(journal, len(journal.ops), Variant.LOST)
    flip(files, wal_path(0), 512 + 100)
    again = Store(files, store.settings, [])
    assert [error.partition for error in again.directory.report.quarantined] == [PARTITION]
    assert again.log.log_end_offset >= 1


# Durability may change between runs.


@pytest.mark.parametrize("first", ["fsync", "interval"])
@pytest.mark.parametrize("second", ["fsync", "interval"])
@pytest.mark.parametrize("stop", ["kill", "close"])
def test_durability_may_be_chosen_anew_at_every_start(new_store: NewStore, first: str, second: str, stop: str) -> None:
    store = new_store(**SMALL, durability=first)
    for round_number, durability in enumerate([second, first, second, first]):
        store.write(*numbered(5, first=5 * round_number))
        store = store.killed(durability=durability) if stop == "kill" else store.reopened(durability=durability)
        assert store.values() == expected(5 * round_number + 5)
        assert store.directory.report.wal_damage == []


def test_records_acknowledged_with_fsync_survive_a_start_with_interval(new_store: NewStore) -> None:
    store = new_store(RecordingFiles(), **SMALL)
    store.write(*numbered(6))
    assert isinstance(store.files, RecordingFiles)
    journal = store.files.journal
    files = RecordingFiles(materialise(journal, len(journal.ops), Variant.LOST))
    again = Store(files, store.settings | {"durability": "interval"}, [])
    assert again.values() == expected(6)
    assert again.without_power().values() == expected(6)
    assert files.list(WAL_DIRECTORY) == []


def test_interval_mode_loses_nothing_in_a_kill_and_only_unflushed_records_in_a_power_loss(new_store: NewStore) -> None:
    store = new_store(RecordingFiles(), durability="interval")
    store.write(*numbered(3))
    store.directory.checkpoint()
    store.write(*numbered(2, first=3))
    assert store.killed().values() == expected(5)
    assert store.without_power().values() == expected(3)


# Maintenance right at the recovery point.


@BOTH
def test_retention_may_remove_the_segment_that_ends_at_the_recovery_point(new_store: NewStore, durability: str) -> None:
    store = new_store(**SMALL, durability=durability, retention_bytes=0)
    store.write(*numbered(4))
    store.directory.checkpoint()
    store.log.roll()
    store.write(*numbered(2, first=4))
    assert apply_retention(store.log, NOW_MS).log_start_offset == 4
    again = store.killed()
    assert again.directory.report.quarantined == []
    assert again.values() == expected(6, start=4)


@BOTH
def test_compaction_may_rewrite_the_segment_that_ends_at_the_recovery_point(
    new_store: NewStore, durability: str
) -> None:
    store = new_store(durability=durability, cleanup_policy={CleanupPolicy.COMPACT})
    store.write(*[batch(b"%05d" % number, key=b"k") for number in range(4)])
    store.directory.checkpoint()
    store.log.roll()
    store.write(batch(b"00004", key=b"k"))
    assert compact(store.log, NOW_MS, force=True) is not None
    assert store.values() == [b"00003", b"00004"]
    again = store.killed()
    assert again.directory.report.quarantined == []
    assert again.values() == [b"00003", b"00004"]


def test_an_entry_from_before_a_checkpoint_is_not_written_into_a_compacted_segment(new_store: NewStore) -> None:
    """A commit after a checkpoint may hold entries from before it, whose segment may have been compacted meanwhile."""
    size = len(batch(b"00000", key=b"k"))
    store = new_store(cleanup_policy={CleanupPolicy.COMPACT}, segment_bytes=4 * size)
    store.write(*[batch(b"%05d" % number, key=b"k") for number in range(3)])
    store.append(batch(b"00003", key=b"k"))
    store.append(batch(b"00004", key=b"k"))
    store.directory.checkpoint()
    store.append(batch(b"00005", key=b"k"))
    store.directory.commit()
    assert compact(store.log, NOW_MS, force=True) is not None
    before = store.values()
    again = store.killed()
    assert again.directory.report.quarantined == []
    assert again.values() == before
