"""Helpers for tests of damaged disks: a data directory with history, written by the harness's own operations."""

from collections.abc import Iterable, Sequence
from random import Random
from typing import NamedTuple

from logbrook.config import Durability
from logbrook.ports import Files
from logbrook.storage.log_directory import LogDirectory
from logbrook.testing import MemoryFiles
from logbrook.testing.clock import FakeClock
from logbrook.testing.crash import Promises, check_directory
from logbrook.testing.crash import client_operations as client
from logbrook.testing.crash import owner_operations as owner
from logbrook.testing.crash.batches import BatchSource
from logbrook.testing.crash.life import Life, Operation
from logbrook.testing.crash.promises import PromiseMark
from logbrook.testing.crash.settings import PARTITIONS, open_directory
from logbrook.testing.crash.workload import shown
from logbrook.testing.kills import KillableFiles

WRITES: tuple[Operation, ...] = (client.append, client.append, client.append_set, owner.commit)
BEGINNING: tuple[Operation, ...] = (*[owner.create] * len(PARTITIONS), *WRITES * 6, owner.checkpoint)


class Past(NamedTuple):
    """A disk, and the promises made about it. Every test takes a copy of the disk."""

    files: MemoryFiles
    promises: Promises

    def copy(self) -> MemoryFiles:
        return MemoryFiles(self.files)


class Session:
    """One uninterrupted process on a disk, without other threads.

    The state that readers see at its start is checked, and promised, on a copy of the underlying disk.
    """

    def __init__(
        self,
        files: Files,
        disk: MemoryFiles,
        seed: int,
        *,
        promises: Promises | None = None,
        durability: Durability = Durability.FSYNC,
        now_ms: int = 1_000_000,
    ) -> None:
        self.promises = promises or Promises()
        self.marks: list[PromiseMark] = []
        self.clock = FakeClock(now_ms)
        process_files = KillableFiles(files)
        process_files.before_call = _nothing
        self.directory = open_directory(process_files, durability, self.clock)
        copy = open_directory(MemoryFiles(disk), durability, self.clock)
        self.take(shown(copy, check_directory(copy, self.promises)))
        rng = Random(seed)
        self.life = Life(self.directory, process_files, self.take, rng, self.clock, BatchSource(rng, f"{seed}"))

    def take(self, mark: PromiseMark) -> None:
        self.promises.take(mark)
        self.marks.append(mark)

    def do(self, operations: Iterable[Operation]) -> None:
        for operation in operations:
            self.life.do(operation)


def closed_past(seed: int = 0, operations: Sequence[Operation] = BEGINNING) -> Past:
    """The state after a clean close."""
    files = MemoryFiles()
    session = Session(files, files, seed)
    session.do(operations)
    session.life.close()
    return Past(MemoryFiles(files), session.promises)


def killed_past(seed: int = 0, operations: Sequence[Operation] = (*BEGINNING, *WRITES * 3)) -> Past:
    """The state after a kill: the write-ahead log and the segments hold everything since the last checkpoint."""
    files = MemoryFiles()
    session = Session(files, files, seed)
    session.do(operations)
    session.directory.abandon()
    return Past(MemoryFiles(files), session.promises)


def opened(files: Files, now_ms: int = 1_500_000) -> LogDirectory:
    return open_directory(files, Durability.FSYNC, FakeClock(now_ms))


def content(files: MemoryFiles, path: str) -> bytes:
    data = files.snapshot()[path]
    assert data is not None
    return data


def put(files: MemoryFiles, path: str, data: bytes | bytearray) -> None:
    """Replace the content of an existing file by `data`."""
    file = files.open(path)
    file.truncate(0)
    file.pwrite(data, 0)
    file.close()


def flip(files: MemoryFiles, path: str, position: int, mask: int = 0xFF) -> None:
    """Simulate bit rot: flip bits of one byte."""
    file = files.open(path)
    file.pwrite(bytes([file.pread(1, position)[0] ^ mask]), position)
    file.close()


def paths(files: MemoryFiles, ending: str) -> list[str]:
    return [path for path in files.snapshot() if path.endswith(ending)]


def _nothing() -> None:
    """The callback of a session for concurrent work before each call: no work."""
