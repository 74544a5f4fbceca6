"""One simulated process: an open directory, and the marks of its promises while operations run.

Operations are functions of a `Life`, in `client_operations` and `owner_operations`. Each draws its parameters from the
seeded generator, marks what it is about to do, does it, and marks the result. It may raise what the engine raises: the
marks are correct at every point in between.

In production, commits, the sync step of checkpoints and the reading steps of compactions run on other threads. Here
they are interrupted instead: before one of their file operations the owner runs another operation.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random

from logbrook.config import CleanupPolicy, Durability, TimestampSource
from logbrook.model import TopicPartition
from logbrook.model.identifiers import LeaderEpoch, Offset
from logbrook.records.batch import iter_headers, stamp, stamp_log_append_time
from logbrook.storage.batch_set import AppendOrigin
from logbrook.storage.checkpoint import CheckpointRun
from logbrook.storage.durable_files import IO_FAILURES
from logbrook.storage.errors import StorageError, StorageOfflineError
from logbrook.storage.log import Log
from logbrook.storage.log_directory import LogDirectory
from logbrook.storage.pending_append import PendingAppend
from logbrook.testing.clock import FakeClock
from logbrook.testing.crash.batches import BatchSource
from logbrook.testing.crash.promises import Acked, BatchWritten, PromiseMark, Refused
from logbrook.testing.crash.settings import PARTITIONS
from logbrook.testing.kills import KillableFiles

Operation = Callable[["Life"], None]

# The share of the file operations of a step on another thread before which the owner runs an operation.
_INTERRUPTED_SHARE = 0.2


class Life:
    """A process with an open directory, from recovery to close, kill or power loss."""

    def __init__(
        self,
        directory: LogDirectory,
        files: KillableFiles,
        mark: Callable[[PromiseMark], None],
        rng: Random,
        clock: FakeClock,
        source: BatchSource,
        partitions: tuple[TopicPartition, ...] = PARTITIONS,
    ) -> None:
        self.directory = directory
        self.mark = mark
        self.rng = rng
        self.clock = clock
        self.source = source
        self.partitions = partitions
        self.checkpoint: CheckpointRun | None = None
        self.is_checkpoint_run = False
        self.is_committing = False
        self._files = files
        self._is_interval = directory.environment.config.durability is Durability.INTERVAL
        self._ends_at_checkpoint: dict[TopicPartition, tuple[int, int]] = {}
        # Incremented when a partition is truncated, deleted or recreated: appends of earlier generations are not
        # promised.
        self._generations = dict.fromkeys(PARTITIONS, 0)

    @property
    def is_offline(self) -> bool:
        """True after an I/O failure. Unacknowledged appends may then be visible or not."""
        return self.directory.environment.health.failure is not None

    def do(self, operation: Operation) -> None:
        self.clock.advance(self.rng.randint(0, 40))
        operation(self)

    def any_log(self) -> Log | None:
        logs = list(self.directory)
        return self.rng.choice(logs) if logs else None

    def start_generation(self, partition: TopicPartition) -> None:
        """Exempt the pending appends of a truncated, deleted or recreated partition from the promises."""
        self._generations[partition] += 1

    def append(self, log: Log, data: bytearray, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
        now_ms = self.clock.now_ms()
        leader_epoch = max(0, log.epochs.latest) + (self.rng.random() < 0.1)
        written = [BatchWritten(log.partition, *batch) for batch in _as_written(log, data, leader_epoch, now_ms)]
        for mark in written:
            self.mark(mark)
        try:
            append = log.append(data, now_ms=now_ms, leader_epoch=LeaderEpoch(leader_epoch), origin=origin)
        except StorageError:
            if not self.is_offline:
                for mark in written:
                    self.mark(Refused(*mark))
            raise
        self.track(log, append)

    def track(self, log: Log, append: PendingAppend) -> None:
        """Mark the append as acknowledged when it completes without an error.

        In interval mode a record is promised only when a checkpoint that began after it has finished.
        """
        if self._is_interval:
            return
        generation = self._generations[log.partition]

        def acknowledge(done: PendingAppend) -> None:
            if done.error is None and self._generations[log.partition] == generation:
                self.mark(Acked(log.partition, done.base_offset, done.next_offset))

        append.add_done_callback(acknowledge)

    def begin_checkpoint(self) -> None:
        self.checkpoint = self.directory.begin_checkpoint()
        self.is_checkpoint_run = False
        self._ends_at_checkpoint = {
            log.partition: (self._generations[log.partition], log.log_end_offset) for log in self.directory
        }

    def run_checkpoint(self) -> None:
        """Run the step that production runs on another thread. Its error is passed to `finish_checkpoint`."""
        assert self.checkpoint is not None
        try:
            self.checkpoint.run()
        except IO_FAILURES as error:
            self.finish_checkpoint(error)
        self.is_checkpoint_run = True

    def finish_checkpoint(self, error: OSError | StorageOfflineError | None = None) -> None:
        run, self.checkpoint = self.checkpoint, None
        assert run is not None
        self.directory.finish_checkpoint(run, error)
        if self._is_interval:
            for partition, (generation, end) in self._ends_at_checkpoint.items():
                if self._generations[partition] == generation:
                    self.mark(Acked(partition, 0, end))

    def close(self) -> None:
        """Close cleanly, which makes everything durable in either mode."""
        if self.checkpoint is not None:
            if not self.is_checkpoint_run:
                self.run_checkpoint()
            self.finish_checkpoint()
        ends = {log.partition: log.log_end_offset for log in self.directory}
        self.directory.close()
        if not self.is_offline:
            for partition, end in ends.items():
                self.mark(Acked(partition, 0, end))

    @contextmanager
    def interrupted(self, operations: Sequence[Operation]) -> Iterator[None]:
        """Sometimes run up to three of `operations`, each before a file operation made inside the context."""
        if self._files.before_call is not None or self.rng.random() < 0.5:
            yield
            return
        operations_left = self.rng.randint(1, 3)

        def before_call() -> None:
            nonlocal operations_left
            if operations_left and self.rng.random() < _INTERRUPTED_SHARE:
                operations_left -= 1
                self._files.before_call = None
                try:
                    self.do(self.rng.choice(operations))
                finally:
                    self._files.before_call = before_call

        self._files.before_call = before_call
        try:
            yield
        finally:
            self._files.before_call = None


def is_compacted(log: Log) -> bool:
    return CleanupPolicy.COMPACT in log.config.cleanup_policy


def _as_written(log: Log, data: bytearray, leader_epoch: int, now_ms: int) -> Iterator[tuple[int, bytes]]:
    """Yield (base offset, bytes) of each batch as it will be stored."""
    view = memoryview(bytearray(data))
    offset = log.log_end_offset
    for position, header in iter_headers(data):
        stamp(view, position, offset, LeaderEpoch(leader_epoch))
        if log.config.message_timestamp_type is TimestampSource.LOG_APPEND_TIME:
            stamp_log_append_time(view, position, now_ms)
        yield offset, bytes(view[position : position + header.size])
        offset = Offset(offset + header.last_offset_delta + 1)
