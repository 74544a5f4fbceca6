"""One contract for every implementation of `Files`: the real disk, the in-memory one, the recorder and the wrappers."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from logbrook.ports import Advice, Files, OsFiles
from logbrook.testing import FaultyFiles, ForwardingFiles, MemoryFiles, RecordingFiles

DOORS: dict[str, Callable[[Path], Files]] = {
    "OsFiles": OsFiles,
    "MemoryFiles": lambda _: MemoryFiles(),
    "RecordingFiles": lambda _: RecordingFiles(),
    "FaultyFiles": lambda root: FaultyFiles(OsFiles(root)),
    "ForwardingFiles": lambda _: ForwardingFiles(MemoryFiles()),
}


@pytest.fixture(params=DOORS)
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    return DOORS[request.param](tmp_path / "root")


def put(files: Files, path: str, data: bytes = b"") -> None:
    file = files.create(path)
    file.pwrite(data, 0)
    file.close()


def get(files: Files, path: str) -> bytes:
    file = files.open(path)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def test_a_new_file_is_empty(files: Files) -> None:
    file = files.create("a")
    assert file.path == "a"
    assert file.size() == files.size("a") == 0
    assert file.pread(10, 0) == b""
    file.close()


def test_a_name_is_created_once(files: Files) -> None:
    put(files, "a")
    files.make_dir("d")
    for taken in ("a", "d"):
        with pytest.raises(FileExistsError):
            files.create(taken)
        with pytest.raises(FileExistsError):
            files.make_dir(taken)


def test_writes_land_at_their_position(files: Files) -> None:
    file = files.create("a")
    file.pwrite(b"hello", 0)
    file.pwrite(bytearray(b"J"), 0)
    file.pwrite(memoryview(b"-world-")[1:-1], 5)
    assert file.pread(100, 0) == b"Jelloworld"
    assert file.pread(3, 4) == b"owo"
    file.close()


def test_a_view_of_wide_items_is_written_byte_for_byte(files: Files) -> None:
    file = files.create("a")
    file.pwrite(memoryview(b"12345678").cast("I"), 0)
    assert file.pread(100, 0) == b"12345678"
    file.close()


def test_a_gap_reads_as_zeros(files: Files) -> None:
    file = files.create("a")
    file.pwrite(b"x", 4)
    assert file.pread(100, 0) == b"\0\0\0\0x"
    file.close()


def test_an_empty_write_does_not_extend_the_file(files: Files) -> None:
    file = files.create("a")
    file.pwrite(b"", 10)
    file.pwritev([], 10)
    file.pwritev([b"", b""], 10)
    assert file.size() == 0
    file.close()


def test_buffers_are_written_one_after_the_other(files: Files) -> None:
    file = files.create("a")
    # More of them than one system call takes.
    buffers = [bytes([n % 251]) * (n % 3) for n in range(2500)]
    file.pwritev([*buffers, memoryview(b"end"), bytearray(b"!")], 2)
    assert file.pread(10_000, 0) == b"\0\0" + b"".join(buffers) + b"end!"
    file.close()


def test_reading_into_a_buffer_fills_up_to_the_available_bytes(files: Files) -> None:
    put(files, "a", b"abc")
    file = files.open("a")
    memory = bytearray(b"....")
    assert file.pread_into(memoryview(memory)[1:3], 0) == 2
    assert memory == b".ab."
    assert file.pread_into(memoryview(memory), 1) == 2
    assert memory == b"bcb."
    assert file.pread_into(memoryview(memory), 3) == 0
    file.close()


def test_load_returns_the_number_of_available_bytes(files: Files) -> None:
    put(files, "a", b"abc" * 100_000)
    file = files.open("a")
    file.read_ahead(0, 1 << 20)
    assert file.load(0, 1 << 20) == 300_000
    assert file.load(100_000, 70_000) == 70_000
    assert file.load(299_999, 10) == 1
    assert file.load(300_000, 10) == file.load(0, 0) == 0
    file.close()


def test_a_read_beyond_the_end_returns_the_available_bytes(files: Files) -> None:
    put(files, "a", b"abc")
    file = files.open("a")
    assert file.pread(10, 1) == b"bc"
    assert file.pread(10, 3) == b""
    assert file.pread(10, 99) == b""
    file.close()


@pytest.mark.parametrize("call", ["pwrite", "pread", "pread_into", "truncate", "reserve"])
def test_negative_positions_are_refused(files: Files, call: str) -> None:
    file = files.create("a")
    calls: dict[str, Callable[[], object]] = {
        "pwrite": lambda: file.pwrite(b"x", -1),
        "pread": lambda: file.pread(1, -1),
        "pread_into": lambda: file.pread_into(memoryview(bytearray(1)), -1),
        "truncate": lambda: file.truncate(-1),
        "reserve": lambda: file.reserve(-1),
    }
    with pytest.raises(OSError, match="Invalid argument") as raised:
        calls[call]()
    assert raised.value.errno == errno.EINVAL
    file.close()


def test_truncate_cuts_and_extends_with_zeros(files: Files) -> None:
    file = files.create("a")
    file.pwrite(b"abcdef", 0)
    file.truncate(2)
    assert file.size() == 2
    file.truncate(4)
    assert file.pread(10, 0) == b"ab\0\0"
    file.close()


def test_reserved_room_reads_as_zeros_and_takes_nothing_away(files: Files) -> None:
    file = files.create("a")
    file.pwrite(b"abcdef", 0)
    file.reserve(8)
    assert file.pread(10, 0) == b"abcdef\0\0"
    file.reserve(2)
    assert file.size() == 8
    file.close()


def test_handles_of_one_file_share_its_bytes(files: Files) -> None:
    writer = files.create("a")
    two = files.open("a")
    writer.pwrite(b"abc", 0)
    assert two.pread(10, 0) == b"abc"
    writer.close()
    two.close()


def test_sync_and_advice_change_nothing(files: Files) -> None:
    files.make_dir("d")
    file = files.create("d/a")
    file.pwrite(b"abc", 0)
    file.fsync()
    files.fsync_dir("d")
    files.fsync_dir("")
    for advice in Advice:
        file.advise(advice)
    assert file.pread(10, 0) == b"abc"
    file.close()


def test_a_closed_file_refuses_and_closes_again(files: Files) -> None:
    put(files, "a", b"abc")
    file = files.open("a")
    file.close()
    file.close()
    calls: list[Callable[[], object]] = [
        lambda: file.pwrite(b"x", 0),
        lambda: file.pread(1, 0),
        lambda: file.truncate(0),
        lambda: file.map_readonly(0),
        lambda: file.map_readonly(1),
        file.size,
        file.fsync,
    ]
    for call in calls:
        # Python refuses some calls on a closed descriptor itself, before the kernel can.
        with pytest.raises((OSError, ValueError), match=r"[Bb]ad file descriptor|negative integer"):
            call()


def test_a_mapping_shows_the_first_bytes_read_only(files: Files) -> None:
    put(files, "a", b"abcdef")
    file = files.open("a")
    view = file.map_readonly(4)
    assert view.readonly
    assert bytes(view) == b"abcd"
    assert view.nbytes == 4
    file.close()


def test_a_mapping_may_not_pass_the_end(files: Files) -> None:
    put(files, "a", b"abc")
    file = files.open("a")
    with pytest.raises(ValueError, match="map"):
        file.map_readonly(4)
    file.close()


def test_a_mapping_of_nothing_is_empty(files: Files) -> None:
    put(files, "empty")
    put(files, "full", b"abc")
    for path in ("empty", "full"):
        file = files.open(path)
        assert bytes(file.map_readonly(0)) == b""
        file.close()


def test_a_mapping_shows_later_writes_and_survives_growth(files: Files) -> None:
    file = files.create("a")
    file.pwrite(b"abcdef", 0)
    view = file.map_readonly(6)
    slice_of_it = view[2:]
    file.pwrite(b"X" * 10_000, 6)
    file.pwrite(b"CD", 2)
    file.truncate(20_000)
    file.pwrite(b"FG", 5)
    assert bytes(view) == b"abCDeF"
    assert bytes(slice_of_it) == b"CDeF"
    assert file.pread(8, 0) == b"abCDeFGX"
    file.close()


def test_a_mapping_outlives_the_handle_and_the_name(files: Files) -> None:
    put(files, "a", b"abc")
    file = files.open("a")
    view = file.map_readonly(3)[1:]
    file.close()
    files.unlink("a")
    put(files, "a", b"new")
    assert bytes(view) == b"bc"


def test_an_unlinked_file_stays_with_its_handle(files: Files) -> None:
    put(files, "a", b"abc")
    file = files.open("a")
    files.unlink("a")
    file.pwrite(b"def", 3)
    assert file.pread(10, 0) == b"abcdef"
    assert files.list("") == []
    file.close()


def test_a_renamed_file_stays_with_its_handle(files: Files) -> None:
    put(files, "a", b"abc")
    file = files.open("a")
    files.rename("a", "b")
    file.pwrite(b"X", 0)
    assert get(files, "b") == b"Xbc"
    assert file.path == "a"
    file.close()


def test_rename_replaces_a_file_and_its_readers_keep_the_old_one(files: Files) -> None:
    put(files, "old", b"old")
    put(files, "new", b"new")
    reader = files.open("old")
    view = reader.map_readonly(3)
    files.rename("new", "old")
    assert files.list("") == ["old"]
    assert get(files, "old") == b"new"
    assert bytes(view) == reader.pread(3, 0) == b"old"
    reader.close()


def test_a_renamed_directory_takes_its_files_along(files: Files) -> None:
    files.make_dir("d")
    files.make_dir("d/e")
    put(files, "d/e/a", b"abc")
    file = files.open("d/e/a")
    files.rename("d", "deleted")
    assert files.list("") == ["deleted"]
    assert get(files, "deleted/e/a") == file.pread(3, 0) == b"abc"
    with pytest.raises(FileNotFoundError):
        files.open("d/e/a")
    file.close()


def test_renaming_to_the_same_name_changes_nothing(files: Files) -> None:
    put(files, "a", b"abc")
    files.rename("a", "a")
    assert get(files, "a") == b"abc"


def test_rename_fails_with_the_errors_of_the_kernel(files: Files) -> None:
    put(files, "file")
    files.make_dir("dir")
    files.make_dir("full")
    put(files, "full/a")
    with pytest.raises(FileNotFoundError):
        files.rename("missing", "file")
    with pytest.raises(IsADirectoryError):
        files.rename("file", "dir")
    with pytest.raises(NotADirectoryError):
        files.rename("dir", "file")
    with pytest.raises(OSError, match="not empty") as raised:
        files.rename("dir", "full")
    assert raised.value.errno == errno.ENOTEMPTY
    files.rename("full", "dir")
    assert files.list("") == ["dir", "file"]
    assert files.list("dir") == ["a"]


def test_names_are_listed_in_order(files: Files) -> None:
    for name in ("b", "a-10", "a-9", "B", "~"):
        put(files, name)
    files.make_dir("a")
    assert files.list("") == ["B", "a", "a-10", "a-9", "b", "~"]


def test_missing_names_are_not_found(files: Files) -> None:
    calls: list[Callable[[str], object]] = [
        files.open,
        files.size,
        files.list,
        files.unlink,
        files.remove_dir,
        files.fsync_dir,
    ]
    for call in calls:
        with pytest.raises(FileNotFoundError):
            call("missing")
        with pytest.raises(FileNotFoundError):
            call("missing/too")
    for make in (files.create, files.make_dir, files.lock):
        with pytest.raises(FileNotFoundError):
            make("missing/too")


def test_files_are_not_directories(files: Files) -> None:
    put(files, "a")
    calls: list[Callable[[], object]] = [
        lambda: files.list("a"),
        lambda: files.fsync_dir("a"),
        lambda: files.remove_dir("a"),
        lambda: files.open("a/b"),
        lambda: files.create("a/b"),
        lambda: files.make_dir("a/b"),
    ]
    for call in calls:
        with pytest.raises(NotADirectoryError):
            call()


def test_directories_are_not_files(files: Files) -> None:
    files.make_dir("d")
    with pytest.raises(IsADirectoryError):
        files.open("d")
    with pytest.raises(IsADirectoryError):
        files.unlink("d")


def test_only_an_empty_directory_is_removed(files: Files) -> None:
    files.make_dir("d")
    put(files, "d/a")
    with pytest.raises(OSError, match="not empty") as raised:
        files.remove_dir("d")
    assert raised.value.errno == errno.ENOTEMPTY
    files.unlink("d/a")
    files.remove_dir("d")
    assert files.list("") == []


def test_errors_carry_the_path(files: Files) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        files.open("missing")
    assert str(raised.value.filename).endswith("missing")


def test_a_lock_is_exclusive_until_released(files: Files) -> None:
    lock = files.lock("lock")
    assert files.list("") == ["lock"]
    with pytest.raises(BlockingIOError):
        files.lock("lock")
    lock.release()
    lock.release()
    again = files.lock("lock")
    lock.release()
    with pytest.raises(BlockingIOError):
        files.lock("lock")
    again.release()


def test_usable_space_is_smaller_than_total_space(files: Files) -> None:
    put(files, "a", b"some")
    space = files.space()
    assert 0 < space.usable_bytes < space.total_bytes
