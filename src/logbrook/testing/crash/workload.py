"""A seeded run of a data directory over several lives, recorded so that power can be cut at any point of it.

The seed decides everything: which kind of workload it is, every operation, every byte. The same seed always gives the
same journal, so a failing state is known by the seed and its place in the journal.

A life ends with a clean close or with a kill in the middle of whatever was going on, recovery included. The next life
begins on the same disk, with what the one before left in the page cache. At each beginning the directory is checked
against all promises so far, and what its readers are shown then is a promise too.

Retention, compaction and truncation need a log with a past. Kinds that are about these get one: appends of an earlier
life that is not recorded, all of it durable when the recorded ones begin.
"""

from collections.abc import Callable, Mapping
from random import Random

from logbrook.config import Durability
from logbrook.model import TopicPartition
from logbrook.ports import Files
from logbrook.storage.log_directory import LogDirectory
from logbrook.testing.clock import FakeClock
from logbrook.testing.crash import client_operations as client
from logbrook.testing.crash import owner_operations as owner
from logbrook.testing.crash.batches import BatchSource
from logbrook.testing.crash.broken_promise import BrokenPromiseError
from logbrook.testing.crash.checker import check_directory
from logbrook.testing.crash.kinds import KINDS, Kind
from logbrook.testing.crash.life import Life
from logbrook.testing.crash.oracle import LogScan
from logbrook.testing.crash.promises import PromiseMark, Promises, Shown, ShownLog
from logbrook.testing.crash.settings import open_directory
from logbrook.testing.kills import MortalFiles, ProcessKilled
from logbrook.testing.memory_files import MemoryFiles
from logbrook.testing.recording_files import RecordingFiles

# Segments of all sizes, so that some fit together, and old enough to be compacted.
_PAST_ROLL_CHANCE = 0.3
_PAST_MS = 10_000

DoorOf = Callable[[RecordingFiles], Files]


class Workload:
    """One run. `files` has the journal afterwards; `promises` are, before it, those of the past.

    With an `image`, the disk is that one and has its own past, which the given promises tell of.
    """

    def __init__(
        self,
        seed: int,
        *,
        image: MemoryFiles | None = None,
        kind: Kind | None = None,
        promises: Promises | None = None,
        door_of: DoorOf = lambda files: files,
        started_ms: int = 1_000_000,
    ) -> None:
        self.kind = kind or KINDS[seed % len(KINDS)]
        self.clock = FakeClock(started_ms)
        self.promises = promises or Promises()
        self._rng = Random(seed)
        self._source = BatchSource(self._rng, f"{seed}")
        self._door_of = door_of
        self.files = RecordingFiles(image or self._past())
        self._door = MortalFiles(self.files)

    def run(self) -> None:
        """Raises what the engine raises where nothing should fail, and BrokenPromiseError."""
        life = self.open()
        for _ in range(self.kind.operations):
            life = self.step(life)
        if self._rng.random() < 0.5:
            self._end(life)

    def step(self, life: Life) -> Life:
        """One operation, or the end of this life and the beginning of the next. Returns the life to go on with."""
        draw = self._rng.random()
        try:
            if draw < self.kind.close_chance:
                life.close()
                return self.open(after_close=True)
            if draw < self.kind.close_chance + self.kind.kill_chance and not self._door.is_dying:
                self._door.die_after(self._rng.randint(0, 25))
            life.do(self._rng.choice(self.kind.choices))
        except ProcessKilled:
            life.directory.abandon()
            return self.open()
        return life

    def open(self, *, after_close: bool = False) -> Life:
        """Begin a life, and another one if it is killed while it recovers or is first read."""
        while True:
            self._door = MortalFiles(self._door_of(self.files))
            if self._rng.random() < self.kind.kill_chance:
                self._door.die_after(self._rng.randint(0, 40))
            try:
                directory = open_directory(self._door, self._rng.choice(self.kind.durabilities), self.clock)
            except ProcessKilled:
                after_close = False
                continue
            if after_close and (directory.report.changed_anything or directory.report.wal_damage):
                raise BrokenPromiseError(f"after a clean close there was something to recover: {directory.report}")
            try:
                found = check_directory(directory, self.promises)
            except ProcessKilled:
                # Readers write, too: an index that is made again is put on the disk.
                directory.abandon()
                after_close = False
                continue
            self._mark(shown(directory, found))
            return self._life(directory, self._door, self._mark)

    def _past(self) -> MemoryFiles:
        files = MemoryFiles()
        if self.kind.past_appends:
            door = MortalFiles(files)
            directory = open_directory(door, Durability.FSYNC, self.clock)
            life = self._life(directory, door, self.promises.take)
            for _ in self.kind.partitions:
                life.do(owner.create)
            for _ in range(self.kind.past_appends):
                life.do(self._rng.choice(self.kind.past_operations))
                life.do(owner.commit)
                if self._rng.random() < _PAST_ROLL_CHANCE:
                    life.do(owner.roll)
            life.do(client.end_transactions)
            life.close()
            self.clock.advance(_PAST_MS)
        return files

    def _life(self, directory: LogDirectory, door: MortalFiles, mark: Callable[[PromiseMark], None]) -> Life:
        return Life(directory, door, mark, self._rng, self.clock, self._source, self.kind.partitions)

    def _end(self, life: Life) -> None:
        try:
            life.close()
        except ProcessKilled:
            return

    def _mark(self, label: object) -> None:
        self.promises.take(label)
        self.files.mark(label)


def shown(directory: LogDirectory, scans: Mapping[TopicPartition, LogScan]) -> Shown:
    """What readers of an open directory can see."""
    return Shown(
        {
            log.partition: ShownLog(
                log.log_start_offset,
                log.log_end_offset,
                tuple((batch.header.base_offset, batch.data) for batch in scans[log.partition].batches),
            )
            for log in directory
        }
    )
