"""Checks one state: recovers it, compares it with the promises, and sometimes uses it further."""

from random import Random

from logbrook.config import Durability
from logbrook.storage.log_directory import LogDirectory
from logbrook.storage.paths import ABORTED
from logbrook.testing.clock import FakeClock
from logbrook.testing.crash.batches import BatchSource
from logbrook.testing.crash.checker import check_directory
from logbrook.testing.crash.client_operations import append, retry
from logbrook.testing.crash.life import Life
from logbrook.testing.crash.owner_operations import commit, create
from logbrook.testing.crash.promises import Promises
from logbrook.testing.crash.settings import PARTITIONS, open_directory
from logbrook.testing.crash.workload import shown
from logbrook.testing.kills import KillableFiles
from logbrook.testing.memory_files import MemoryFiles

# After the end of every workload.
RECOVERED_AT_MS = 2_000_000
_THOROUGH_SHARE = 0.5
_APPEND_SHARE = 0.1
_INTERVAL_SHARE = 0.2
_DAMAGE_SHARE = 0.1


def check_state(files: MemoryFiles, promises: Promises, rng: Random) -> None:
    """Recover the disk and check it against the promises. Raises the error found.

    `rng` decides about additional checks, and whether the directory is then used and recovered once more.
    """
    clock = FakeClock(RECOVERED_AT_MS)
    if rng.random() < _DAMAGE_SHARE:
        _damage_aborted(files, rng)
    directory = _open(files, clock, rng)
    scans = check_directory(directory, promises, thorough=rng.random() < _THOROUGH_SHARE)
    if rng.random() < _APPEND_SHARE:
        promises = promises.copy()
        promises.take(shown(directory, scans))
        _use_and_recover(directory, files, promises, rng, clock)


def _use_and_recover(
    directory: LogDirectory, files: MemoryFiles, promises: Promises, rng: Random, clock: FakeClock
) -> None:
    """Append to the recovered directory, reopen it, and check that the new records survive."""
    life = Life(directory, KillableFiles(files), promises.take, rng, clock, BatchSource(rng, "after"))
    for operation in (create, append, retry, append, append, commit, append):
        life.do(operation)
    if rng.random() < 0.5:
        life.close()
    else:
        directory.abandon()
    again = _open(files, clock, rng)
    check_directory(again, promises)
    again.abandon()


def _damage_aborted(files: MemoryFiles, rng: Random) -> None:
    """Delete, truncate or corrupt the aborted-transaction indexes, which recovery must rebuild from the log."""
    for partition in PARTITIONS:
        path = f"{partition.directory}/{ABORTED}"
        try:
            file = files.open(path)
        except FileNotFoundError:
            continue
        size = file.size()
        match rng.randrange(3):
            case 0:
                files.unlink(path)
            case 1:
                file.truncate(rng.randint(0, size))
            case _:
                position = rng.randrange(max(1, size))
                flipped = bytes(byte ^ (1 << rng.randrange(8)) for byte in file.pread(1, position))
                file.pwrite(flipped, position)
        file.close()


def _open(files: MemoryFiles, clock: FakeClock, rng: Random) -> LogDirectory:
    durability = Durability.INTERVAL if rng.random() < _INTERVAL_SHARE else Durability.FSYNC
    return open_directory(files, durability, clock)
