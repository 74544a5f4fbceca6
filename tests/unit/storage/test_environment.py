"""The environment shared by the logs of a directory: its health and its errors."""

import errno

import pytest

from logbrook.storage.environment import Environment, Health
from logbrook.storage.errors import DiskFullError, StorageOfflineError, TooManyOpenFilesError
from tests.unit.storage.kit import NewStore


def failure(file: str) -> StorageOfflineError:
    return StorageOfflineError("sync", file, OSError(errno.EIO, "Input/output error"))


def test_a_healthy_disk_refuses_nothing() -> None:
    Health().check_writable()


def test_after_a_failure_everything_is_refused_with_the_first() -> None:
    health = Health()
    first = failure("a")
    health.fail(first)
    health.fail(failure("b"))
    for _ in range(2):
        with pytest.raises(StorageOfflineError) as raised:
            health.check_writable()
        assert raised.value is first


@pytest.fixture
def environment(open_store: NewStore) -> Environment:
    return open_store().directory.environment


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_passes(environment: Environment, number: int) -> None:
    error = environment.write_error("append", "a.log", 123, OSError(number, "full"))
    assert isinstance(error, DiskFullError)
    assert (error.file, error.size) == ("a.log", 123)
    assert environment.health.failure is None


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_a_lack_of_descriptors_passes(environment: Environment, number: int) -> None:
    error = environment.write_error("append", "a.log", 123, OSError(number, "none left"))
    assert isinstance(error, TooManyOpenFilesError)
    assert error.file == "a.log"
    assert environment.health.failure is None


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.EACCES])
def test_any_other_failed_write_is_the_end(environment: Environment, number: int) -> None:
    error = environment.write_error("append", "a.log", 123, OSError(number, "broken"))
    assert isinstance(error, StorageOfflineError)
    assert (error.operation, error.file, error.errno) == ("append", "a.log", number)
    assert environment.health.failure is error


def test_a_failed_sync_is_the_end_even_on_a_full_disk(environment: Environment) -> None:
    failed = StorageOfflineError("sync", "a.log", OSError(errno.ENOSPC, "full"))
    assert environment.write_error("append", "a.log", 123, failed) is failed
    assert environment.health.failure is failed
