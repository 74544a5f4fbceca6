"""One life of a process: an open directory, and the marks for what is promised while operations are done to it.

Operations are functions of a life; `client_operations` and `owner_operations` have them. Each draws what it needs from
the seeded generator, marks what it is about to do, does it, and marks what was done. It may raise whatever the engine
raises: the marks are right at every point in between.

In another thread than the owner's run commits, the middle step of checkpoints and the reading steps of compactions.
Here they are interrupted instead: before one of their calls to the disk the owner does something else.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random

from logbrook.config import CleanupPolicy, Durability, TimestampSource
from logbrook.model import TopicPartition
from logbrook.records.batch import iter_headers, stamp, stamp_log_append_time
from logbrook.storage.batch_set import Origin
from logbrook.storage.checkpoints import CheckpointRun
from logbrook.storage.disk_errors import IO_FAILURES
from logbrook.storage.errors import StorageError, StorageOfflineError
from logbrook.storage.log import Log
from logbrook.storage.log_directory import LogDirectory
from logbrook.storage.ticket import Ticket
from logbrook.testing.clock import FakeClock
from logbrook.testing.crash.batches import BatchSource
from logbrook.testing.crash.promises import Acked, PromiseMark, Refused, Written
from logbrook.testing.crash.settings import PARTITIONS
from logbrook.testing.kills import MortalFiles

Operation = Callable[["Life"], None]


class Life:
    """An open directory and who uses it."""

    def __init__(
        self,
        directory: LogDirectory,
        door: MortalFiles,
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
        self._door = door
        self._is_interval = directory.environment.config.durability is Durability.INTERVAL
        self._ends_at_checkpoint: dict[TopicPartition, tuple[int, int]] = {}
        # Counts what a partition went through that makes earlier appends none of its clients' business.
        self._turns = dict.fromkeys(PARTITIONS, 0)

    @property
    def is_offline(self) -> bool:
        """Whether the disk failed in this life. Then what was not acknowledged may be found, or not."""
        return self.directory.environment.health.failure is not None

    def do(self, operation: Operation) -> None:
        self.clock.advance(self.rng.randint(0, 40))
        operation(self)

    def any_log(self) -> Log | None:
        logs = list(self.directory)
        return self.rng.choice(logs) if logs else None

    def turn(self, partition: TopicPartition) -> None:
        """Appends of `partition` that are not acknowledged by now never will be: it is cut, deleted or made anew."""
        self._turns[partition] += 1

    def append(self, log: Log, data: bytearray, origin: Origin = Origin.CLIENT) -> None:
        now_ms = self.clock.now_ms()
        leader_epoch = max(0, log.epochs.latest) + (self.rng.random() < 0.1)
        written = [Written(log.partition, *batch) for batch in _as_written(log, data, leader_epoch, now_ms)]
        for mark in written:
            self.mark(mark)
        try:
            ticket = log.append(data, now_ms=now_ms, leader_epoch=leader_epoch, origin=origin)
        except StorageError:
            if not self.is_offline:
                for mark in written:
                    self.mark(Refused(*mark))
            raise
        self.track(log, ticket)

    def track(self, log: Log, ticket: Ticket) -> None:
        """An acknowledgement is a ticket that was completed without an error, at the moment it is.

        In interval mode that means nothing: a record is promised when a checkpoint that began after it is finished.
        """
        if self._is_interval:
            return
        turn = self._turns[log.partition]

        def acknowledge(done: Ticket) -> None:
            if done.error is None and self._turns[log.partition] == turn:
                self.mark(Acked(log.partition, done.base_offset, done.next_offset))

        ticket.add_done_callback(acknowledge)

    def begin_checkpoint(self) -> None:
        self.checkpoint = self.directory.begin_checkpoint()
        self.is_checkpoint_run = False
        self._ends_at_checkpoint = {
            log.partition: (self._turns[log.partition], log.log_end_offset) for log in self.directory
        }

    def run_checkpoint(self) -> None:
        """The step that may be made in another thread. What it raises is the owner's to deal with."""
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
            for partition, (turn, end) in self._ends_at_checkpoint.items():
                if self._turns[partition] == turn:
                    self.mark(Acked(partition, 0, end))

    def close(self) -> None:
        """The clean end. Everything is durable then, in either mode."""
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
        """Maybe do one or two of `operations` before some call to the disk that is made inside."""
        if self._door.before_call is not None or self.rng.random() < 0.5:
            yield
            return
        calls_left = self.rng.randint(0, 6)

        def before_call() -> None:
            nonlocal calls_left
            calls_left -= 1
            if calls_left < 0:
                self._door.before_call = None
                for _ in range(self.rng.randint(1, 2)):
                    self.do(self.rng.choice(operations))

        self._door.before_call = before_call
        try:
            yield
        finally:
            self._door.before_call = None


def is_compacted(log: Log) -> bool:
    return CleanupPolicy.COMPACT in log.config.cleanup_policy


def _as_written(log: Log, data: bytearray, leader_epoch: int, now_ms: int) -> Iterator[tuple[int, bytes]]:
    """(base offset, bytes) of each batch as the log will hold it."""
    view = memoryview(bytearray(data))
    offset = log.log_end_offset
    for position, header in iter_headers(data):
        stamp(view, position, offset, leader_epoch)
        if log.config.message_timestamp_type is TimestampSource.LOG_APPEND_TIME:
            stamp_log_append_time(view, position, now_ms)
        yield offset, bytes(view[position : position + header.size])
        offset += header.last_offset_delta + 1
