"""A data directory: the logs of its partitions, their shared write-ahead log, and its maintenance steps.

    directory = LogDirectory.open(files, storage_config, clock=clock, now_ms=clock.now_ms())
    log = directory.create(TopicPartition("orders", 0), LogConfig())
    append = log.append(batch, now_ms=clock.now_ms())
    directory.commit()             # or a Committer, in a thread of its own
    append.result()

There are no background tasks here. Commit, checkpoint, retention, compaction and file removal are calls that do one
bounded step and return what they did. The caller schedules them and passes the time.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from logbrook.config import Durability, LogConfig, StorageConfig
from logbrook.model import TopicPartition, check_partition
from logbrook.model.identifiers import Offset
from logbrook.ports import Clock, Files, Lock, Random, SystemRandom
from logbrook.storage.active_segment import ActiveSegment
from logbrook.storage.checkpoint import CheckpointRun
from logbrook.storage.closed_segment import ClosedSegmentCache
from logbrook.storage.directory_recovery import (
    ConfigOf,
    RecoveredDirectory,
    recover_directory,
    reuse_wal_files,
)
from logbrook.storage.durable_files import IO_FAILURES, sync_directory
from logbrook.storage.environment import Environment, Health
from logbrook.storage.errors import (
    DirectoryLockedError,
    DiskFullError,
    PartitionExistsError,
    PartitionNotFoundError,
    StorageOfflineError,
)
from logbrook.storage.leader_epochs import LeaderEpochs
from logbrook.storage.log import Log
from logbrook.storage.log_lifecycle import LogCreation, LogDeletion, RetiredLog
from logbrook.storage.open_files import FileReader, OpenFiles
from logbrook.storage.partition_files import (
    Checkpoint,
    PartitionState,
    RecoveryPoint,
    SavedHighWatermark,
    read_high_watermarks,
    write_high_watermarks,
)
from logbrook.storage.partition_image import load_image
from logbrook.storage.paths import CHECKPOINT, HIGH_WATERMARKS, LOCK, WAL_DIRECTORY, deleted_directory
from logbrook.storage.probe import StorageProbe
from logbrook.storage.producer_bound import ProducerBound
from logbrook.storage.producer_state import ProducerStateTable
from logbrook.storage.recovery import LogRecovery, RecoveryReport
from logbrook.storage.repair import RepairResult, repair_segments
from logbrook.storage.segment_files import FileRemover


class LogDirectory:
    """An open data directory, created by `open`. Owned by one thread, except for `commit` and `CheckpointRun.run`."""

    def __init__(self, environment: Environment, lock: Lock, clock: Clock, recovered: RecoveredDirectory) -> None:
        self.environment = environment
        self.report = recovered.report
        self._lock = lock
        self._clock = clock
        self._recovered = recovered
        self._logs = recovered.logs
        # Partitions that are being created or deleted.
        self._changing: set[TopicPartition] = set()
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
        shared: Environment | None = None,
    ) -> "LogDirectory":
        """Open and lock the directory and recover its logs; `report` on the result describes the recovery.

        `shared` is the environment of another directory whose reader and probe it uses, too.
        Raises DirectoryLockedError, CorruptFileError when the checkpoint cannot be read, or OSError.
        """
        try:
            lock = files.lock(LOCK)
        except BlockingIOError as error:
            raise DirectoryLockedError from error
        health = Health()
        probe, reader = (StorageProbe(), FileReader()) if shared is None else (shared.probe, shared.reader)
        environment = Environment(
            files,
            config,
            probe,
            health,
            reader,
            OpenFiles(files, config.open_files_max, health.fail, reader),
            ClosedSegmentCache(files, config.open_segments_max, probe, reader),
            FileRemover(files, probe),
            ProducerBound(config.producer_ids_total_max),
        )
        try:
            recovered = recover_directory(environment, config_of, clock, random or SystemRandom(), now_ms)
            directory = cls(environment, lock, clock, recovered)
            try:
                directory._finish_opening()
            except DiskFullError as error:
                # Reads work; each write retries this first.
                environment.health.hold(error, directory._finish_opening)
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

    @property
    def mark(self) -> bytes:
        """A random value that identifies the directory."""
        return self._recovered.mark

    @property
    def members(self) -> "tuple[LogDirectory, ...]":
        """All data directories of the broker: this one (see `data_directories`)."""
        return (self,)

    def placed(self, partitions: Sequence[TopicPartition]) -> "Sequence[tuple[LogDirectory, Sequence[TopicPartition]]]":
        """Return the directories for new logs, or of existing ones: this one."""
        return [(self, partitions)]

    by_member = placed

    def create(
        self,
        partition: TopicPartition,
        config: LogConfig,
        *,
        topic_id: str = "",
        start_offset: Offset = Offset(0),
    ) -> Log:
        """Create an empty log durably. Raises as `create_all` does."""
        (log,) = self.create_all([partition], config, topic_id=topic_id, start_offset=start_offset)
        return log

    def create_all(
        self,
        partitions: Sequence[TopicPartition],
        config: LogConfig,
        *,
        topic_id: str = "",
        start_offset: Offset = Offset(0),
    ) -> Sequence[Log]:
        """Create empty logs durably, all of them or none.

        `start_offset` is that of a replica whose leader has no earlier records. Raises PartitionExistsError,
        InvalidTopicNameError, InvalidPartitionError, DiskFullError or StorageOfflineError.
        """
        creation = self.begin_create(partitions, config, topic_id=topic_id, start_offset=start_offset)
        try:
            creation.run()
        except IO_FAILURES as error:
            return self.finish_create(creation, error)
        return self.finish_create(creation)

    def begin_create(
        self,
        partitions: Sequence[TopicPartition],
        config: LogConfig,
        *,
        topic_id: str = "",
        start_offset: Offset = Offset(0),
    ) -> LogCreation:
        """Begin to create empty logs (see `log_lifecycle`). Raises as `create_all` does."""
        environment = self.environment
        environment.health.check_writable()
        for partition in partitions:
            check_partition(partition)
            if partition in self._logs or partition in self._changing:
                raise PartitionExistsError(partition)
        logs = [self._new_log(partition, config, topic_id, start_offset) for partition in partitions]
        self._changing.update(partitions)
        return LogCreation(environment.files, logs, [environment.durability.skip_number() for _ in logs])

    def finish_create(self, creation: LogCreation, error: OSError | StorageOfflineError | None = None) -> Sequence[Log]:
        """Serve the new logs, or handle the `error` of `creation.run()`.

        Raises DiskFullError or StorageOfflineError.
        """
        self._changing.difference_update(log.partition for log in creation.logs)
        for retired in creation.retired:
            self.environment.remover.add_directory(retired, 0)
        if error is not None:
            raise self.environment.write_error("create", creation.logs[0].partition.directory, 0, error) from error
        self._logs.update((log.partition, log) for log in creation.logs)
        return creation.logs

    def _new_log(self, partition: TopicPartition, config: LogConfig, topic_id: str, start_offset: Offset) -> Log:
        environment = self.environment
        beginning = RecoveryPoint(start_offset, start_offset, 0)
        state = PartitionState(
            log_start_offset=start_offset,
            floor_number=environment.durability.skip_number(),
            floor=beginning,
            cleaned_offset=start_offset,
            topic_id=topic_id,
        )
        return Log(
            partition,
            config,
            environment,
            state,
            closed=[],
            active=ActiveSegment(
                partition, start_offset, environment.open_files, config.index_interval_bytes, environment.probe
            ),
            log_end_offset=start_offset,
            epochs=LeaderEpochs(),
            producers=ProducerStateTable(partition, environment.config.producer_ids_max),
            recovery_point=beginning,
        )

    def delete(self, partition: TopicPartition, now_ms: int) -> None:
        """Delete a log.

        `remove_files` unlinks its files later. Raises PartitionNotFoundError or StorageOfflineError.
        """
        deletion = self.begin_delete([partition], now_ms)
        try:
            deletion.run()
        except IO_FAILURES as error:
            self.finish_delete(deletion, error)
        else:
            self.finish_delete(deletion)

    def forget(self, partition: TopicPartition) -> None:
        """Close the log of a directory that has failed, without a change on disk. Raises PartitionNotFoundError."""
        log = self.get(partition)
        log.mark_deleted()
        del self._logs[partition]

    def begin_delete(self, partitions: Sequence[TopicPartition], now_ms: int) -> LogDeletion:
        """Begin to delete logs (see `log_lifecycle`), which are not readable from here on. Raises as `delete` does."""
        logs = [self.get(partition) for partition in partitions]
        self.environment.health.check_not_failed()
        retired: list[RetiredLog] = []
        for log in logs:
            log.mark_deleted()
            del self._logs[log.partition]
            name = deleted_directory(self.environment.durability.skip_number())
            retired.append(RetiredLog(log, name, now_ms + log.config.file_delete_delay_ms))
        self._changing.update(partitions)
        return LogDeletion(self.environment.files, retired)

    def finish_delete(self, deletion: LogDeletion, error: OSError | StorageOfflineError | None = None) -> None:
        """Queue the files for removal, or handle the `error` of `deletion.run()`. Raises StorageOfflineError."""
        self._changing.difference_update(log.partition for log, _, _ in deletion.logs)
        for _, retired, due_ms in deletion.logs[: deletion.renamed]:
            self.environment.remover.add_directory(retired, due_ms)
        if error is not None:
            raise self.environment.write_error("delete", deletion.logs[0].log.partition.directory, 0, error) from error

    def commit(self) -> int:
        """Make all appends so far durable, according to `durability`. Returns the number of appends completed."""
        return self.environment.durability.commit()

    def is_checkpoint_due(self) -> bool:
        """Return True if the checkpoint interval has passed or the write-ahead log has reached its size limit.

        With `durability = "interval"` the checkpoint is the periodic flush.
        """
        config = self.environment.config
        is_lazy = config.durability is Durability.INTERVAL
        interval_ms = config.flush_interval_ms if is_lazy else config.checkpoint_interval_ms
        return (
            self.environment.durability.bytes_in_use >= config.wal_bytes_max
            or 1000 * (self._clock.monotonic_s() - self._checkpointed_s) >= interval_ms
        )

    def begin_checkpoint(self, *, clean: bool = False) -> CheckpointRun:
        """Begin a checkpoint (see `checkpoint`); only one may be in progress.

        `clean` marks that of a clean shutdown.
        """
        assert not self._is_checkpointing, "a checkpoint is in progress"
        self.environment.health.check_writable()
        number = self.environment.durability.next_number
        with self.environment.writing("checkpoint", CHECKPOINT):
            run = CheckpointRun(self.environment.files, self._recovered.mark, number, list(self), clean=clean)
        self._is_checkpointing = True
        return run

    def finish_checkpoint(self, run: CheckpointRun, error: OSError | StorageOfflineError | None = None) -> int:
        """Apply the result of `run.run()`, or handle its `error`. Returns the number of logs synced.

        Raises DiskFullError, after which a later checkpoint may succeed, or StorageOfflineError.
        """
        self._is_checkpointing = False
        if error is not None:
            raise self.environment.write_error("checkpoint", CHECKPOINT, 0, error) from error
        synced = run.finish()
        self.environment.probe.checkpoints += 1
        self._checkpointed_s = self._clock.monotonic_s()
        with self.environment.writing("release", WAL_DIRECTORY):
            self.environment.durability.release(run.number)
        return synced

    def checkpoint(self, *, clean: bool = False) -> int:
        """Run all steps of a checkpoint. Raises DiskFullError or StorageOfflineError."""
        run = self.begin_checkpoint(clean=clean)
        try:
            run.run()
        except IO_FAILURES as error:
            return self.finish_checkpoint(run, error)
        return self.finish_checkpoint(run)

    def save_high_watermarks(self) -> None:
        """Save the high watermarks of all replicas, for the next start. Raises DiskFullError or StorageOfflineError.

        On a full disk the earlier ones are removed: after a power loss that cut a log, they would make uncommitted
        records visible that have been appended since.
        """
        self.environment.health.check_writable()
        saved = {
            log.partition.directory: SavedHighWatermark.of(log.high_watermark, log.state)
            for log in self
            if log.is_replica
        }
        files = self.environment.files
        try:
            with self.environment.writing("write", HIGH_WATERMARKS):
                write_high_watermarks(files, saved)
        except DiskFullError:
            with self.environment.writing("remove", HIGH_WATERMARKS), suppress(FileNotFoundError):
                files.unlink(HIGH_WATERMARKS)
                sync_directory(files, "")
            raise

    def saved_high_watermarks(self) -> dict[TopicPartition, Offset]:
        """Return the high watermarks of the logs that were saved since their last truncation, at most their log end.

        Raises OSError.
        """
        saved = read_high_watermarks(self.environment.files)
        return {
            log.partition: min(known.offset, log.log_end_offset)
            for log in self
            if (known := saved.get(log.partition.directory)) is not None and known.is_of(log.state)
        }

    def expire_producers(self, now_ms: int, logs: Iterable[Log] | None = None) -> int:
        """Expire producers that have been idle for `producer_id_expiration_ms`, in these logs or all.

        Returns their number.
        """
        before_ms = now_ms - self.environment.config.producer_id_expiration_ms
        return sum(log.expire_producers(before_ms) for log in (self if logs is None else logs))

    def repair(self, partition: TopicPartition) -> RepairResult:
        """End a partition's quarantine by dropping its damaged bytes. An operator's decision; see `repair`.

        Raises PartitionNotFoundError, DiskFullError or StorageOfflineError.
        """
        log = self.get(partition)
        environment = self.environment
        environment.health.check_writable()
        quarantine = log.state.quarantine
        durable_offset = quarantine.durable_offset if quarantine else log.log_end_offset
        with environment.writing("repair", partition.directory):
            log.close()
            repaired = repair_segments(environment.files, partition.directory, durable_offset)
            number = environment.durability.skip_number()
            log.save_state(replace(log.state, quarantine=None, floor_number=number, floor=repaired.end))
            # With an empty checkpoint and a new floor, recovery reads everything from the segments.
            image = load_image(environment.files, partition, Checkpoint(0, {}, self._recovered.mark))
            assert image is not None
            recovered = LogRecovery(image, log.config, environment, RecoveryReport()).run()
        recovered.state_version += 1
        self._logs[partition] = recovered
        environment.producer_bound.admit(len(recovered.producers))
        environment.on_log_changed(partition)
        return repaired

    def remove_files(self, now_ms: int, files_max: int = 16) -> list[str]:
        """Unlink up to `files_max` files that are due. Returns their paths. Raises StorageOfflineError."""
        with self.environment.writing("unlink", "a retired file"):
            return self.environment.remover.step(now_ms, files_max)

    def close(self) -> None:
        """Commit, take a clean checkpoint and close all files, so that the next open has nothing to recover.

        Raises DiskFullError or StorageOfflineError; the directory is closed nevertheless.
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
        """Close all files and release the lock without writing. The next open recovers, as after a crash."""
        self.environment.close()
        self._lock.release()

    def _finish_opening(self) -> None:
        """Complete the steps of opening that need disk space. Raises DiskFullError or StorageOfflineError."""
        if self._recovered.needs_checkpoint:
            self.checkpoint()
        reuse_wal_files(self.environment, self._recovered.wal)
