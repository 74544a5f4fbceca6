"""Several data directories: placement, failure of one, and logs that two of them have."""

import errno

import pytest

from logbrook.config import LogConfig, StorageConfig
from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.ports import Files
from logbrook.storage.data_directories import DataDirectories, TwoLogsError, open_directories
from logbrook.storage.errors import PartitionNotFoundError, StorageOfflineError
from logbrook.storage.paths import FAILED_DIRECTORIES
from logbrook.testing import MemoryFiles
from logbrook.testing.clock import FakeClock
from tests.unit.storage.kit import batch

ORDERS = [TopicPartition("orders", number) for number in range(4)]


def opened(*files: Files) -> DataDirectories:
    directories = open_directories(files, StorageConfig(), FakeClock(1_000))
    assert isinstance(directories, DataDirectories)
    return directories


def fail(directories: DataDirectories, number: int) -> None:
    error = OSError(errno.EIO, "the disk is gone")
    directories.members[number].environment.health.fail(StorageOfflineError("write", "a file", error))


def test_one_directory_is_used_as_it_is() -> None:
    directory = open_directories([MemoryFiles()], StorageConfig(), FakeClock(1_000))
    assert directory.members == (directory,)
    directory.close()


def test_new_logs_are_created_where_the_fewest_are() -> None:
    directories = opened(MemoryFiles(), MemoryFiles())
    for partition in ORDERS:
        directories.create(partition, LogConfig())
    assert [len(member) for member in directories.members] == [2, 2]
    assert sorted(log.partition for log in directories) == ORDERS
    more = [TopicPartition("more", number) for number in range(3)]
    placed = directories.placed(more)
    assert sorted(partition for _, chosen in placed for partition in chosen) == more
    with pytest.raises(PartitionNotFoundError):
        directories.get(more[0])
    directories.close()


def test_logs_and_high_watermarks_are_found_again() -> None:
    files = MemoryFiles(), MemoryFiles()
    directories = opened(*files)
    for partition in ORDERS:
        directories.create(partition, LogConfig()).replicate_from(Offset(0))
    for member in directories.members:
        member.commit()
    directories.save_high_watermarks()
    directories.close()
    again = opened(*files)
    assert sorted(again.saved_high_watermarks()) == ORDERS
    again.close()


def test_the_failure_of_one_directory_leaves_the_others_writable() -> None:
    directories = opened(MemoryFiles(), MemoryFiles())
    first, second = (directories.create(partition, LogConfig()) for partition in ORDERS[:2])
    fail(directories, 0)
    with pytest.raises(StorageOfflineError):
        first.append(batch(), now_ms=0)
    second.append(batch(), now_ms=0)
    directories.create(ORDERS[2], LogConfig())
    assert ORDERS[2] in directories.members[1]
    directories.abandon()


def test_a_log_that_was_created_again_takes_precedence_when_the_failed_directory_is_back() -> None:
    files = MemoryFiles(), MemoryFiles()
    directories = opened(*files)
    directories.create(ORDERS[0], LogConfig())
    fail(directories, 0)
    directories.forget(ORDERS[0])
    assert ORDERS[0] not in directories
    directories.create(ORDERS[0], LogConfig(), start_offset=Offset(7))
    directories.abandon()

    again = opened(*files)
    assert again.get(ORDERS[0]).log_start_offset == 7
    assert ORDERS[0] not in again.members[0]
    assert ORDERS[0] in again.members[1]
    again.close()
    # The record is used once: it does not apply to a later failure.
    assert opened(*files).get(ORDERS[0]).log_start_offset == 7


def test_two_logs_of_unknown_age_are_refused() -> None:
    files = MemoryFiles(), MemoryFiles()
    directories = opened(*files)
    for member in directories.members:
        member.create(ORDERS[0], LogConfig())
    directories.close()
    with pytest.raises(TwoLogsError, match="two data directories have a log of orders-0"):
        opened(*files)
    assert not any(FAILED_DIRECTORIES in member.list("") for member in files)


def test_the_other_directories_are_closed_if_one_cannot_be_opened() -> None:
    files = MemoryFiles(), MemoryFiles()
    opened(*files).close()
    lock = files[1].lock("lock")
    with pytest.raises(Exception, match=r"in use|locked"):
        opened(*files)
    lock.release()
    opened(*files).close()
