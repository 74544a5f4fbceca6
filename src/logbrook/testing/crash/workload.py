"""A seeded workload on a data directory over several processes, recorded so that power loss can be simulated anywhere.

The seed determines everything: the kind of workload, every operation, every byte. The same seed always gives the same
journal, so a failing state is identified by the seed and its position in the journal.

A process ends with a clean close or with a kill at any point, including during recovery. The next one starts on the
same disk with the page cache that its predecessor left. At each start the directory is checked against all promises so
far, and what readers see then is promised too.

Kinds that test retention, compaction and truncation start with existing data: appends that are not recorded and are
durable when the recording begins.
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
from logbrook.testing.crash.checker import check_directory
from logbrook.testing.crash.kinds import KINDS, WorkloadKind
from logbrook.testing.crash.life import Life
from logbrook.testing.crash.oracle import LogScan
from logbrook.testing.crash.promises import BrokenPromiseError, PromiseMark, Promises, Shown, ShownLog
from logbrook.testing.crash.settings import open_directory
from logbrook.testing.kills import KillableFiles, ProcessKilled
from logbrook.testing.memory_files import MemoryFiles
from logbrook.testing.recording_files import RecordingFiles

# The initial data: segments of various sizes, old enough to be compacted.
_PAST_ROLL_CHANCE = 0.3
_PAST_MS = 10_000

WrapFiles = Callable[[RecordingFiles], Files]


class Workload:
    """One run. `files` has the journal afterwards; `promises` initially cover the initial data.

    With an `image`, the disk starts with that content, which the given promises describe.
    """

    def __init__(
        self,
        seed: int,
        *,
        image: MemoryFiles | None = None,
        kind: WorkloadKind | None = None,
        promises: Promises | None = None,
        wrap_files: WrapFiles = lambda files: files,
        started_ms: int = 1_000_000,
    ) -> None:
        self.kind = kind or KINDS[seed % len(KINDS)]
        self.clock = FakeClock(started_ms)
        self.promises = promises or Promises()
        self._rng = Random(seed)
        self._source = BatchSource(self._rng, f"{seed}")
        self._wrap_files = wrap_files
        self.files = RecordingFiles(image or self._initial_data())
        self._process_files = KillableFiles(self.files)

    def run(self) -> None:
        """Run the workload. Raises BrokenPromiseError, or an unexpected error of the engine."""
        life = self.open()
        for _ in range(self.kind.operations):
            life = self.step(life)
        if self._rng.random() < 0.5:
            self._end(life)

    def step(self, life: Life) -> Life:
        """Run one operation, or end this process and start the next. Returns the process to continue with."""
        draw = self._rng.random()
        try:
            if draw < self.kind.close_chance:
                life.close()
                return self.open(after_close=True)
            if draw < self.kind.close_chance + self.kind.kill_chance and not self._process_files.is_kill_scheduled:
                self._process_files.kill_after(self._rng.randint(0, 25))
            life.do(self._rng.choice(self.kind.choices))
        except ProcessKilled:
            life.directory.abandon()
            return self.open()
        return life

    def open(self, *, after_close: bool = False) -> Life:
        """Start a process; restart it while it is killed during recovery or the first check."""
        while True:
            self._process_files = KillableFiles(self._wrap_files(self.files))
            if self._rng.random() < self.kind.kill_chance:
                self._process_files.kill_after(self._rng.randint(0, 40))
            try:
                directory = open_directory(self._process_files, self._rng.choice(self.kind.durabilities), self.clock)
            except ProcessKilled:
                after_close = False
                continue
            if after_close and (directory.report.changed_anything or directory.report.wal_damage):
                raise BrokenPromiseError(f"recovery changed the directory after a clean close: {directory.report}")
            try:
                scans = check_directory(directory, self.promises)
            except ProcessKilled:
                # Reading may write: rebuilt indexes are stored.
                directory.abandon()
                after_close = False
                continue
            self._mark(shown(directory, scans))
            return self._life(directory, self._process_files, self._mark)

    def _initial_data(self) -> MemoryFiles:
        files = MemoryFiles()
        if self.kind.past_appends:
            process_files = KillableFiles(files)
            directory = open_directory(process_files, Durability.FSYNC, self.clock)
            life = self._life(directory, process_files, self.promises.take)
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

    def _life(self, directory: LogDirectory, files: KillableFiles, mark: Callable[[PromiseMark], None]) -> Life:
        return Life(directory, files, mark, self._rng, self.clock, self._source, self.kind.partitions)

    def _end(self, life: Life) -> None:
        try:
            life.close()
        except ProcessKilled:
            return

    def _mark(self, label: object) -> None:
        self.promises.take(label)
        self.files.mark(label)


def shown(directory: LogDirectory, scans: Mapping[TopicPartition, LogScan]) -> Shown:
    """The mark for what readers of an open directory can see."""
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
