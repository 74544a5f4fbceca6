"""The n-th call to the disk fails, for every n, in a workload with every operation: see `script`.

Afterwards the disk works again and the directory is opened, after a kill and after a power loss: all acknowledged
records are present, no refused ones, and the directory takes appends.

The calls are divided into shards, every sixteenth call to a shard. `make test` takes one shard of each mode, another
one for each; `make test-all` takes all of them.
"""

import errno
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from random import Random

import pytest

from logbrook.config import Durability
from logbrook.model import TopicPartition
from logbrook.storage.errors import DiskFullError, StorageError, StorageOfflineError, UnreadableLogError
from logbrook.testing import FaultyFiles, Journal, MemoryFiles, RecordingFiles, Variant, materialise
from logbrook.testing.crash import KINDS, Promises, Workload, check_directory, check_state
from logbrook.testing.crash import client_operations as client
from logbrook.testing.crash import owner_operations as owner
from logbrook.testing.crash.promises import Acked
from logbrook.testing.crash.settings import EVENTS, config_of
from logbrook.testing.forwarding import CALLS, MUTATING_CALLS, WRITE_CALLS
from tests.crash.kit import BEGINNING, WRITES, Session, opened
from tests.crash.script import Outcome, run_script

SHARDS = 16


@dataclass(frozen=True)
class Mode:
    """The calls that fail, and how they fail."""

    error: int = errno.EIO
    only: Collection[str] = CALLS
    durability: Durability = Durability.FSYNC
    sticky: bool = False
    partial_writes: bool = False
    forget_unsynced: bool = False

    def faulty(self, files: RecordingFiles, fail_at: int | None = None) -> FaultyFiles:
        return FaultyFiles(
            files,
            fail_at,
            self.error,
            only=self.only,
            sticky=self.sticky,
            partial_writes=self.partial_writes,
            forget_unsynced=self.forget_unsynced,
        )


MODES = {
    "any call fails": Mode(),
    "a call that changes something fails, in interval mode": Mode(only=MUTATING_CALLS, durability=Durability.INTERVAL),
    "from some sync on, all fail and forget": Mode(only={"fsync"}, sticky=True, forget_unsynced=True),
    "a sync fails and forgets": Mode(only={"fsync", "fsync_dir"}, forget_unsynced=True),
    "the disk is full": Mode(errno.ENOSPC, {"create", *WRITE_CALLS}),
    "the disk is full in the middle of a write": Mode(errno.ENOSPC, WRITE_CALLS, partial_writes=True),
    "a write fails half-way": Mode(only=WRITE_CALLS, partial_writes=True),
}


def trials(mode: Mode, shard: int) -> Iterator[tuple[FaultyFiles, RecordingFiles, Outcome]]:
    disk = RecordingFiles()
    counted = mode.faulty(disk)
    outcome = run_script(counted, disk, mode.durability)
    assert not outcome.broken
    assert not outcome.refusals
    for n in range(1 + shard, counted.calls + 1, SHARDS):
        disk = RecordingFiles()
        faulty = mode.faulty(disk, n)
        yield faulty, disk, run_script(faulty, disk, mode.durability)


def mended(disk: RecordingFiles) -> Iterator[MemoryFiles]:
    """Yield the states that the next process may find: everything written, or only what was synced."""
    yield MemoryFiles(disk)
    yield materialise(disk.journal, len(disk.journal.ops), Variant.LOST)


def assert_good_as_new(files: MemoryFiles, promises: Promises) -> None:
    """Assert that no acknowledged record is missing, and that appends are acknowledged and read back."""
    check_state(files, promises, Random(0))


SHARDS_OF_MODES = [
    pytest.param(mode, shard, marks=() if shard == number % SHARDS else pytest.mark.long)
    for number, mode in enumerate(MODES)
    for shard in range(SHARDS)
]


@pytest.mark.parametrize(("mode", "shard"), SHARDS_OF_MODES)
def test_no_acknowledged_record_is_lost_if_any_call_fails(mode: str, shard: int) -> None:
    broken: list[str] = []
    for faulty, disk, outcome in trials(MODES[mode], shard):
        broken += [f"{faulty.refused[:1]}: {rule}" for rule in outcome.broken]
        for files in mended(disk):
            try:
                assert_good_as_new(files, outcome.promises)
            except (AssertionError, OSError, StorageError) as error:
                broken.append(f"{faulty.refused[:1]}: after a restart {error!r}")
    assert broken == [], f"{len(broken)} broken rules, the first: {broken[:3]}"


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.long), 6])
@pytest.mark.parametrize("seed", range(len(KINDS)))
@pytest.mark.parametrize("mode", ["any call fails", "the disk is full in the middle of a write"])
def test_a_recovery_that_fails_is_done_again_on_a_mended_disk(mode: str, seed: int, step: int) -> None:
    """A power loss somewhere in a workload, and then a call of the recovery fails: every `step`-th in turn."""
    image, promises = after_a_power_loss(seed)
    counted = MODES[mode].faulty(RecordingFiles(image))
    opened(counted).abandon()
    for n in range(1 + seed % step, counted.calls + 1, step):
        disk = RecordingFiles(image)
        with suppress(OSError, StorageError):
            directory = opened(MODES[mode].faulty(disk, n))
            if not any(isinstance(error, UnreadableLogError) for error in directory.report.quarantined):
                check_directory(directory, promises, thorough=False)
            directory.abandon()
        for files in mended(disk):
            check_state(files, promises, Random(n))


def after_a_power_loss(seed: int) -> tuple[MemoryFiles, Promises]:
    workload = Workload(seed)
    promises = workload.promises.copy()
    workload.run()
    journal = workload.files.journal
    prefix = Random(seed).randrange(len(journal.ops) // 2, len(journal.ops))
    promises.take_all(Journal(journal.base, journal.ops[:prefix]).marks())
    variant = (Variant.KEPT, Variant.TORN, Variant.NAMES_ONLY, Variant.PREFIX)[seed % 4]
    return materialise(journal, prefix, variant), promises


@pytest.mark.parametrize("room_bytes", [0, 100, 1000, 5000, 9000])
def test_a_full_disk_refuses_appends_and_keeps_serving_readers(room_bytes: int) -> None:
    disk = MemoryFiles()
    session = Session(disk, disk, 5)
    session.do(BEGINNING)
    disk.capacity_bytes = disk.used_bytes() + room_bytes
    refused = 0
    for _ in range(60):
        try:
            session.do([client.append, owner.commit])
        except DiskFullError:
            refused += 1
        session.do([client.read])
    assert refused
    assert not session.life.is_offline
    for log in session.directory:
        log.validate()
    disk.capacity_bytes = None
    acked = len(session.marks)
    session.do([*WRITES, owner.checkpoint, *WRITES])
    assert any(isinstance(mark, Acked) for mark in session.marks[acked:])
    session.life.close()
    check_state(disk, session.promises, Random(0))


@pytest.mark.parametrize("room_bytes", range(0, 3000, 100))
def test_on_a_full_disk_every_operation_is_refused_whole_or_done(room_bytes: int) -> None:
    disk = MemoryFiles()
    session = Session(disk, disk, 6)
    session.do(BEGINNING)
    disk.capacity_bytes = disk.used_bytes() + room_bytes
    operations = (owner.roll, owner.truncate, owner.compact, owner.retain, owner.delete_before, owner.create)
    for operation in (*operations, owner.delete, owner.checkpoint, owner.expire_producers, owner.verify) * 2:
        with suppress(DiskFullError):
            session.do([operation, client.append])
    assert not session.life.is_offline
    for files in (MemoryFiles(disk), disk):
        session.directory.abandon()
        files.capacity_bytes = None
        check_state(files, session.promises.copy(), Random(room_bytes))


def test_a_failed_sync_is_final_and_its_bytes_are_never_acknowledged() -> None:
    disk = RecordingFiles()
    faulty = FaultyFiles(disk, only={"fsync"}, matching=lambda path: path.endswith(".wal"), forget_unsynced=True)
    session = Session(faulty, disk, 7)
    session.do(BEGINNING)
    acked = len(session.marks)
    session.do([client.append] * 3)
    faulty.fail_at = faulty.calls + 1
    session.do([owner.commit])
    failure = session.directory.environment.health.failure
    assert isinstance(failure, StorageOfflineError)
    for operation in (client.append, owner.checkpoint, owner.truncate, owner.compact, owner.retain, owner.delete):
        with pytest.raises(StorageOfflineError) as raised:
            session.do([operation])
        assert raised.value is failure
    with pytest.raises(StorageOfflineError) as raised:
        session.directory.create(TopicPartition("events", 1), config_of(EVENTS))
    assert raised.value is failure
    session.life.close()
    assert not any(isinstance(mark, Acked) for mark in session.marks[acked:])
    for files in mended(disk):
        check_state(files, session.promises, Random(0))
