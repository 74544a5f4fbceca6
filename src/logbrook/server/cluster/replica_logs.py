"""The logs of this broker's replicas: found in the data directory or created, deleted, and replaced by empty ones."""

import asyncio
from collections.abc import Awaitable, Callable

from logbrook.config import LogConfig
from logbrook.core.cluster.image import PartitionKey
from logbrook.core.metadata import Topic
from logbrook.model import LogbrookError, TopicPartition
from logbrook.model.event_log import event_logger
from logbrook.model.identifiers import Offset
from logbrook.ports import Clock
from logbrook.server.cluster.background import BackgroundTasks, pause
from logbrook.server.cluster.replica import Replica, ReplicaTable
from logbrook.server.topic_logs import TopicLogs
from logbrook.storage.data_directories import AnyDirectory
from logbrook.storage.log import Log

_CREATION_RETRY_S = 1.0

_logger = event_logger(__name__)


class ReplicaLogs:
    """One per broker, on the event loop. Logs are created and deleted off it, except for `replace`.

    `on_created` is called when a log was created, `on_failed` whenever a creation fails.
    """

    def __init__(
        self,
        directory: AnyDirectory,
        files: TopicLogs,
        clock: Clock,
        table: ReplicaTable,
        tasks: BackgroundTasks,
        config_of: Callable[[Topic], LogConfig],
        on_created: Callable[[PartitionKey], None],
        on_failed: Callable[[Replica], Awaitable[None]],
    ) -> None:
        self._directory = directory
        self._files = files
        self._clock = clock
        self._table = table
        self._tasks = tasks
        self._config_of = config_of
        self._on_created = on_created
        self._on_failed = on_failed
        self._saved_high_watermarks: dict[TopicPartition, Offset] = {}
        self._creating: set[PartitionKey] = set()
        self._deletions: dict[TopicPartition, asyncio.Task[None]] = {}

    def open(self) -> None:
        """Raises OSError."""
        self._saved_high_watermarks = self._directory.saved_high_watermarks()

    def find(self, replica: Replica, topic: Topic) -> None:
        """Give a replica its log of the data directory, unless that is being deleted, or begin to create one."""
        if replica.partition in self._directory and replica.partition not in self._deletions:
            log = self._directory.get(replica.partition)
            if log.state.topic_id in ("", topic.id.hex()):
                self._use(replica, log, topic)
                return
        if replica.key not in self._creating:
            self._creating.add(replica.key)
            self._tasks.spawn(self._create(replica, topic))

    def delete(self, log: Log) -> None:
        """Begin to delete a log. A replica of its partition that is assigned meanwhile waits for the end of it."""
        if log.partition not in self._deletions:
            self._deletions[log.partition] = self._tasks.spawn(self._delete(log))

    def delete_unknown(self) -> None:
        """Delete the logs of topics that were deleted, and of partitions that were moved, while this broker was down.

        The data directory belongs to this cluster, so that a topic id which the store does not have is a deleted topic.
        """
        for log in self._directory:
            if log.state.topic_id and log.partition not in self._table.by_partition:
                self.delete(log)

    def replace(self, replica: Replica, start_offset: Offset) -> None:
        """Remove all records of a follower's log and continue at another offset.

        Raises StorageError. The replica has no log then if the old one is deleted.
        """
        assert replica.log is not None
        log = replica.log
        try:
            if log.environment.health.failure is not None:
                self._directory.forget(log.partition)
            else:
                self._directory.delete(log.partition, self._clock.now_ms())
        finally:
            if log.is_deleted:
                replica.log = None
        new_log = self._directory.create(
            log.partition, log.config, topic_id=log.state.topic_id, start_offset=start_offset
        )
        new_log.replicate_from(start_offset)
        replica.log = new_log

    def _use(self, replica: Replica, log: Log, topic: Topic) -> None:
        log.config = self._config_of(topic)
        if not log.is_replica:
            # The saved one may be that of a log which was replaced since.
            saved = min(self._saved_high_watermarks.pop(replica.partition, log.log_start_offset), log.log_end_offset)
            log.replicate_from(Offset(max(saved, log.log_start_offset)))
        replica.log = log

    async def _create(self, replica: Replica, topic: Topic) -> None:
        try:
            while self._table.by_key.get(replica.key) is replica:
                try:
                    if (deletion := self._deletions.get(replica.partition)) is not None:
                        await asyncio.wait([deletion])
                        continue
                    if replica.partition in self._directory:
                        # A log of an earlier topic with this name, or one whose deletion has failed.
                        await self._remove(self._directory.get(replica.partition))
                    await self._files.create([replica.partition], self._config_of(topic), topic_id=topic.id.hex())
                    break
                except (LogbrookError, OSError) as error:
                    _logger.error("replica log creation failed", partition=replica.partition, error=error)
                    await self._on_failed(replica)
                    await pause(_CREATION_RETRY_S)
        finally:
            self._creating.discard(replica.key)
        if replica.partition in self._directory and replica.partition not in self._table.by_partition:
            # The replica was dropped meanwhile.
            self.delete(self._directory.get(replica.partition))
        self._on_created(replica.key)

    async def _delete(self, log: Log) -> None:
        try:
            if log.partition in self._directory and self._directory.get(log.partition) is log:
                await self._remove(log)
        except (LogbrookError, OSError) as error:
            _logger.error("replica log deletion failed", partition=log.partition, error=error)
        finally:
            del self._deletions[log.partition]

    async def _remove(self, log: Log) -> None:
        """Delete a log. One whose directory has failed is closed: the next start deletes it.

        Raises LogbrookError or OSError.
        """
        if log.environment.health.failure is not None:
            self._directory.forget(log.partition)
        else:
            await self._files.delete([log.partition])
