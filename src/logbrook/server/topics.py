"""Topics: the cluster metadata, durable in the metadata store, and the logs of their partitions.

The metadata record is always written first:

    create   append a record that marks the topic as creating, create its logs, append the final record, with which all
             its partitions become visible; a failure or the next start undoes a creation that was interrupted
    grow     append the topic's record, then create the new logs; the next start creates those that are missing
    delete   append a record that marks the topic as deleting, delete its logs, append the final record; the next start
             finishes a deletion that was interrupted

Records are written one after the other, under `_writing`. The logs are created and deleted in threads, outside of that
lock: a topic with many partitions does not delay the changes of others (`topic_changes`, `topic_logs`).

Logs without a topic in the metadata are neither served nor deleted.
"""

import asyncio
import base64
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

from logbrook.config import BrokerConfig, CleanupPolicy, LogConfig
from logbrook.config.kafka_settings import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    apply_overrides,
    check_compaction_lags,
    check_flush_settings,
)
from logbrook.core.cluster.placement import ANYWHERE, ReplicaPlacement
from logbrook.core.groups.errors import TooManyGroupsError
from logbrook.core.metadata import (
    ClusterMetadata,
    InvalidPartitionsError,
    MetadataRecord,
    Topic,
    TopicExistsError,
    TopicNotFoundError,
)
from logbrook.model import TopicPartition
from logbrook.model.event_log import event_logger
from logbrook.model.identifiers import LeaderEpoch, ProducerId
from logbrook.ports import Clock, Random
from logbrook.ports.metadata_store import Delete, Put, StoreTransaction
from logbrook.server.local_metadata_store import LocalMetadataStore
from logbrook.server.log_appender import LogAppender
from logbrook.server.security.state import SecurityState
from logbrook.server.topic_changes import ChangePendingError, TopicChanges
from logbrook.server.topic_logs import TopicLogs
from logbrook.storage.data_directories import AnyDirectory
from logbrook.storage.errors import DiskFullError, PartitionNotFoundError, StorageError
from logbrook.storage.log import Log

T = TypeVar("T")
SettingsChange: TypeAlias = Callable[[Mapping[str, str]], Mapping[str, str]]

METADATA = TopicPartition("__cluster_metadata", 0)
CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
AUDIT = "__audit"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, AUDIT, METADATA.topic})

_METADATA_CONFIG = LogConfig(segment_bytes=1 << 20, cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
_PRODUCER_IDS_PER_BLOCK = 1_000

_logger = event_logger(__name__)


class Topics:
    """The topics of one broker. Used on its event loop; call `open` once before anything else.

    `on_many_created` is that of `TopicLogs`.
    """

    def __init__(
        self,
        config: BrokerConfig,
        directory: AnyDirectory,
        appender: LogAppender,
        clock: Clock,
        random: Random,
        on_many_created: Callable[[], None],
    ) -> None:
        self.directory = directory
        self.metadata = ClusterMetadata()
        # Users, ACLs and quotas, whose entries are in the same store.
        self.security = SecurityState(config.security.state_bytes_max)
        self._config = config
        self._appender = appender
        self._clock = clock
        self._random = random
        # The log of a single node, from `open` on. A cluster has its own.
        self.store: LocalMetadataStore | None = None
        self._producer_ids = range(0)
        self._logs = TopicLogs(directory, clock, on_many_created)
        self._changes = TopicChanges()
        # Held from the validation of a change to its record: each is validated against the result of the previous one.
        self._writing = asyncio.Lock()
        self._reserving = asyncio.Lock()

    async def open(self) -> None:
        """Open and replay the metadata, begin a new leader epoch, and finish interrupted changes.

        Raises StorageError.
        """
        await self._load_metadata()
        self._configure_logs(self.metadata.topics.values())
        try:
            await self._begin_epoch()
            for topic in list(self.metadata.topics.values()):
                if topic.is_hidden:
                    await self._remove(topic)
            await self.make_missing_logs()
        except DiskFullError as error:
            if not self.metadata.cluster_id:
                raise
            _logger.error("writes refused at start", error=error, action="free disk space")
        ignored = [
            log.partition.directory for log in self.directory if log.partition != METADATA and not self._is_served(log)
        ]
        if ignored:
            _logger.warning("partition directories without topic ignored", partitions=ignored)

    def begin_stop(self) -> None:
        """Stop the changes in progress at their next step of creating or deleting logs."""
        self._logs.begin_stop()

    async def stop(self) -> None:
        """Wait for the changes in progress, which stop at their next step."""
        self._logs.begin_stop()
        await self._changes.finish()
        if self.store is not None:
            await self.store.close()
        self._logs.stop()

    async def run_change(self, change: Coroutine[Any, Any, T], timeout_ms: int | None = None) -> T:
        """Run `change` to its end, also if the caller is cancelled. Raises ChangePendingError after `timeout_ms`."""
        return await self._changes.run(change, timeout_ms)

    @property
    def defaults(self) -> LogConfig:
        """Topic defaults: broker config plus dynamic overrides."""
        return apply_overrides(self._config.log, self.metadata.dynamic_settings, BROKER_SETTINGS, is_stored=True)

    def is_internal(self, topic: str) -> bool:
        return topic in INTERNAL_TOPICS

    def check_partition(self, partition: TopicPartition) -> None:
        """Raises TopicNotFoundError or PartitionNotFoundError unless the partition exists."""
        topic = self.metadata.topic(partition.topic)
        if not 0 <= partition.partition < topic.partition_count:
            raise PartitionNotFoundError(partition)

    def log(self, partition: TopicPartition) -> Log:
        """Return the log of a partition that this broker leads. Raises TopicNotFoundError or PartitionNotFoundError."""
        topic = self.metadata.topic(partition.topic)
        if not 0 <= partition.partition < topic.partition_count:
            raise PartitionNotFoundError(partition)
        return self.directory.get(partition)

    def readable_log(self, partition: TopicPartition, *, may_follow: bool) -> tuple[Log, LeaderEpoch]:
        """Return a log to read from, and the partition's leader epoch; with `may_follow` also that of a follower.

        Raises as `log` does.
        """
        del may_follow
        return self.log(partition), self._appender.leader_epoch

    def leads(self, partition: TopicPartition) -> bool:
        """True if this broker leads the partition. A follower may lack records that its leader has."""
        del partition
        return True

    def leader_epoch(self, partition: TopicPartition) -> LeaderEpoch:
        """Return the leader epoch of a partition that this broker leads."""
        del partition
        return self._appender.leader_epoch

    def logs(self) -> list[Log]:
        """Return all logs that are served."""
        return [log for log in self.directory if self._is_served(log)]

    def config_of(self, topic: Topic) -> LogConfig:
        return apply_overrides(self.defaults, topic.settings, TOPIC_SETTINGS, is_stored=True)

    def replication_factor(self, placement: ReplicaPlacement) -> int:
        """Return the number of replicas of a new topic."""
        del placement
        return 1

    def check_new(self, name: str, partition_count: int | None, settings: Mapping[str, str]) -> int:
        """Validate a new topic as `create` does, raising the same errors, and return its number of partitions."""
        count = self._config.topics.partitions if partition_count is None else partition_count
        self._check_partitions_max(count)
        self.metadata.create_topic(name, count, settings, b"")
        self._check_unused(name, range(count))
        self._check_settings(settings)
        return count

    async def create(
        self,
        name: str,
        partition_count: int | None,
        settings: Mapping[str, str],
        placement: ReplicaPlacement = ANYWHERE,
        *,
        timeout_ms: int | None = None,
    ) -> Topic:
        """Create a topic; after `timeout_ms`, wait no longer and raise ChangePendingError.

        Raises InvalidTopicNameError, MetadataError, InvalidSettingError, StorageError or ChangePendingError, and in a
        cluster InvalidReplicationFactorError, InvalidReassignmentError or MetadataStoreError.
        """
        return await self._changes.run(self._create(name, partition_count, settings, placement), timeout_ms)

    async def _create(
        self, name: str, partition_count: int | None, settings: Mapping[str, str], placement: ReplicaPlacement
    ) -> Topic:
        del placement
        async with self._changes.one_at_a_time(name):
            async with self._writing:
                count = self.check_new(name, partition_count, settings)
                await self._write(self.metadata.create_topic(name, count, settings, self._random.token(16)))
            try:
                await self._make_logs(name)
                async with self._writing:
                    await self._write(self.metadata.finish_create(name))
            except StorageError:
                # If it cannot be undone now, then by a maintenance round or the next start.
                with suppress(StorageError, ChangePendingError):
                    await self._remove(self.metadata.topics[name])
                raise
            _logger.info("topic created", topic=name, partitions=count)
            return self.metadata.topic(name)

    async def add_partitions(
        self,
        name: str,
        partition_count: int,
        placement: ReplicaPlacement = ANYWHERE,
        *,
        only_check: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Raises MetadataError, StorageError or ChangePendingError, and in a cluster as `create` does."""
        change = self._add_partitions(name, partition_count, only_check=only_check, placement=placement)
        await self._changes.run(change, timeout_ms)

    async def _add_partitions(
        self, name: str, partition_count: int, *, only_check: bool, placement: ReplicaPlacement
    ) -> None:
        del placement
        async with self._changes.one_at_a_time(name):
            async with self._writing:
                records = self.metadata.add_partitions(name, partition_count)
                current_count = self.metadata.topic(name).partition_count
                self._check_partitions_max(partition_count - current_count)
                self._check_unused(name, range(current_count, partition_count))
                if only_check:
                    return
                await self._write(records)
            try:
                await self._make_logs(name)
            except DiskFullError as error:
                # The partitions exist from now on, and a maintenance round creates their logs when there is room.
                _logger.error("partition log creation failed", topic=name, error=error, action="free disk space")

    async def make_missing_logs(self) -> None:
        """Create logs that are missing and undo creations that failed, for example on a full disk.

        Topics that are being changed are skipped. Raises StorageError or ChangePendingError.
        """
        async with self._writing:
            if self._appender.refusal is not None:
                await self._begin_epoch()
        for topic in list(self.metadata.topics.values()):
            if not self._is_complete(topic) and not self._changes.is_changing(topic.name):
                await self._changes.run(self._complete(topic.name))

    async def _complete(self, name: str) -> None:
        async with self._changes.one_at_a_time(name):
            topic = self.metadata.topics.get(name)
            if topic is not None and topic.is_creating:
                await self._remove(topic)
            elif topic is not None and not topic.is_deleting:
                await self._make_logs(name)

    def _is_complete(self, topic: Topic) -> bool:
        return not topic.is_creating and all(partition in self.directory for partition in topic.partitions)

    async def refresh(self) -> None:
        """Learn of the changes that other brokers have made, for a decision on them. Raises StoreUnavailableError."""

    async def delete(self, name: str, topic_id: bytes | None = None) -> None:
        """Delete the topic, if it still has this id. Raises TopicNotFoundError, StorageError or ChangePendingError."""
        await self._changes.run(self._delete(name, topic_id))

    async def _delete(self, name: str, topic_id: bytes | None) -> None:
        async with self._changes.one_at_a_time(name):
            async with self._writing:
                if topic_id is not None and self.metadata.topic(name).id != topic_id:
                    raise TopicNotFoundError(name)
                await self._write(self.metadata.begin_delete(name))
            await self._remove(self.metadata.topics[name])
            _logger.info("topic deleted", topic=name)

    async def change_topic(self, name: str, change: SettingsChange, *, only_check: bool = False) -> None:
        """Replace a topic's settings with `change(settings)`.

        Raises TopicNotFoundError, InvalidSettingError, StorageError, and what `change` raises.
        """

        def decide() -> list[MetadataRecord]:
            settings = change(self.metadata.topic(name).settings)
            self._check_settings(settings)
            return self.metadata.configure_topic(name, settings)

        await self._change(decide, only_check=only_check)
        if not only_check:
            self._configure_logs([self.metadata.topic(name)])

    async def change_broker(self, change: SettingsChange, *, only_check: bool = False) -> None:
        """Replace the broker's own dynamic settings with `change(settings)`.

        Raises InvalidSettingError, StorageError, and what `change` raises.
        """

        def decide() -> list[MetadataRecord]:
            settings = change(self.metadata.broker_settings)
            self._check_dynamic_settings({**self.metadata.broker_defaults, **settings})
            return self.metadata.configure_broker(settings)

        await self._change(decide, only_check=only_check)
        if not only_check:
            self._configure_logs(self.metadata.topics.values())

    async def change_all_brokers(self, change: SettingsChange, *, only_check: bool = False) -> None:
        """Replace the dynamic settings of all brokers, which a broker's own override, with `change(settings)`.

        Raises InvalidSettingError, StorageError, and what `change` raises.
        """

        def decide() -> list[MetadataRecord]:
            settings = change(self.metadata.broker_defaults)
            self._check_dynamic_settings({**settings, **self.metadata.broker_settings})
            return self.metadata.configure_all_brokers(settings)

        await self._change(decide, only_check=only_check)
        if not only_check:
            self._configure_logs(self.metadata.topics.values())

    async def change_group(self, group_id: str, change: SettingsChange, *, only_check: bool = False) -> None:
        """Replace the settings of a group, which need not exist, with `change(settings)`.

        Raises TooManyGroupsError, StorageError, and what `change` raises.
        """

        def decide() -> list[MetadataRecord]:
            groups, groups_max = self.metadata.group_settings, self._config.groups.groups_max
            settings = change(groups.get(group_id, {}))
            if settings and group_id not in groups and len(groups) >= groups_max:
                raise TooManyGroupsError(group_id, "groups_max", groups_max)
            return self.metadata.configure_group(group_id, settings) if settings or group_id in groups else []

        await self._change(decide, only_check=only_check)

    async def change_security(self, decide: Callable[[], Sequence[MetadataRecord]]) -> None:
        """Write the records of a decision on users, ACLs or quotas; they are durable and applied on return.

        In a cluster `decide` is called again if another broker changed one of the entries. Raises StorageError,
        MetadataStoreError, and what `decide` raises.
        """
        await self._change(lambda: self.security.checked(decide()))

    async def new_producer_id(self) -> ProducerId:
        """Return a producer id that was never returned before. Raises StorageError."""
        while not self._producer_ids:
            await self.reserve_producer_ids()
        producer_id, self._producer_ids = self._producer_ids[0], self._producer_ids[1:]
        return ProducerId(producer_id)

    async def reserve_producer_ids(self) -> None:
        """Reserve a block of producer ids, unless there are some left. Raises StorageError."""
        async with self._reserving:
            if self._producer_ids:
                return
            first = 0

            def decide() -> list[MetadataRecord]:
                nonlocal first
                first = self.metadata.unassigned_producer_id
                return self.metadata.reserve_producer_ids(_PRODUCER_IDS_PER_BLOCK)

            await self._change(decide)
            self._producer_ids = range(first, first + _PRODUCER_IDS_PER_BLOCK)

    async def _change(self, decide: Callable[[], Sequence[MetadataRecord]], *, only_check: bool = False) -> None:
        """Write the records of a decision. Raises StorageError, and what `decide` raises."""
        async with self._writing:
            records = decide()
            if records and not only_check:
                await self._write(records)

    async def _begin_epoch(self) -> None:
        """Begin a new leader epoch, before any other write. Raises StorageError.

        Offsets that a crash lost are assigned again, and are distinguished by their leader epoch.
        """
        records = self.metadata.begin_epoch()
        if not self.metadata.cluster_id:
            records += self.metadata.found_cluster(self._new_cluster_id())
        self._appender.refusal = None
        try:
            await self._write(records)
        except DiskFullError as error:
            self._appender.refusal = error
            raise
        self._appender.leader_epoch = self.metadata.epoch

    def _new_cluster_id(self) -> str:
        return base64.urlsafe_b64encode(self._random.token(16)).rstrip(b"=").decode()

    def _check_dynamic_settings(self, settings: Mapping[str, str]) -> None:
        """Raises InvalidSettingError."""
        check_compaction_lags(apply_overrides(self._config.log, settings, BROKER_SETTINGS))
        check_flush_settings(settings, self._config.storage)

    def _is_served(self, log: Log) -> bool:
        topic = self.metadata.topics.get(log.partition.topic)
        return topic is not None and not topic.is_hidden and log.partition.partition < topic.partition_count

    def _check_partitions_max(self, new_partitions: int) -> None:
        partitions_max = self._config.topics.partitions_max
        if self.metadata.partition_count + new_partitions > partitions_max:
            raise InvalidPartitionsError(
                f"{new_partitions} new partitions would exceed topics.partitions_max ({partitions_max})"
            )

    def _check_settings(self, settings: Mapping[str, str]) -> None:
        """Validate the settings of a topic. Raises InvalidSettingError."""
        check_compaction_lags(apply_overrides(self.defaults, settings, TOPIC_SETTINGS))
        check_flush_settings(settings, self._config.storage)

    def _check_unused(self, name: str, numbers: Iterable[int]) -> None:
        """Reject new partitions for which there is an old log without a topic: they would start with its records."""
        if any(TopicPartition(name, number) in self.directory for number in numbers):
            raise TopicExistsError(name)

    async def _load_metadata(self) -> None:
        """Raises StorageError."""
        if METADATA not in self.directory:
            self.directory.members[0].create(METADATA, _METADATA_CONFIG)
        log = self.directory.get(METADATA)
        log.config = _METADATA_CONFIG
        self.store = LocalMetadataStore(log, self._appender, self._clock)
        self.store.open()
        for key, entry in (await self.store.read_all()).entries.items():
            try:
                self._replay(key, entry.value)
            except ValueError as error:
                raise StorageError(f"invalid record in {METADATA}: {error}") from error

    async def _write(self, records: Sequence[MetadataRecord]) -> None:
        """Write the records to the store, then apply them to the metadata. Raises StorageError."""
        operations = [Delete(key) if value is None else Put(key, value) for key, value in records]
        assert self.store is not None, "open comes first"
        await self.store.commit(StoreTransaction((), operations))
        for key, value in records:
            self._replay(key, value)

    def _replay(self, key: str, value: bytes | None) -> None:
        """Raises ValueError."""
        if self.security.has_key(key):
            self.security.replay(key, value)
        else:
            self.metadata.replay(key, value)

    async def _make_logs(self, name: str) -> None:
        """Create the missing logs of a topic. Raises StorageError or ChangePendingError."""
        topic = self.metadata.topics[name]
        config = self.config_of(topic)
        await self._logs.create(topic.partitions, config)
        topic = self.metadata.topics[name]
        if self.config_of(topic) != config:
            # The settings were changed meanwhile.
            self._configure_logs([topic])

    async def _remove(self, topic: Topic) -> None:
        """Delete the logs of a hidden topic, then the topic. Raises StorageError or ChangePendingError."""
        await self._logs.delete(topic.partitions)
        async with self._writing:
            await self._write(self.metadata.finish_delete(topic.name))

    def _configure_logs(self, topics: Iterable[Topic]) -> None:
        for topic in topics:
            config = self.config_of(topic)
            for partition in topic.partitions:
                if partition in self.directory:
                    self.directory.get(partition).config = config
