"""Telling what a failed call means."""

import errno

import pytest

from logbrook.storage.disk_errors import is_disk_full, is_out_of_descriptors, sync_directory, sync_file
from logbrook.storage.errors import StorageOfflineError
from logbrook.testing import FaultyFiles, MemoryFiles


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_no_space_and_no_quota_are_a_full_disk(number: int) -> None:
    assert is_disk_full(OSError(number, "x"))


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.EFBIG, errno.ENOENT])
def test_other_errors_are_not(number: int) -> None:
    assert not is_disk_full(OSError(number, "x"))
    assert not is_out_of_descriptors(OSError(number, "x"))


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_no_descriptors_is_an_error_of_its_own(number: int) -> None:
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


def test_a_sync_that_succeeds_says_nothing() -> None:
    files = MemoryFiles()
    file = files.create("a")
    sync_file(file)
    sync_directory(files, "")
    file.close()
