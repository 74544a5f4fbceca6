"""The files that are open for writing, and how many may be."""

import errno
import os
from pathlib import Path

import pytest

from logbrook.model import TopicPartition
from logbrook.ports import Files, OsFiles
from logbrook.ports.lent_memory import LENT_BYTES_MIN, PIECE_BYTES
from logbrook.storage.errors import StorageOfflineError
from logbrook.storage.open_files import OpenFiles
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


@pytest.mark.parametrize("length", [10, LENT_BYTES_MIN, PIECE_BYTES, PIECE_BYTES + 1])
def test_what_is_read_is_what_is_there_and_stays_so_while_it_is_held(length: int) -> None:
    files = MemoryFiles()
    put(files, "a", b"a" * length + b"b" * length)
    handles = OpenFiles(files, 2)
    held = handles.read("a", length, 0)
    assert handles.read("a", length, length) == b"b" * length
    assert held == b"a" * length
    assert handles.read("a", 2 * length, length) == b"b" * length


def test_memory_that_was_read_into_is_read_into_again() -> None:
    files = MemoryFiles()
    put(files, "a", b"a" * PIECE_BYTES)
    handles = OpenFiles(files, 2)
    first = id(handles.read("a", PIECE_BYTES, 0).obj)
    again = id(handles.read("a", LENT_BYTES_MIN, 0).obj)
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


def test_a_handle_is_synced_before_it_goes() -> None:
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


def test_creating_replaces_what_was_there_and_its_handle() -> None:
    files = disk_with("a")
    handles = OpenFiles(files, 2)
    handles.get("a")
    handles.create("a").pwrite(b"new", 0)
    assert content(files, "a") == b"new"
    assert handles.get("a").size() == 3
    assert len(handles) == 1


def test_closing_lets_go_of_everything_without_a_sync() -> None:
    counted = FaultyFiles(disk_with("a", "b"), only={"fsync"})
    handles = OpenFiles(counted, 2)
    a, _ = handles.get("a"), handles.get("b")
    handles.close()
    assert len(handles) == 0
    assert counted.calls == 0
    with pytest.raises(OSError, match="Bad file descriptor"):
        a.size()


def test_without_a_descriptor_left_another_file_gives_its_own() -> None:
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
    """How many of this process's descriptors lie below `root`."""
    links = (os.path.join("/proc/self/fd", fd) for fd in os.listdir("/proc/self/fd"))
    return sum(os.path.lexists(link) and os.readlink(link).startswith(str(root)) for link in links)


def test_however_many_segments_there_are_only_so_many_files_are_open(tmp_path: Path, open_store: NewStore) -> None:
    files: Files = OsFiles(tmp_path)
    store = open_store(files, open_files_max=3, mapped_segments_max=2, segment_bytes=200)
    for number in range(12):
        log = store.create(TopicPartition("orders", number))
        for data in numbered(6):
            log.append(data, now_ms=0)
    store.directory.commit()
    for log in store.directory:
        assert len(log.closed) >= 2
        assert log.read(0, 1 << 20).length == log.size
    # Three segments for writing, two mapped with their indexes, the lock, and the files of the write-ahead log.
    wal_files = len(files.list("wal"))
    assert open_descriptors(tmp_path) <= 3 + 2 * 2 + 1 + wal_files
    store.close()
    assert open_descriptors(tmp_path) == 0
