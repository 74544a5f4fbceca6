"""A data directory: the logs of all its partitions, the write-ahead log they share, and the steps that keep it tidy.

    directory = LogDirectory.open(files, storage_config, clock=clock, now_ms=clock.now_ms())
    log = directory.create(TopicPartition("orders", 0), LogConfig())
    ticket = log.append(batch, now_ms=clock.now_ms())
    directory.commit()             # or a Committer, in a thread of its own
    ticket.result()

Nothing here runs by itself. Commits, checkpoints, retention, compaction and the removal of files are calls that do one
bounded step and say what they did; when they are made is the caller's decision, and the time is always an argument.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from logbrook.config import Durability, LogConfig, StorageConfig
from logbrook.model import TopicPartition, check_partition
from logbrook.ports import Clock, Files, Lock, Random, SystemRandom
from logbrook.storage.active_segment import ActiveSegment
from logbrook.storage.checkpoints import CheckpointRun
from logbrook.storage.closed_segment import SegmentCache
from logbrook.storage.directory_recovery import (
    ConfigOf,
    RecoveredDirectory,
    recover_directory,
    retire_directory,
    take_over_wal,
)
from logbrook.storage.disk_errors import IO_FAILURES, sync_directory
from logbrook.storage.environment import Environment, Health
from logbrook.storage.errors import (
    DirectoryLockedError,
    DiskFullError,
    PartitionExistsError,
    PartitionNotFoundError,
    StorageOfflineError,
)
from logbrook.storage.file_remover import FileRemover
from logbrook.storage.leader_epochs import LeaderEpochs
from logbrook.storage.log import Log
from logbrook.storage.open_files import OpenFiles
from logbrook.storage.partition_files import (
    BEGINNING,
    Checkpoint,
    PartitionState,
    prepare_state,
    publish_states,
)
from logbrook.storage.paths import CHECKPOINT, LOCK, WAL_DIRECTORY
from logbrook.storage.probe import StorageProbe
from logbrook.storage.producers import Producers
from logbrook.storage.recovery import LogRecovery, RecoveryReport, load_image
from logbrook.storage.repair import Repaired, repair_segments


class LogDirectory:
    """Made by `open`. One thread owns it; only `commit` and `CheckpointRun.run` may be called from another."""

    def __init__(self, environment: Environment, lock: Lock, clock: Clock, recovered: RecoveredDirectory) -> None:
        self.environment = environment
        self.report = recovered.report
        self._lock = lock
        self._clock = clock
        self._recovered = recovered
        self._logs = recovered.logs
        self._is_checkpointing = False
        self._checkpointed_s = clock.monotonic_s()

    @classmethod
    def open(
        cls,
        files: Files,
        config: StorageConfig,
        *,
        clock: Clock,
        now_ms: int,
        config_of: ConfigOf = lambda _partition: LogConfig(),
        random: Random | None = None,
    ) -> "LogDirectory":
        """Take the directory, recovering what is in it. `report` on the result says what that took.

        Raises DirectoryLockedError, CorruptFileError when the checkpoint cannot be read, or OSError.
        """
        try:
            lock = files.lock(LOCK)
        except BlockingIOError as error:
            raise DirectoryLockedError from error
        probe, health = StorageProbe(), Health()
        environment = Environment(
            files,
            config,
            probe,
            health,
            OpenFiles(files, config.open_files_max, health.fail),
            SegmentCache(files, config.mapped_segments_max, probe),
            FileRemover(files, probe),
        )
        try:
            recovered = recover_directory(environment, config_of, clock, random or SystemRandom(), now_ms)
            directory = cls(environment, lock, clock, recovered)
            try:
                directory._settle()
            except DiskFullError as error:
                # What is there can be read; nothing is written before this has been done.
                environment.health.hold(error, directory._settle)
        except BaseException:
            environment.close()
            lock.release()
            raise
        return directory

    def __iter__(self) -> Iterator[Log]:
        return iter(list(self._logs.values()))

    def __len__(self) -> int:
        return len(self._logs)

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._logs

    def get(self, partition: TopicPartition) -> Log:
        """Raises PartitionNotFoundError."""
        try:
            return self._logs[partition]
        except KeyError:
            raise PartitionNotFoundError(partition) from None

    def create(self, partition: TopicPartition, config: LogConfig) -> Log:
        """A new, empty log that survives a crash from here on. Raises as `create_all`."""
        (log,) = self.create_all([partition], config)
        return log

    def create_all(self, partitions: Sequence[TopicPartition], config: LogConfig) -> list[Log]:
        """New, empty logs that survive a crash from here on, all of them or none.

        Each step is taken for all of them before the next: what a file system syncs for the first, it has mostly synced
        for the others too. Raises PartitionExistsError, InvalidTopicNameError, InvalidPartitionError, DiskFullError or
        StorageOfflineError.
        """
        environment = self.environment
        environment.health.refuse_if_offline()
        for partition in partitions:
            check_partition(partition)
            if partition in self._logs:
                raise PartitionExistsError(partition)
        logs = [self._new_log(partition, config) for partition in partitions]
        directory = logs[0].partition.directory
        try:
            there = set(environment.files.list(""))
            for log in logs:
                directory = log.partition.directory
                if directory in there:
                    # An earlier attempt failed half-way, on a full disk perhaps.
                    retire_directory(environment, log.partition, 0)
                environment.files.make_dir(directory)
                log.active.create()
            # The state vouches for the segment, so the segment's name must be there first.
            for log in logs:
                sync_directory(environment.files, log.partition.directory)
            prepared = [prepare_state(environment.files, log.partition.directory, log.state) for log in logs]
            publish_states(environment.files, prepared)
            sync_directory(environment.files, "")
        except IO_FAILURES as error:
            for log in logs:
                log.active.drop()
            raise environment.write_error("create", directory, 0, error) from error
        self._logs.update((log.partition, log) for log in logs)
        return logs

    def _new_log(self, partition: TopicPartition, config: LogConfig) -> Log:
        environment = self.environment
        return Log(
            partition,
            config,
            environment,
            PartitionState(floor_number=environment.durability.skip_number()),
            closed=[],
            active=ActiveSegment(partition, 0, environment.open_files, config.index_interval_bytes, environment.probe),
            log_end_offset=0,
            epochs=LeaderEpochs(),
            producers=Producers(partition),
            recovery_point=BEGINNING,
        )

    def delete(self, partition: TopicPartition, now_ms: int) -> None:
        """Remove a log. Its files go later, in steps. Raises PartitionNotFoundError or StorageOfflineError."""
        log = self.get(partition)
        self.environment.health.refuse_if_failed()
        log.mark_deleted()
        del self._logs[partition]
        try:
            retire_directory(self.environment, partition, now_ms + log.config.file_delete_delay_ms)
        except IO_FAILURES as error:
            raise self.environment.write_error("delete", partition.directory, 0, error) from error

    def commit(self) -> int:
        """Make everything appended so far durable, as `durability` has it. Returns how many tickets were completed."""
        return self.environment.durability.commit()

    def is_checkpoint_due(self) -> bool:
        """Whether it is time for a checkpoint, or the write-ahead log is so large that it should not wait.

        With `durability = "interval"` this is the lazy flush: what is not synced by the next one may be lost.
        """
        config = self.environment.config
        is_lazy = config.durability is Durability.INTERVAL
        interval_ms = config.flush_interval_ms if is_lazy else config.checkpoint_interval_ms
        return (
            self.environment.durability.bytes_in_use >= config.wal_bytes_max
            or 1000 * (self._clock.monotonic_s() - self._checkpointed_s) >= interval_ms
        )

    def begin_checkpoint(self, *, clean: bool = False) -> CheckpointRun:
        """The first step of a checkpoint; see `checkpoints`. One at a time. `clean` is for the last one."""
        assert not self._is_checkpointing, "a checkpoint is in progress"
        self.environment.health.refuse_if_offline()
        number = self.environment.durability.next_number
        try:
            run = CheckpointRun(self.environment.files, self._recovered.mark, number, list(self), clean=clean)
        except IO_FAILURES as error:
            raise self.environment.write_error("checkpoint", CHECKPOINT, 0, error) from error
        self._is_checkpointing = True
        return run

    def finish_checkpoint(self, run: CheckpointRun, error: OSError | StorageOfflineError | None = None) -> int:
        """The last step: believe what `run.run()` did, or deal with what it raised. Returns the logs synced.

        Raises DiskFullError, after which the next checkpoint may succeed, or StorageOfflineError.
        """
        self._is_checkpointing = False
        if error is not None:
            raise self.environment.write_error("checkpoint", CHECKPOINT, 0, error) from error
        synced = run.finish()
        self.environment.probe.checkpoints += 1
        self._checkpointed_s = self._clock.monotonic_s()
        try:
            self.environment.durability.release(run.number)
        except IO_FAILURES as failure:
            raise self.environment.write_error("release", WAL_DIRECTORY, 0, failure) from failure
        return synced

    def checkpoint(self, *, clean: bool = False) -> int:
        """All three steps at once. Raises DiskFullError or StorageOfflineError."""
        run = self.begin_checkpoint(clean=clean)
        try:
            run.run()
        except IO_FAILURES as error:
            return self.finish_checkpoint(run, error)
        return self.finish_checkpoint(run)

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers that were silent for `producer_id_expiration_ms`. Returns how many."""
        before_ms = now_ms - self.environment.config.producer_id_expiration_ms
        return sum(log.expire_producers(before_ms) for log in self)

    def repair(self, partition: TopicPartition) -> Repaired:
        """Make a quarantined partition usable again, without what is bad in it. For an operator to decide.

        Raises PartitionNotFoundError, DiskFullError or StorageOfflineError.
        """
        log = self.get(partition)
        environment = self.environment
        environment.health.refuse_if_offline()
        quarantine = log.state.quarantine
        durable_offset = quarantine.durable_offset if quarantine else log.log_end_offset
        try:
            log.close()
            repaired = repair_segments(environment.files, partition.directory, durable_offset)
            number = environment.durability.skip_number()
            log.save_state(replace(log.state, quarantine=None, floor_number=number, floor=repaired.end))
            # Without a checkpoint or a snapshot newer than its floor, all is read from the segments.
            image = load_image(environment.files, partition, Checkpoint(0, {}, self._recovered.mark))
            assert image is not None
            recovered = LogRecovery(image, log.config, environment, RecoveryReport()).run()
        except IO_FAILURES as error:
            raise environment.write_error("repair", partition.directory, 0, error) from error
        recovered.state_version += 1
        self._logs[partition] = recovered
        return repaired

    def remove_files(self, now_ms: int, files_max: int = 16) -> list[str]:
        """Unlink up to `files_max` files whose time has come. Returns their paths. Raises StorageOfflineError."""
        try:
            return self.environment.remover.step(now_ms, files_max)
        except OSError as error:
            raise self.environment.write_error("unlink", "a file that was removed", 0, error) from error

    def close(self) -> None:
        """Commit, checkpoint and let go, so that the next open has nothing to recover.

        Raises DiskFullError or StorageOfflineError when that cannot be done; it lets go all the same.
        """
        try:
            self.commit()
            if self.environment.health.failure is None:
                self.checkpoint(clean=True)
                for log in self:
                    log.close()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go without writing anything, as a crash would: what is not durable yet is left to the next open."""
        self.environment.close()
        self._lock.release()

    def _settle(self) -> None:
        """What opening left to be done before anything is written. Raises DiskFullError or StorageOfflineError."""
        if self._recovered.needs_checkpoint:
            self.checkpoint()
        take_over_wal(self.environment, self._recovered.wal)
