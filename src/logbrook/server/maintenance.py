"""Scheduling of checkpoints, retention, compaction, file removal, producer expiry and verification.

With `maintenance.scrub_interval_ms` all logs are also read and checked, slowly (`scrub`).

Each step is bounded, and requests are served between two of them. Checkpoints always run: without them the write-ahead
log would grow without bound. With `maintenance.mode = "background"` a round of the other steps runs every
`maintenance.interval_ms`; otherwise only when an operator requests one. Compaction takes synced records only: a round
that meets a log which is due otherwise begins with a checkpoint. Syncing, compacting and verifying are slow and run in
one separate thread, large compactions in a process (`compaction_worker`); the other steps read only what is in the page
cache (`cold_reads`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from enum import Enum
from itertools import islice
from typing import TypeVar

from logbrook.config import CleanupPolicy, MaintenanceConfig, MaintenanceMode
from logbrook.model import TopicPartition
from logbrook.model.event_log import event_logger
from logbrook.model.identifiers import Offset
from logbrook.ports import Clock
from logbrook.server.cold_reads import ColdReads
from logbrook.server.compaction_worker import CompactionWorker
from logbrook.server.fetch_purgatory import FetchPurgatory
from logbrook.server.scrub import Scrubber
from logbrook.server.topic_changes import ChangePendingError
from logbrook.server.topics import METADATA, Topics
from logbrook.storage.compaction import Cleaners, Compaction, plan_compaction, waits_for_checkpoint
from logbrook.storage.durable_files import IO_FAILURES
from logbrook.storage.errors import (
    CleanerFailedError,
    CorruptLogError,
    LogModifiedError,
    StorageError,
    StorageOfflineError,
)
from logbrook.storage.log import Log
from logbrook.storage.log_directory import LogDirectory
from logbrook.storage.retention import apply_retention
from logbrook.storage.verification import FAILURES, LogCheckResult, LogVerification, VerificationTotals

T = TypeVar("T")
_FILES_PER_STEP = 64
_LOGS_PER_STEP = 500
# Small, because the thread that verifies and the event loop share the interpreter.
_VERIFY_STEP_BYTES = 256 * 1024
_CHECKPOINT_POLL_S_MAX = 0.5

_logger = event_logger(__name__)


class MaintenanceStep(Enum):
    """A step of a round, applied to each log."""

    RETENTION = "retention"
    COMPACTION = "compaction"


@dataclass(frozen=True)
class MaintenanceWork:
    """The scope of a round. A thorough round does all that is possible now, regardless of the dirty ratio."""

    steps: frozenset[MaintenanceStep] = frozenset(MaintenanceStep)
    # None: all partitions.
    partitions: frozenset[TopicPartition] | None = None
    thorough: bool = False
    # Roll the active segments of compacted logs first, so that they can be compacted too.
    rolls_active_segments: bool = False


EVERYTHING = MaintenanceWork()


@dataclass
class MaintenanceResult:
    """The outcome of one round. `errors` has a message for each log that could not be maintained."""

    segments_removed: int = 0
    bytes_removed: int = 0
    logs_compacted: int = 0
    bytes_compacted: int = 0
    files_unlinked: int = 0
    producers_expired: int = 0
    errors: list[str] = field(default_factory=list)


class MaintenanceRunner:
    """Runs maintenance for one broker. Owned by it and used on its event loop."""

    def __init__(
        self,
        config: MaintenanceConfig,
        loop: asyncio.AbstractEventLoop,
        topics: Topics,
        fetch_purgatory: FetchPurgatory,
        cold_reads: ColdReads,
        clock: Clock,
    ) -> None:
        self._config = config
        self._loop = loop
        self._cold_reads = cold_reads
        self._topics = topics
        self._directory = topics.directory
        self._fetch_purgatory = fetch_purgatory
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="logbrook-maintenance")
        self._tasks: list[asyncio.Task[None]] = []
        self._round = asyncio.Lock()
        self._checkpointing = asyncio.Lock()
        self._stopping = asyncio.Event()
        self._compaction_worker = CompactionWorker()
        files = topics.directory.environment.files
        self.scrubber = Scrubber(config.scrub_interval_ms, files, clock, self)

    def start(self) -> None:
        self._begin(self._checkpoints())
        if self._config.mode is MaintenanceMode.BACKGROUND:
            self._begin(self._rounds())
            if self._config.scrub_interval_ms:
                self._begin(self.scrubber.run())

    async def stop(self) -> None:
        """Finish the current step, and start no other."""
        self._stopping.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # An operator may have requested a round or a checkpoint that is still running.
        async with self._round, self._checkpointing:
            await self._stop_worker(self._compaction_worker.stop)
            self._thread.shutdown()

    def logs(self) -> list[Log]:
        """Return all logs that are maintained: those of topics, and `__cluster_metadata`."""
        own = [self._directory.get(METADATA)] if METADATA in self._directory else []
        return [*own, *self._topics.logs()]

    async def run_once(self, work: MaintenanceWork = EVERYTHING) -> MaintenanceResult:
        """Run one round. The failure of one log does not stop the round."""
        result = MaintenanceResult()
        async with self._round:
            if work == EVERYTHING:
                await self._make_missing_logs()
            has_checkpointed = False
            for log in self._selected(work):
                # The storage may go offline, and logs may be deleted, while the round runs.
                if self._stopping.is_set():
                    break
                if not log.is_deleted and log.environment.health.failure is None:
                    has_checkpointed = has_checkpointed or await self._checkpoint_before(log, work)
                    await self._try_maintain(log, work, result)
                await asyncio.sleep(0)
            if work == EVERYTHING:
                result.producers_expired = await self._expire_producers()
            await self._remove_files(result)
            await self._end_compactions()
        if result != MaintenanceResult():
            _logger.info("maintenance round finished", **asdict(result))
        return result

    def roll_active_segments(self, work: MaintenanceWork) -> None:
        """Roll the logs that are to be compacted. Raises DiskFullError or StorageOfflineError."""
        for log in self._selected(work):
            if CleanupPolicy.COMPACT in log.config.cleanup_policy:
                log.roll()

    async def verify(self, log: Log, on_progress: Callable[[VerificationTotals], bool]) -> LogCheckResult | None:
        """Read and check all of a log, step by step, while rounds wait. A corrupt log is quarantined.

        `on_progress` gets the totals after each step and returns False to stop. Returns None if it did, if the broker
        stops, and if the log was deleted.
        """
        async with self._round:
            if log.corruption is not None:
                return LogCheckResult.failed(log.partition, log.corruption)
            try:
                totals = await self._verify_unchanged(log, on_progress)
            except StorageError as error:
                return None if log.is_deleted else LogCheckResult.failed(log.partition, error)
        return None if totals is None else LogCheckResult.passed(log.partition, totals)

    async def _verify_unchanged(
        self, log: Log, on_progress: Callable[[VerificationTotals], bool]
    ) -> VerificationTotals | None:
        """Verify a log, and again if it was truncated meanwhile. Raises StorageError."""
        while True:
            try:
                return await self._verify(log, on_progress)
            except LogModifiedError:
                if log.is_deleted or log.state.truncate_to is not None:
                    raise

    async def _verify(self, log: Log, on_progress: Callable[[VerificationTotals], bool]) -> VerificationTotals | None:
        """Raises StorageError."""
        check = LogVerification(log)
        try:
            while not self._stopping.is_set() and await self._read(log, check.begin_segment):
                has_more = True
                while has_more:
                    has_more = await self.in_thread(lambda: check.read(_VERIFY_STEP_BYTES))
                    if self._stopping.is_set() or not on_progress(check.progress):
                        return None
                check.end_segment()
            if self._stopping.is_set():
                return None
            check.end()
        except FAILURES as error:
            check.fail(error)
        finally:
            check.close()
        return check.verified

    async def verify_segment(self, log: Log, segment: Offset, on_read: Callable[[int], Awaitable[bool]]) -> None:
        """Read and check a segment, if it still exists, while rounds wait. A corrupt log is quarantined.

        `on_read` gets the length of each step and returns False to stop. Raises StorageError.
        """
        async with self._round:
            segments = [kept for kept in log.segments if kept.base_offset == segment]
            if log.is_deleted or log.corruption is not None or not segments:
                return
            check = LogVerification(log, segments)
            try:
                if await self._read(log, check.begin_segment):
                    has_more, read = True, 0
                    while has_more:
                        has_more = await self.in_thread(lambda: check.read(_VERIFY_STEP_BYTES))
                        if not await on_read(check.progress.bytes - read):
                            return
                        read = check.progress.bytes
                    check.end_segment()
            except FAILURES as error:
                check.fail(error)
            finally:
                check.close()

    def _selected(self, work: MaintenanceWork) -> list[Log]:
        return [log for log in self.logs() if work.partitions is None or log.partition in work.partitions]

    async def _expire_producers(self) -> int:
        expired = 0
        remaining = iter(self._directory)
        while logs := list(islice(remaining, _LOGS_PER_STEP)):
            expired += self._directory.expire_producers(self._clock.now_ms(), logs)
            await asyncio.sleep(0)
        return expired

    async def _make_missing_logs(self) -> None:
        try:
            await self._topics.make_missing_logs()
        except ChangePendingError:
            # The broker is stopping.
            return
        except StorageError as error:
            _logger.error("partition log creation failed", error=error)

    async def checkpoint(self, member: LogDirectory | None = None) -> None:
        """Sync all logs, of one data directory or of all, and truncate the write-ahead log. Raises StorageError."""
        members = [member] if member is not None else self._directory.members
        async with self._checkpointing:
            for directory in members:
                run = directory.begin_checkpoint()
                error = None
                try:
                    await self.in_thread(run.run)
                except IO_FAILURES as failure:
                    error = failure
                directory.finish_checkpoint(run, error)

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        task.add_done_callback(_log_failure)
        self._tasks.append(task)

    async def _checkpoints(self) -> None:
        # With durability = interval, a crash may lose the flush interval plus this polling interval.
        poll_s = min(_CHECKPOINT_POLL_S_MAX, self._directory.environment.config.flush_interval_ms / 2000)
        members = list(self._directory.members)
        while members and not await self.stopped_within(poll_s):
            for member in [member for member in members if member.is_checkpoint_due()]:
                try:
                    await self.checkpoint(member)
                except StorageOfflineError:
                    members.remove(member)
                except StorageError as error:
                    _logger.error("checkpoint failed", error=error)

    async def _rounds(self) -> None:
        while not await self.stopped_within(self._config.interval_ms / 1000):
            await self.run_once()

    async def _checkpoint_before(self, log: Log, work: MaintenanceWork) -> bool:
        """Run a checkpoint if the log cannot be compacted without. Return True if it ran."""
        if MaintenanceStep.COMPACTION not in work.steps:
            return False
        now_ms = self._clock.now_ms()
        try:
            if not await self._read(log, lambda: waits_for_checkpoint(log, now_ms, force=work.thorough)):
                return False
            await self.checkpoint(self._directory.by_member([log.partition])[0][0])
        except LogModifiedError:
            return False
        except StorageError as error:
            _logger.error("checkpoint failed", error=error)
        return True

    async def _try_maintain(self, log: Log, work: MaintenanceWork, result: MaintenanceResult) -> None:
        try:
            await self._maintain(log, work, result)
        except (LogModifiedError, StorageOfflineError):
            # The log was deleted or truncated meanwhile, or the round is about to end.
            return
        except StorageError as error:
            _logger.error("partition maintenance failed", partition=log.partition, error=error)
            result.errors.append(str(error))
        except Exception:
            # A bug, which must not keep the other logs from being maintained.
            _logger.exception("partition maintenance failed", partition=log.partition)
            result.errors.append(f"maintenance of {log.partition} failed; see the broker's log")

    async def _maintain(self, log: Log, work: MaintenanceWork, result: MaintenanceResult) -> None:
        """Raises StorageError."""
        if MaintenanceStep.RETENTION in work.steps:
            while await self._retain(log, result) and work.thorough and not self._stopping.is_set():
                await asyncio.sleep(0)
                if log.is_deleted:
                    return
        if MaintenanceStep.COMPACTION in work.steps and CleanupPolicy.COMPACT in log.config.cleanup_policy:
            cleaners = self._compaction_worker.cleaner if self._config.compaction_worker else None
            try:
                await self._plan_and_compact(log, work, cleaners, result)
            except CleanerFailedError as error:
                if log.is_deleted:
                    raise LogModifiedError(log.partition) from error
                log.environment.probe.compaction_worker_failures += 1
                _logger.warning("compaction worker failed", partition=log.partition, error=error)
                await self._plan_and_compact(log, work, None, result)

    async def _plan_and_compact(
        self, log: Log, work: MaintenanceWork, cleaners: Cleaners | None, result: MaintenanceResult
    ) -> None:
        """Raises StorageError."""
        now_ms = self._clock.now_ms()
        compaction = await self._read(log, lambda: plan_compaction(log, now_ms, force=work.thorough, cleaners=cleaners))
        if compaction is not None:
            await self._compact(log, compaction, result)

    async def _retain(self, log: Log, result: MaintenanceResult) -> bool:
        """Apply retention once. Return True if there may be more segments to remove."""
        start = log.log_start_offset
        retained = await self._read(log, lambda: apply_retention(log, self._clock.now_ms()))
        result.segments_removed += len(retained.removed)
        result.bytes_removed += retained.bytes_removed
        if log.log_start_offset != start:
            self._fetch_purgatory.changed(log.partition)
        return bool(retained.removed)

    async def _compact(self, log: Log, compaction: Compaction, result: MaintenanceResult) -> None:
        try:
            await self.in_thread(compaction.build_map)
            for group in compaction.groups():
                compaction.apply(await self.in_thread(lambda group=group: compaction.rewrite(group)))  # type: ignore[misc]
                if self._stopping.is_set():
                    return
        except CorruptLogError as error:
            if not log.is_deleted:
                log.quarantine(error)
            raise
        compacted = compaction.finish()
        result.logs_compacted += 1
        result.bytes_compacted += compacted.bytes_read - compacted.bytes_written

    async def _end_compactions(self) -> None:
        """Stop the worker process unless it is likely to be needed in the next round."""
        worker = self._compaction_worker
        is_background = self._config.mode is MaintenanceMode.BACKGROUND
        await self._stop_worker(worker.stop_unless_used if is_background else worker.stop)

    async def _stop_worker(self, stop: Callable[[], None]) -> None:
        if self._compaction_worker.pid is not None:
            await self.in_thread(stop)

    async def _remove_files(self, result: MaintenanceResult) -> None:
        try:
            # In the thread: unlinking a large file takes long.
            while removed := await self.in_thread(self._remove_some_files):
                result.files_unlinked += len(removed)
        except StorageError as error:
            _logger.error("file removal failed", error=error)

    def _remove_some_files(self) -> list[str]:
        return self._directory.remove_files(self._clock.now_ms(), _FILES_PER_STEP)

    async def _read(self, log: Log, operation: Callable[[], T]) -> T:
        """Return the result of `operation`, which reads `log`, without waiting for the disk on the event loop.

        Raises as it does, or LogModifiedError if the log was deleted meanwhile.
        """

        def checked() -> T:
            if log.is_deleted:
                raise LogModifiedError(log.partition)
            return operation()

        return await self._cold_reads.read(checked)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run something slow in the thread of the maintenance."""
        return await self._loop.run_in_executor(self._thread, work)

    async def stopped_within(self, seconds: float) -> bool:
        """Wait, but no longer than until the broker stops. Returns True if it does."""
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return False
        return True


def _log_failure(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _logger.critical("maintenance task failed", action="restart the broker", exc_info=error)
