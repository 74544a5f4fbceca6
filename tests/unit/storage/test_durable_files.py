"""Small files that are replaced atomically, and the classification of failed calls."""

import errno

import pytest

from logbrook.ports import Files
from logbrook.storage.durable_files import (
    create_or_replace,
    is_disk_full,
    is_out_of_descriptors,
    read_sealed,
    replace_file,
    sync_directory,
    sync_file,
    write_sealed,
)
from logbrook.storage.errors import CorruptFileError, StorageOfflineError
from logbrook.testing import FaultyFiles, MemoryFiles, RecordingFiles
from logbrook.testing.crash_states import crash_states
from logbrook.testing.forwarding import SYNC_CALLS
from tests.unit.storage.kit import content, put

CONTENT = {"b": [1, 2, None], "a": {"text": "naïve"}, "c": 2**63}


def test_a_sealed_file_is_read_back() -> None:
    files = MemoryFiles()
    write_sealed(files, "state", CONTENT)
    assert read_sealed(files, "state") == CONTENT


def test_a_missing_file_has_no_content() -> None:
    assert read_sealed(MemoryFiles(), "state") is None


def test_equal_content_is_equal_bytes() -> None:
    files = MemoryFiles()
    write_sealed(files, "one", {"x": 1, "y": 2})
    write_sealed(files, "two", {"y": 2, "x": 1})
    assert content(files, "one") == content(files, "two")


def test_every_changed_byte_is_detected() -> None:
    files = MemoryFiles()
    write_sealed(files, "state", CONTENT)
    good = content(files, "state")
    for position in range(len(good)):
        put(files, "state", good[:position] + bytes([good[position] ^ 0x01]) + good[position + 1 :])
        with pytest.raises(CorruptFileError, match="state is corrupt") as raised:
            read_sealed(files, "state")
        assert raised.value.file == "state"


def test_every_cut_is_detected() -> None:
    files = MemoryFiles()
    write_sealed(files, "state", CONTENT)
    good = content(files, "state")
    for length in range(len(good)):
        put(files, "state", good[:length])
        with pytest.raises(CorruptFileError):
            read_sealed(files, "state")


def test_a_power_loss_leaves_the_old_or_the_new_never_a_mixture() -> None:
    before = MemoryFiles()
    before.make_dir("d")
    write_sealed(before, "d/state", "old")
    files = RecordingFiles(before)
    write_sealed(files, "d/state", "new")
    files.mark("promised")
    tried = 0
    for state in crash_states(files.journal, seeds=range(4)):
        expected = {"new"} if state.marks else {"old", "new"}
        assert read_sealed(state.files, "d/state") in expected, str(state)
        tried += 1
    assert tried > 5


def test_a_temporary_file_left_by_a_crash_is_replaced() -> None:
    files = MemoryFiles()
    put(files, "state.tmp", b"half of something")
    write_sealed(files, "state", "new")
    assert read_sealed(files, "state") == "new"
    assert files.list("") == ["state"]


def test_a_failed_write_leaves_the_old_file() -> None:
    inner = MemoryFiles()
    write_sealed(inner, "state", "old")
    files = FaultyFiles(inner, fail_at=1, error=errno.ENOSPC, only={"pwrite"}, partial_writes=True)
    with pytest.raises(OSError, match="No space left"):
        write_sealed(files, "state", "new")
    assert read_sealed(files, "state") == "old"


@pytest.mark.parametrize("n", [1, 2])
def test_a_failed_sync_is_the_end_of_writing(n: int) -> None:
    files = FaultyFiles(MemoryFiles(), fail_at=n, only=SYNC_CALLS)
    with pytest.raises(StorageOfflineError) as raised:
        write_sealed(files, "state", "new")
    assert raised.value.errno == errno.EIO


def test_replacing_gives_a_file_exactly_these_bytes() -> None:
    files = MemoryFiles()
    replace_file(files, "a", b"long content")
    replace_file(files, "a", bytearray(b"short"))
    assert content(files, "a") == b"short"


def test_creating_replaces_an_existing_file_by_an_empty_one() -> None:
    files: Files = MemoryFiles()
    put(files, "a", b"old")
    file = create_or_replace(files, "a")
    assert file.size() == 0
    file.close()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_no_space_and_no_quota_are_a_full_disk(number: int) -> None:
    assert is_disk_full(OSError(number, "x"))


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.EFBIG, errno.ENOENT])
def test_other_errors_are_not(number: int) -> None:
    assert not is_disk_full(OSError(number, "x"))
    assert not is_out_of_descriptors(OSError(number, "x"))


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_out_of_descriptors_is_distinguished_from_a_full_disk(number: int) -> None:
    assert is_out_of_descriptors(OSError(number, "x"))
    assert not is_disk_full(OSError(number, "x"))


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_a_failed_sync_is_final_whatever_the_reason(number: int) -> None:
    files = FaultyFiles(MemoryFiles(), fail_at=1, error=number, only={"fsync"})
    file = files.create("a")
    with pytest.raises(StorageOfflineError, match="sync of a failed") as raised:
        sync_file(file)
    assert (raised.value.operation, raised.value.file, raised.value.errno) == ("sync", "a", number)


@pytest.mark.parametrize(("path", "named"), [("d", "d"), ("", "the data directory")])
def test_a_failed_sync_of_a_directory_is_final_too(path: str, named: str) -> None:
    files = FaultyFiles(MemoryFiles(), fail_at=1, only={"fsync_dir"})
    files.make_dir("d")
    with pytest.raises(StorageOfflineError) as raised:
        sync_directory(files, path)
    assert raised.value.file == named


def test_a_successful_sync_logs_nothing() -> None:
    files = MemoryFiles()
    file = files.create("a")
    sync_file(file)
    sync_directory(files, "")
    file.close()
