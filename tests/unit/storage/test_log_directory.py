"""A data directory: its lock, its contents, and its maintenance."""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from logbrook.config import LogConfig
from logbrook.model import InvalidTopicNameError, LogbrookError, TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.ports import OsFiles
from logbrook.storage.errors import (
    CorruptFileError,
    DirectoryLockedError,
    DiskFullError,
    PartitionExistsError,
    PartitionNotFoundError,
    StorageError,
    StorageOfflineError,
)
from logbrook.storage.log import Log
from logbrook.storage.retention import apply_retention
from logbrook.testing import FaultyFiles, MemoryFiles
from tests.unit.storage.kit import (
    BATCH_BYTES,
    NOW_MS,
    OTHER,
    PARTITION,
    NewStore,
    Store,
    batch,
    flip,
    numbered,
    offsets_of,
)


def expected(end: int) -> list[bytes]:
    return [b"%05d" % number for number in range(end)]


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_directory_is_open_once(open_store: NewStore, tmp_path: Path, on_disk: bool) -> None:
    files = OsFiles(tmp_path) if on_disk else MemoryFiles()
    store = open_store(files)
    with pytest.raises(DirectoryLockedError):
        open_store(OsFiles(tmp_path) if on_disk else files)
    store.close()
    open_store(files).close()


def test_a_directory_that_could_not_be_opened_is_not_held(open_store: NewStore, files: MemoryFiles) -> None:
    open_store().close()
    flip(files, "checkpoint", -3)
    for _ in range(2):
        with pytest.raises(CorruptFileError, match="checkpoint"):
            open_store()


def test_a_lost_checkpoint_is_not_replaced_by_an_empty_one(new_store: NewStore, open_store: NewStore) -> None:
    store = new_store()
    store.write(*numbered(3))
    store.close()
    store.files.unlink("checkpoint")
    with pytest.raises(CorruptFileError, match="missing"):
        open_store()


def test_a_new_log_is_empty_and_is_found_again(open_store: NewStore) -> None:
    store = open_store()
    log = store.create()
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, 0, 0)
    assert store.directory.get(PARTITION) is log
    assert list(store.directory) == [log]
    assert len(store.directory) == 1


def test_a_new_log_survives_a_kill(open_store: NewStore) -> None:
    store = open_store()
    store.create()
    store.create(OTHER)
    assert {log.partition for log in store.killed().directory} == {PARTITION, OTHER}


def test_a_partition_is_created_once(new_store: NewStore) -> None:
    store = new_store()
    with pytest.raises(PartitionExistsError) as raised:
        store.create()
    assert raised.value.partition == PARTITION


def test_several_logs_are_created_together_and_survive_a_kill(open_store: NewStore) -> None:
    store = open_store()
    partitions = [TopicPartition("many", number) for number in range(5)]
    logs = store.directory.create_all(partitions, LogConfig())
    assert [log.partition for log in logs] == partitions
    logs[3].append(batch(b"works"), now_ms=NOW_MS)
    again = store.killed().directory
    assert [again.get(partition).log_end_offset for partition in partitions] == [0, 0, 0, 1, 0]


def test_creating_several_logs_fails_if_one_of_them_exists(new_store: NewStore) -> None:
    store = new_store()
    with pytest.raises(PartitionExistsError):
        store.directory.create_all([OTHER, PARTITION], LogConfig())
    assert OTHER not in store.directory
    store.directory.create_all([OTHER], LogConfig())


def test_on_a_full_disk_logs_are_created_together_or_not_at_all(open_store: NewStore) -> None:
    partitions = [TopicPartition("many", number) for number in range(3)]
    for room in range(0, 800, 40):
        files = MemoryFiles()
        store = open_store(files)
        files.capacity_bytes = files.used_bytes() + room
        try:
            store.directory.create_all(partitions, LogConfig())
        except DiskFullError:
            assert len(store.directory) == 0
            files.capacity_bytes = None
            store.directory.create_all(partitions, LogConfig())
        assert {log.partition for log in store.killed().directory} == set(partitions)


def test_a_partition_that_is_being_created_or_deleted_cannot_be_created(new_store: NewStore) -> None:
    directory = new_store().directory
    creation = directory.begin_create([OTHER], LogConfig())
    with pytest.raises(PartitionExistsError):
        directory.create(OTHER, LogConfig())
    creation.run()
    assert OTHER not in directory
    assert directory.finish_create(creation) == [directory.get(OTHER)]
    deletion = directory.begin_delete([PARTITION, OTHER], NOW_MS)
    assert len(directory) == 0
    with pytest.raises(PartitionExistsError):
        directory.create(OTHER, LogConfig())
    deletion.run()
    directory.finish_delete(deletion)
    assert directory.create(OTHER, LogConfig()).log_end_offset == 0


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "é", "x" * 250])
def test_a_topic_name_that_may_not_become_a_directory_is_refused(open_store: NewStore, topic: str) -> None:
    store = open_store()
    with pytest.raises(InvalidTopicNameError):
        store.create(TopicPartition(topic, 0))
    assert len(store.directory) == 0


@pytest.mark.parametrize("number", [-1, 2**31])
def test_a_number_that_would_be_read_back_as_another_partition_is_refused(open_store: NewStore, number: int) -> None:
    store = open_store()
    with pytest.raises((LogbrookError, AssertionError)):
        store.create(TopicPartition("orders", number))
    assert len(store.killed().directory) == 0


def test_an_unknown_partition_is_not_found(open_store: NewStore) -> None:
    store = open_store()
    with pytest.raises(PartitionNotFoundError) as raised:
        store.directory.get(PARTITION)
    assert raised.value.partition == PARTITION
    with pytest.raises(PartitionNotFoundError):
        store.directory.delete(PARTITION, NOW_MS)


def test_each_log_has_its_own_settings_after_a_restart(new_store: NewStore) -> None:
    store = new_store(segment_bytes=2 * BATCH_BYTES)
    store.write(*numbered(5))
    again = store.killed(segment_bytes=100 * BATCH_BYTES)
    again.write(*numbered(5))
    assert len(again.log.segments) == 3


def test_topics_with_dashes_and_numbers_in_their_names_are_distinguished(open_store: NewStore) -> None:
    partitions = [TopicPartition("a", 11), TopicPartition("a-1", 1), TopicPartition("a-1-1", 0), TopicPartition("a", 1)]
    store = open_store()
    for partition in partitions:
        store.create(partition).append(batch(str(partition).encode()), now_ms=NOW_MS)
    store.directory.commit()
    again = store.killed()
    assert {log.partition for log in again.directory} == set(partitions)


def test_a_deleted_log_is_removed_at_once_and_its_files_later(new_store: NewStore) -> None:
    store = new_store(file_delete_delay_ms=1000)
    store.write(*numbered(3))
    store.directory.delete(PARTITION, NOW_MS)
    with pytest.raises(PartitionNotFoundError):
        store.directory.get(PARTITION)
    assert store.directory.remove_files(NOW_MS + 999) == []
    assert len(store.directory.remove_files(NOW_MS + 1000)) >= 3
    assert store.files.list("") == ["checkpoint", "lock", "wal"]


def test_a_name_can_be_used_again_before_the_old_files_are_gone(new_store: NewStore) -> None:
    store = new_store()
    for number in range(3):
        store.write(batch(b"round %d" % number))
        assert store.values() == [b"round %d" % number]
        store.directory.delete(PARTITION, NOW_MS)
        store.create()
    store.write(batch(b"last"))
    while store.directory.remove_files(NOW_MS + 10**9):
        continue
    assert store.values() == [b"last"]
    assert store.killed().values() == [b"last"]


def test_appends_of_a_deleted_log_are_completed(new_store: NewStore) -> None:
    store = new_store()
    append = store.append(batch())
    store.directory.delete(PARTITION, NOW_MS)
    store.directory.commit()
    assert append.done


@pytest.mark.parametrize("length", [249, 240, 200])
def test_a_topic_with_the_longest_name_can_be_made_written_and_deleted(
    open_store: NewStore, tmp_path: Path, length: int
) -> None:
    store = open_store(OsFiles(tmp_path))
    partition = TopicPartition("x" * length, 0)
    log = store.create(partition)
    log.append(batch(), now_ms=NOW_MS)
    store.directory.commit()
    store.directory.delete(partition, NOW_MS)
    store.create(partition)
    assert store.directory.environment.health.failure is None
    store.close()


def test_a_log_cannot_be_created_on_a_full_disk_and_can_be_after_space_is_freed(open_store: NewStore) -> None:
    for room in range(0, 400, 20):
        files = MemoryFiles()
        store = open_store(files)
        files.capacity_bytes = files.used_bytes() + room
        try:
            store.create()
        except DiskFullError:
            with pytest.raises(PartitionNotFoundError):
                store.directory.get(PARTITION)
            files.capacity_bytes = None
            store.create()
        store.killed()
        files.capacity_bytes = None
        store.write(batch(b"works"))
        assert store.killed().values() == [b"works"]


def test_a_full_disk_does_not_keep_a_log_from_being_deleted(new_store: NewStore, files: MemoryFiles) -> None:
    """Deleting logs is how an operator frees disk space."""
    store = new_store(index_interval_bytes=0, file_delete_delay_ms=0)
    store.write(*numbered(10))
    files.capacity_bytes = 0
    store.directory.delete(PARTITION, NOW_MS)
    store.directory.remove_files(NOW_MS)
    assert len(store.directory) == 0
    assert PARTITION.directory not in files.list("")


def test_retention_makes_room_on_a_full_disk(new_store: NewStore, files: MemoryFiles) -> None:
    """Otherwise a full disk would stay full forever."""
    store = new_store(segment_bytes=4 * BATCH_BYTES, retention_bytes=0, file_delete_delay_ms=0)
    store.write(*numbered(12))
    store.directory.checkpoint()
    files.capacity_bytes = 0
    with pytest.raises(DiskFullError):
        store.append(batch())
    used = files.used_bytes()
    assert apply_retention(store.log, NOW_MS).removed != []
    store.directory.remove_files(NOW_MS)
    assert files.used_bytes() < used
    assert store.killed().values() == store.values()


def test_a_directory_that_was_opened_on_a_full_disk_can_be_made_room_in(
    new_store: NewStore, open_store: NewStore
) -> None:
    store = new_store(segment_bytes=4 * BATCH_BYTES, retention_bytes=0, file_delete_delay_ms=0)
    store.create(OTHER)
    store.write(*numbered(12))
    store.close()
    assert isinstance(store.files, MemoryFiles)
    files = MemoryFiles(store.files, capacity_bytes=0)
    again = open_store(files, **store.settings)
    assert apply_retention(again.log, NOW_MS).removed != []
    again.directory.delete(OTHER, NOW_MS)
    again.directory.remove_files(NOW_MS)
    assert files.used_bytes() < store.files.used_bytes()
    assert OTHER.directory not in files.list("")
    files.capacity_bytes = None
    again.write(*numbered(1, first=12))
    assert again.killed().values() == again.values()


def test_an_incomplete_creation_is_discarded_and_can_be_repeated(new_store: NewStore, files: MemoryFiles) -> None:
    store = new_store()
    files.make_dir(OTHER.directory)
    files.create(f"{OTHER.directory}/00000000000000000000.log").close()
    again = store.killed()
    with pytest.raises(PartitionNotFoundError):
        again.directory.get(OTHER)
    again.create(OTHER)
    assert again.directory.get(OTHER).log_end_offset == 0


def test_files_of_others_in_the_directory_are_left_alone(open_store: NewStore, files: MemoryFiles) -> None:
    files.make_dir("lost+found")
    files.make_dir("notes")
    files.create("notes/todo.txt").close()
    files.create("README").close()
    store = open_store()
    assert len(store.directory) == 0
    store.close()
    assert {"lost+found", "notes", "README"} <= set(files.list(""))


def offline(new_store: NewStore) -> Store:
    files = FaultyFiles(MemoryFiles(), only={"fsync"}, sticky=True)
    store = new_store(files)
    store.write(*numbered(2))
    files.fail_at = files.calls + 1
    store.append(batch())
    store.directory.commit()
    files.fail_at = None
    return store


def test_an_offline_directory_changes_nothing_any_more(new_store: NewStore) -> None:
    store = offline(new_store)
    failure = store.directory.environment.health.failure
    calls: list[Callable[[], object]] = [
        lambda: store.create(OTHER),
        lambda: store.directory.delete(PARTITION, NOW_MS),
        store.directory.checkpoint,
        lambda: store.append(batch()),
        lambda: store.log.delete_before(Offset(1)),
    ]
    for call in calls:
        with pytest.raises(StorageOfflineError) as raised:
            call()
        assert raised.value is failure
    assert store.values() == expected(2)


def test_an_offline_directory_can_be_closed_and_opened_again(new_store: NewStore) -> None:
    store = offline(new_store)
    assert store.reopened().values()[:2] == expected(2)


def test_closing_commits_pending_writes(new_store: NewStore) -> None:
    store = new_store()
    append = store.append(batch(b"late"))
    again = store.reopened()
    assert append.done
    assert again.values() == [b"late"]


def test_a_closed_directory_holds_no_file_open(new_store: NewStore, files: MemoryFiles) -> None:
    store = new_store(segment_bytes=BATCH_BYTES)
    store.write(*numbered(5))
    store.read(0)
    store.close()
    assert all(inode.handle_count == 0 and not inode.locked for inode in files.root_directory.inodes())


def test_a_directory_is_unlocked_even_if_its_checkpoint_fails(new_store: NewStore, files: MemoryFiles) -> None:
    store = new_store()
    store.write(*numbered(5))
    files.capacity_bytes = 0
    with pytest.raises(DiskFullError):
        store.close()
    assert all(inode.handle_count == 0 and not inode.locked for inode in files.root_directory.inodes())
    files.capacity_bytes = None
    assert store.killed().values() == expected(5)


def test_a_directory_with_records_opens_on_a_full_disk_and_serves_reads(
    new_store: NewStore, open_store: NewStore
) -> None:
    store = new_store()
    store.write(*numbered(5))
    store.close()
    assert isinstance(store.files, MemoryFiles)
    files = MemoryFiles(store.files, capacity_bytes=0)
    again = open_store(files)
    assert again.values() == expected(5)
    with pytest.raises(DiskFullError):
        again.append(batch())
    files.capacity_bytes = None
    again.write(*numbered(1, first=5))
    assert again.values() == expected(6)


def test_a_checkpoint_is_due_when_the_write_ahead_log_is_large(new_store: NewStore) -> None:
    store = new_store(wal_file_bytes=4096, wal_bytes_max=8192)
    assert not store.directory.is_checkpoint_due()
    store.write(*numbered(20))
    assert store.directory.is_checkpoint_due()
    store.directory.checkpoint()
    assert not store.directory.is_checkpoint_due()


@pytest.mark.parametrize("durability", ["fsync", "interval"])
def test_the_same_calls_make_the_same_bytes(open_store: NewStore, durability: str) -> None:
    def run() -> dict[str, bytes | None]:
        files = MemoryFiles()
        store = open_store(files, durability=durability, segment_bytes=300)
        for number in range(3):
            store.create(PARTITION._replace(partition=number))
        for data in numbered(10):
            for log in store.directory:
                log.append(data, now_ms=NOW_MS)
            store.directory.commit()
        store.directory.checkpoint()
        store.directory.delete(PARTITION._replace(partition=1), NOW_MS)
        store.close()
        return files.snapshot()

    assert run() == run()


def live_with_a_fault(n: int | None, error: int) -> int:
    """Run all operations while the n-th call fails: only typed errors, and no acknowledged record is lost.

    Returns the number of calls.
    """
    files = FaultyFiles(MemoryFiles(), error=error, partial_writes=True)
    store = Store(files, {"segment_bytes": 3 * BATCH_BYTES, "retention_bytes": 0, "file_delete_delay_ms": 0}, [])
    log = store.create()
    begin = files.calls
    files.fail_at = n and begin + n
    acknowledged: list[bytes] = []

    def write(number: int) -> None:
        store.write(batch(b"%05d" % number))
        acknowledged.append(b"%05d" % number)

    steps: list[Callable[[], object]] = [
        *[partial(write, number) for number in range(4)],
        store.directory.checkpoint,
        lambda: store.create(OTHER),
        lambda: store.directory.get(OTHER).append(batch(), now_ms=NOW_MS),
        *[partial(write, number) for number in range(4, 8)],
        lambda: apply_retention(log, NOW_MS),
        lambda: store.directory.delete(OTHER, NOW_MS),
        lambda: store.directory.remove_files(NOW_MS),
        *[partial(write, number) for number in range(8, 12)],
        lambda: log.delete_before(Offset(min(5, log.high_watermark))),
        store.directory.checkpoint,
        lambda: apply_retention(log, NOW_MS),
        lambda: write(12),
        store.directory.close,
    ]
    for step in steps:
        with suppress(StorageError):
            step()
    calls = files.calls - begin
    assert isinstance(files.inner, MemoryFiles)
    again = Store(MemoryFiles(files.inner), store.settings, [])
    assert again.directory.report.quarantined == [], n
    kept = again.values()
    # A write whose sync failed may be present or not. Acknowledged records are present, or below the log start offset.
    assert set(acknowledged[again.log.log_start_offset :]) <= set(kept), n
    assert len(kept) == len(set(kept)), n
    again.log.validate()
    return calls


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_directory_that_fails_at_any_call_loses_no_acknowledged_record(error: int) -> None:
    for n in range(1, live_with_a_fault(None, error) + 1):
        live_with_a_fault(n, error)


def test_a_log_directory_works_on_a_real_disk(open_store: NewStore, tmp_path: Path) -> None:
    store = open_store(OsFiles(tmp_path), segment_bytes=4 * BATCH_BYTES, index_interval_bytes=0, open_segments_max=2)
    logs: list[Log] = [store.create(PARTITION._replace(partition=number)) for number in range(3)]
    for data in numbered(30):
        for log in logs:
            log.append(data, now_ms=NOW_MS)
    store.directory.commit()
    store.directory.checkpoint()
    held = logs[0].read(Offset(0), 1 << 20).slices
    store = store.reopened()
    for log in store.directory:
        for offset in range(30):
            assert offsets_of(log.read(Offset(offset), 1 << 20).slices) == list(range(offset, 30))
        log.delete_before(Offset(20))
        log.remove_segments(5, due_ms=0)
    while store.directory.remove_files(NOW_MS):
        continue
    assert offsets_of(held) == list(range(30))
    store = store.reopened()
    assert [log.log_start_offset for log in store.directory] == [20, 20, 20]
    store.directory.delete(PARTITION, NOW_MS - 10**9)
    while store.directory.remove_files(NOW_MS):
        continue
    store.close()
    assert not os.path.exists(tmp_path / PARTITION.directory)
