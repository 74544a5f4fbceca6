"""The files that are open for writing, and the bounded cache of open files: limits, eviction and callbacks."""

import errno
import os
from pathlib import Path

import pytest

from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.ports import Files, OsFiles
from logbrook.ports.buffer_pool import BUFFER_BYTES, POOLED_BYTES_MIN
from logbrook.storage.errors import StorageOfflineError
from logbrook.storage.open_files import LruCache, OpenFiles
from logbrook.testing import FaultyFiles, MemoryFiles
from tests.unit.storage.kit import NewStore, content, numbered, put


def disk_with(*names: str) -> MemoryFiles:
    files = MemoryFiles()
    for name in names:
        put(files, name, name.encode())
    return files


def test_a_file_is_opened_once_and_kept() -> None:
    counted = FaultyFiles(disk_with("a"), only={"open"})
    handles = OpenFiles(counted, 2)
    assert handles.get("a") is handles.get("a")
    assert counted.calls == 1


def test_a_missing_file_is_not_made() -> None:
    handles = OpenFiles(MemoryFiles(), 2)
    with pytest.raises(FileNotFoundError):
        handles.get("a")
    assert len(handles) == 0


@pytest.mark.parametrize("length", [10, POOLED_BYTES_MIN, BUFFER_BYTES, BUFFER_BYTES + 1])
def test_read_bytes_stay_valid_while_they_are_referenced(length: int) -> None:
    files = MemoryFiles()
    put(files, "a", b"a" * length + b"b" * length)
    handles = OpenFiles(files, 2)
    held = handles.read("a", length, 0)
    assert handles.read("a", length, length) == b"b" * length
    assert held == b"a" * length
    assert handles.read("a", 2 * length, length) == b"b" * length


def test_memory_that_was_read_into_is_read_into_again() -> None:
    files = MemoryFiles()
    put(files, "a", b"a" * BUFFER_BYTES)
    handles = OpenFiles(files, 2)
    first = id(handles.read("a", BUFFER_BYTES, 0).obj)
    again = id(handles.read("a", POOLED_BYTES_MIN, 0).obj)
    assert first == again


def test_the_one_used_longest_ago_is_closed_to_make_room() -> None:
    handles = OpenFiles(disk_with("a", "b", "c"), 2)
    a, b = handles.get("a"), handles.get("b")
    handles.get("a")
    handles.get("c")
    assert len(handles) == 2
    assert a.size() == 1
    with pytest.raises(OSError, match="Bad file descriptor"):
        b.size()
    assert handles.get("b").size() == 1


def test_a_handle_is_synced_before_it_is_evicted() -> None:
    counted = FaultyFiles(disk_with("a", "b"), only={"fsync"})
    handles = OpenFiles(counted, 1)
    handles.get("a")
    handles.get("b")
    assert [call.path for call in counted.log] == ["a"]
    handles.forget("b")
    assert [call.path for call in counted.log] == ["a", "b"]


def test_a_sync_that_fails_on_the_way_out_is_reported() -> None:
    handles = OpenFiles(FaultyFiles(disk_with("a", "b"), fail_at=1, only={"fsync"}), 1)
    handles.get("a")
    with pytest.raises(StorageOfflineError, match="sync of a"):
        handles.get("b")


def test_creating_replaces_an_existing_file_and_its_handle() -> None:
    files = disk_with("a")
    handles = OpenFiles(files, 2)
    handles.get("a")
    handles.create("a").pwrite(b"new", 0)
    assert content(files, "a") == b"new"
    assert handles.get("a").size() == 3
    assert len(handles) == 1


def test_closing_releases_everything_without_a_sync() -> None:
    counted = FaultyFiles(disk_with("a", "b"), only={"fsync"})
    handles = OpenFiles(counted, 2)
    a, _ = handles.get("a"), handles.get("b")
    handles.close()
    assert len(handles) == 0
    assert counted.calls == 0
    with pytest.raises(OSError, match="Bad file descriptor"):
        a.size()


def test_without_free_descriptors_another_file_is_closed() -> None:
    files = FaultyFiles(disk_with("a", "b"), error=errno.EMFILE, only={"open"})
    handles = OpenFiles(files, 10)
    a = handles.get("a")
    files.fail_at = files.calls + 1
    handles.get("b")
    assert len(handles) == 1
    with pytest.raises(OSError, match="Bad file descriptor"):
        a.size()


def test_without_a_descriptor_and_nothing_to_give_the_error_is_passed_on() -> None:
    files = FaultyFiles(disk_with("a", "b"), error=errno.EMFILE, only={"open"}, sticky=True)
    handles = OpenFiles(files, 10)
    handles.get("a")
    files.fail_at = files.calls + 1
    with pytest.raises(OSError, match="Too many open files"):
        handles.get("b")
    assert len(handles) == 0


def open_descriptors(root: Path) -> int:
    """Return the number of this process's descriptors of files below `root`."""
    links = (os.path.join("/proc/self/fd", fd) for fd in os.listdir("/proc/self/fd"))
    return sum(os.path.lexists(link) and os.readlink(link).startswith(str(root)) for link in links)


def test_the_number_of_open_files_is_bounded(tmp_path: Path, open_store: NewStore) -> None:
    files: Files = OsFiles(tmp_path)
    store = open_store(files, open_files_max=3, open_segments_max=2, segment_bytes=200)
    for number in range(12):
        log = store.create(TopicPartition("orders", number))
        for data in numbered(6):
            log.append(data, now_ms=0)
    store.directory.commit()
    for log in store.directory:
        assert len(log.closed) >= 2
        assert log.read(Offset(0), 1 << 20).length == log.size
    # Three segments for writing, two mapped with their indexes, the lock, and the files of the write-ahead log.
    wal_files = len(files.list("wal"))
    assert open_descriptors(tmp_path) <= 3 + 2 * 2 + 1 + wal_files
    store.close()
    assert open_descriptors(tmp_path) == 0


class Evictions(list[tuple[str, int]]):
    def __call__(self, key: str, value: int) -> None:
        self.append((key, value))


def filled(capacity: int) -> tuple[LruCache[str, int], Evictions]:
    evictions = Evictions()
    cache: LruCache[str, int] = LruCache(capacity, evictions)
    for value, key in enumerate("abc"[:capacity]):
        cache.put(key, value)
    return cache, evictions


def test_entries_within_the_capacity_are_not_evicted() -> None:
    cache, evictions = filled(3)
    assert [cache.get(key) for key in "abc"] == [0, 1, 2]
    assert len(cache) == 3
    assert evictions == []


def test_an_absent_key_has_no_value() -> None:
    cache, _ = filled(3)
    assert cache.get("z") is None


def test_the_oldest_makes_room() -> None:
    cache, evictions = filled(3)
    cache.put("d", 3)
    assert evictions == [("a", 0)]
    assert cache.get("a") is None


def test_a_look_makes_an_entry_young() -> None:
    cache, evictions = filled(3)
    cache.get("a")
    cache.put("d", 3)
    assert evictions == [("b", 1)]


def test_a_value_that_is_replaced_is_evicted() -> None:
    cache, evictions = filled(3)
    cache.put("b", 9)
    assert evictions == [("b", 1)]
    assert cache.get("b") == 9
    assert len(cache) == 3


def test_a_value_that_is_removed_is_evicted_once() -> None:
    cache, evictions = filled(3)
    cache.remove("b")
    cache.remove("b")
    assert evictions == [("b", 1)]


def test_a_popped_value_is_not_reported_as_evicted() -> None:
    cache, evictions = filled(2)
    assert [cache.pop(), cache.pop(), cache.pop()] == [("a", 0), ("b", 1), None]
    assert evictions == []


def test_the_oldest_can_be_evicted_on_demand() -> None:
    cache, evictions = filled(2)
    assert [cache.evict_oldest() for _ in range(3)] == [True, True, False]
    assert evictions == [("a", 0), ("b", 1)]


def test_clearing_evicts_everything_oldest_first() -> None:
    cache, evictions = filled(3)
    cache.clear()
    assert evictions == [("a", 0), ("b", 1), ("c", 2)]
    assert len(cache) == 0
