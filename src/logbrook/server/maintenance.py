"""Housekeeping: when the engine's steps are taken. Each is bounded, and between two of them requests get their turn.

Checkpoints always run, because the write-ahead log cannot grow without end. Retention, compaction, the removal of
files and the expiry of producers run by themselves with `maintenance.mode = "background"`, and otherwise when an
operator asks for `run_once`. What is slow, syncing, compacting and verifying, happens in a thread of its own.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from logbrook.config import CleanupPolicy, Maintenance, MaintenanceConfig
from logbrook.model import TopicPartition
from logbrook.ports import Clock
from logbrook.server.fetch_waits import FetchWaits
from logbrook.server.topics import METADATA, Topics
from logbrook.storage.compaction import Compaction, plan_compaction
from logbrook.storage.disk_errors import IO_FAILURES
from logbrook.storage.errors import CorruptLogError, OvertakenError, StorageError, StorageOfflineError
from logbrook.storage.findings import Checked, bad, good
from logbrook.storage.log import Log
from logbrook.storage.retention import apply_retention
from logbrook.storage.verification import FAILURES, LogCheck, Verified

T = TypeVar("T")
_FILES_AT_ONCE = 64
# What is read at once to verify it: the thread that reads it and the event loop share an interpreter.
_VERIFIED_AT_ONCE_BYTES = 256 * 1024
_CHECK_S_MAX = 0.5

_logger = logging.getLogger(__name__)


class Step(Enum):
    """What a round does to each log."""

    RETENTION = "retention"
    COMPACTION = "compaction"


@dataclass(frozen=True)
class Work:
    """What a round is to do. One that is thorough does all that can be done now, whatever the dirty ratio says."""

    steps: frozenset[Step] = frozenset(Step)
    # All of them, if it is None.
    partitions: frozenset[TopicPartition] | None = None
    thorough: bool = False
    # Whether to begin new segments first, so that all that is there can be compacted.
    closes_active: bool = False

    @property
    def is_everything(self) -> bool:
        return self == EVERYTHING


EVERYTHING = Work()


@dataclass
class Maintained:
    """What one round did, and to which logs it could not."""

    segments_removed: int = 0
    bytes_removed: int = 0
    logs_compacted: int = 0
    bytes_compacted: int = 0
    files_unlinked: int = 0
    producers_expired: int = 0
    errors: list[str] = field(default_factory=list)


class Housekeeper:
    """One per broker. It belongs to the event loop."""

    def __init__(
        self,
        config: MaintenanceConfig,
        loop: asyncio.AbstractEventLoop,
        topics: Topics,
        fetch_waits: FetchWaits,
        clock: Clock,
    ) -> None:
        self._config = config
        self._loop = loop
        self._topics = topics
        self._directory = topics.directory
        self._fetch_waits = fetch_waits
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="logbrook-maintenance")
        self._tasks: list[asyncio.Task[None]] = []
        self._round = asyncio.Lock()
        self._checkpointing = asyncio.Lock()
        self._stopping = asyncio.Event()

    def start(self) -> None:
        self._begin(self._checkpoints())
        if self._config.mode is Maintenance.BACKGROUND:
            self._begin(self._rounds())

    async def stop(self) -> None:
        """Finish the step that is under way, and take no more."""
        self._stopping.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # Somebody else may have asked for a round or a checkpoint.
        async with self._round, self._checkpointing:
            self._thread.shutdown()

    def logs(self) -> list[Log]:
        """All that rounds go over."""
        return [self._directory.get(METADATA), *self._topics.logs()]

    async def run_once(self, work: Work = EVERYTHING) -> Maintained:
        """One round over the logs. One that cannot be maintained does not keep the others from it."""
        done = Maintained()
        async with self._round:
            if work.is_everything:
                await self._make_missing_logs()
            for log in self._chosen(work):
                if self._stopping.is_set():
                    break
                if log.is_deleted:
                    # Since the round began. Its files are gone, or are another's of the same name.
                    continue
                try:
                    await self._maintain(log, work, done)
                except OvertakenError:
                    continue
                except StorageOfflineError:
                    break
                except StorageError as error:
                    _logger.error("maintenance of %s failed: %s", log.partition, error)
                    done.errors.append(str(error))
                except Exception:
                    # A bug, which must not keep the other logs from being looked after.
                    _logger.exception("maintenance of %s failed", log.partition)
                    done.errors.append(f"maintenance of {log.partition} failed; the broker's log says more")
                await asyncio.sleep(0)
            if work.is_everything:
                done.producers_expired = self._directory.expire_producers(self._clock.now_ms())
            await self._remove_files(done)
        if done != Maintained():
            _logger.info("maintenance: %s", done)
        return done

    def close_active(self, work: Work) -> None:
        """Begin new segments in the logs that are to be compacted. Raises DiskFullError or StorageOfflineError."""
        for log in self._chosen(work):
            if CleanupPolicy.COMPACT in log.config.cleanup_policy:
                log.roll()

    async def verify(self, log: Log, goes_on: Callable[[Verified], bool]) -> Checked | None:
        """Read a log, a little at a time; rounds wait until it is read. One that is bad is quarantined.

        `goes_on` is told how far it is, and says whether anybody still wants to know. None when nobody does, when the
        broker stops, and when the log was deleted.
        """
        async with self._round:
            if log.corruption is not None:
                return bad(log.partition, log.corruption)
            try:
                found = await self._read_all(log, goes_on)
            except StorageError as error:
                return None if log.is_deleted else bad(log.partition, error)
        return None if found is None else good(log.partition, found)

    async def _read_all(self, log: Log, goes_on: Callable[[Verified], bool]) -> Verified | None:
        """Raises StorageError."""
        check = LogCheck(log)
        try:
            while not self._stopping.is_set() and check.begin_segment():
                has_more = True
                while has_more:
                    has_more = await self._in_thread(lambda: check.read(_VERIFIED_AT_ONCE_BYTES))
                    if self._stopping.is_set() or not goes_on(check.progress):
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

    def _chosen(self, work: Work) -> list[Log]:
        return [log for log in self.logs() if work.partitions is None or log.partition in work.partitions]

    async def _make_missing_logs(self) -> None:
        try:
            await self._topics.make_missing_logs()
        except StorageError as error:
            _logger.error("the logs of a topic are still missing: %s", error)

    async def checkpoint(self) -> None:
        """Sync what is not synced. Raises StorageError."""
        async with self._checkpointing:
            run = self._directory.begin_checkpoint()
            error = None
            try:
                await self._in_thread(run.run)
            except IO_FAILURES as failure:
                error = failure
            self._directory.finish_checkpoint(run, error)

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        task.add_done_callback(_say_if_failed)
        self._tasks.append(task)

    async def _checkpoints(self) -> None:
        # What may be lost is the interval and the time until it is noticed that it is over.
        check_s = min(_CHECK_S_MAX, self._directory.environment.config.flush_interval_ms / 2000)
        while not await self._stopped_within(check_s):
            if self._directory.is_checkpoint_due():
                try:
                    await self.checkpoint()
                except StorageOfflineError:
                    return
                except StorageError as error:
                    _logger.error("a checkpoint failed: %s", error)

    async def _rounds(self) -> None:
        while not await self._stopped_within(self._config.interval_ms / 1000):
            await self.run_once()

    async def _maintain(self, log: Log, work: Work, done: Maintained) -> None:
        if Step.RETENTION in work.steps:
            while self._retain(log, done) and work.thorough and not self._stopping.is_set():
                await asyncio.sleep(0)
                if log.is_deleted:
                    return
        if Step.COMPACTION in work.steps and CleanupPolicy.COMPACT in log.config.cleanup_policy:
            compaction = plan_compaction(log, self._clock.now_ms(), force=work.thorough)
            if compaction is not None:
                await self._compact(log, compaction, done)

    def _retain(self, log: Log, done: Maintained) -> bool:
        """One step. Returns whether there may be more to remove."""
        start = log.log_start_offset
        retained = apply_retention(log, self._clock.now_ms())
        done.segments_removed += len(retained.removed)
        done.bytes_removed += retained.bytes_removed
        if log.log_start_offset != start:
            self._fetch_waits.changed(log.partition)
        return bool(retained.removed)

    async def _compact(self, log: Log, compaction: Compaction, done: Maintained) -> None:
        try:
            await self._in_thread(compaction.build_map)
            for group in compaction.groups():
                compaction.apply(await self._in_thread(lambda group=group: compaction.rewrite(group)))  # type: ignore[misc]
                if self._stopping.is_set():
                    return
        except CorruptLogError as error:
            if not log.is_deleted:
                log.quarantine(error)
            raise
        compacted = compaction.finish()
        done.logs_compacted += 1
        done.bytes_compacted += compacted.bytes_read - compacted.bytes_written

    async def _remove_files(self, done: Maintained) -> None:
        try:
            while removed := self._directory.remove_files(self._clock.now_ms(), _FILES_AT_ONCE):
                done.files_unlinked += len(removed)
                await asyncio.sleep(0)
        except StorageError as error:
            _logger.error("removing files failed: %s", error)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await self._loop.run_in_executor(self._thread, work)

    async def _stopped_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return False
        return True


def _say_if_failed(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _logger.critical("housekeeping has ended, which is a bug; restart the broker", exc_info=error)
