"""A killed process changes nothing any more; the disk keeps its writes, and its locks are released."""

import pytest

from logbrook.testing import MemoryFiles, RecordingFiles
from logbrook.testing.kills import KillableFiles, ProcessKilled


def workload(files: KillableFiles) -> None:
    """Make every call that may change the disk, ten of them."""
    lock = files.lock("lock")
    files.make_dir("d")
    file = files.create("d/a")
    file.pwrite(b"abcd", 0)
    file.pwritev([b"ef", b"gh"], 4)
    file.truncate(6)
    file.fsync()
    files.fsync_dir("d")
    files.rename("d/a", "d/b")
    files.unlink("d/b")
    files.remove_dir("d")
    lock.release()


CALLS = 11


def test_a_process_that_is_not_killed_does_everything() -> None:
    plain, mortal = RecordingFiles(), RecordingFiles()
    workload(KillableFiles(mortal))
    survivor = KillableFiles(plain)
    survivor.kill_after(CALLS)
    workload(survivor)
    assert plain.journal == mortal.journal


@pytest.mark.parametrize("calls", range(CALLS))
def test_a_killed_process_leaves_exactly_the_calls_before_the_kill(calls: int) -> None:
    whole, disk = RecordingFiles(), RecordingFiles()
    workload(KillableFiles(whole))
    process = KillableFiles(disk)
    process.kill_after(calls)
    with pytest.raises(ProcessKilled):
        workload(process)
    assert disk.journal.ops == whole.journal.ops[: len(disk.journal.ops)]
    before = disk.snapshot()
    with pytest.raises(ProcessKilled):
        process.create("after")
    assert disk.snapshot() == before


def test_the_locks_of_a_dead_process_are_gone() -> None:
    disk = MemoryFiles()
    process = KillableFiles(disk)
    process.lock("lock")
    with pytest.raises(BlockingIOError):
        disk.lock("lock")
    process.kill()
    disk.lock("lock")


def test_handles_die_with_their_process() -> None:
    process = KillableFiles(MemoryFiles())
    file = process.create("a")
    file.pwrite(b"abc", 0)
    process.kill()
    with pytest.raises(ProcessKilled):
        file.pwrite(b"x", 0)
    with pytest.raises(ProcessKilled):
        file.truncate(0)
    with pytest.raises(ProcessKilled):
        file.fsync()
    assert file.pread(3, 0) == b"abc"


def test_error_handlers_do_not_catch_a_simulated_kill() -> None:
    assert not issubclass(ProcessKilled, Exception)


def test_other_threads_have_their_turn_before_each_call() -> None:
    process = KillableFiles(MemoryFiles())
    turns: list[int] = []
    process.before_call = lambda: turns.append(len(turns))
    workload(process)
    assert len(turns) == CALLS
