"""The disk in memory beyond the port's contract (tests/unit/ports): capacity, SIGBUS and sharing."""

import errno
from collections.abc import Callable

import pytest

from logbrook.testing import MemoryFiles


def put(files: MemoryFiles, path: str, data: bytes) -> None:
    file = files.create(path)
    file.pwrite(data, 0)
    file.close()


def test_cutting_a_mapped_file_is_caught() -> None:
    files = MemoryFiles()
    put(files, "a", b"abcdef")
    file = files.open("a")
    view = file.map_readonly(2)
    with pytest.raises(AssertionError, match="mapped file truncated: a from 6 to 5"):
        file.truncate(5)
    assert file.size() == 6
    assert bytes(view) == b"ab"


def test_the_last_slice_of_a_mapping_keeps_it_alive() -> None:
    files = MemoryFiles()
    put(files, "a", b"abcdef")
    file = files.open("a")
    view = file.map_readonly(6)
    last_slice = view[2:4]
    view.release()
    with pytest.raises(AssertionError, match="mapped file truncated"):
        file.truncate(0)
    last_slice.release()
    file.truncate(0)
    assert file.size() == 0


def test_a_dropped_mapping_is_no_longer_one() -> None:
    files = MemoryFiles()
    put(files, "a", b"abcdef")
    file = files.open("a")
    file.map_readonly(6)
    file.truncate(1)
    assert file.pread(10, 0) == b"a"


def test_a_mapping_made_before_growth_still_forbids_cutting() -> None:
    files = MemoryFiles()
    put(files, "a", b"abcdef")
    file = files.open("a")
    view = file.map_readonly(6)
    file.pwrite(b"g" * 100, 6)
    with pytest.raises(AssertionError, match="mapped file truncated"):
        file.truncate(50)
    view.release()
    file.truncate(50)
    assert file.size() == 50


def test_a_write_that_does_not_fit_writes_the_part_that_fits() -> None:
    files = MemoryFiles(capacity_bytes=10)
    put(files, "a", b"123456")
    file = files.create("b")
    with pytest.raises(OSError, match="No space left") as raised:
        file.pwrite(b"abcdef", 0)
    assert raised.value.errno == errno.ENOSPC
    assert raised.value.filename == "b"
    assert files.snapshot() == {"a": b"123456", "b": b"abcd"}


def test_overwriting_and_reading_need_no_room() -> None:
    files = MemoryFiles(capacity_bytes=3)
    put(files, "a", b"abc")
    file = files.open("a")
    file.pwrite(b"XYZ", 0)
    assert file.pread(3, 0) == b"XYZ"
    with pytest.raises(OSError, match="No space left"):
        file.truncate(4)
    assert file.size() == 3


def test_writes_succeed_after_the_capacity_grows() -> None:
    files = MemoryFiles(capacity_bytes=0)
    file = files.create("a")
    with pytest.raises(OSError, match="No space left"):
        file.pwrite(b"abc", 0)
    files.capacity_bytes = 3
    file.pwrite(b"abc", 0)
    files.capacity_bytes = None
    file.pwrite(bytes(1000), 3)


def test_an_unlinked_file_takes_room_until_it_is_closed() -> None:
    files = MemoryFiles()
    put(files, "a", b"abc")
    file = files.open("a")
    files.unlink("a")
    assert files.used_bytes() == 3
    file.close()
    assert files.used_bytes() == 0


def test_a_replaced_file_takes_room_until_it_is_closed() -> None:
    files = MemoryFiles()
    put(files, "a", b"abc")
    put(files, "b", b"de")
    file = files.open("a")
    files.rename("b", "a")
    assert files.used_bytes() == 5
    file.close()
    assert files.used_bytes() == 2


def test_a_copy_of_a_tree_is_independent() -> None:
    files = MemoryFiles()
    files.make_dir("d")
    put(files, "d/a", b"abc")
    lock = files.lock("lock")
    copy = MemoryFiles(files)
    file = copy.open("d/a")
    file.pwrite(b"X", 0)
    copy.unlink("lock")
    copy.lock("lock").release()
    assert files.snapshot() == {"d": None, "d/a": b"abc", "lock": b""}
    assert copy.snapshot() == {"d": None, "d/a": b"Xbc", "lock": b""}
    lock.release()


def test_unwritten_bytes_are_shared_between_copies() -> None:
    files = MemoryFiles()
    put(files, "a", b"abc" * 100)
    first = MemoryFiles(files)
    second = MemoryFiles(first)
    assert second.snapshot()["a"] is first.snapshot()["a"]


def test_a_file_may_be_renamed_into_another_directory() -> None:
    files = MemoryFiles()
    files.make_dir("d")
    put(files, "a", b"abc")
    files.rename("a", "d/b")
    assert files.snapshot() == {"d": None, "d/b": b"abc"}


def test_a_directory_does_not_fit_into_itself() -> None:
    files = MemoryFiles()
    files.make_dir("d")
    with pytest.raises(OSError, match="Invalid argument"):
        files.rename("d", "d/d")


@pytest.mark.parametrize("path", ["", "..", "d/..", "d/.", "d/"])
def test_paths_that_leave_the_root_are_a_bug(path: str) -> None:
    files = MemoryFiles()
    files.make_dir("d")
    calls: list[Callable[[str], object]] = [files.create, files.make_dir, files.unlink, files.remove_dir, files.lock]
    for call in calls:
        with pytest.raises(AssertionError, match="not a path below the root"):
            call(path)


def test_a_directory_has_no_size() -> None:
    files = MemoryFiles()
    files.make_dir("d")
    with pytest.raises(IsADirectoryError):
        files.size("d")
