"""Topics: the cluster's metadata, durable in a log of its own, and the logs of the partitions it speaks of.

The metadata comes first. A topic is created by its record and then given its logs; one whose logs are missing after a
crash is given them at the next start. A topic is deleted by a record that says so, then by its logs going, then by a
last record; one that was interrupted is finished at the next start. Logs that the metadata does not know are left
alone, and never served: nothing is deleted that was not told to be.
"""

import asyncio
import base64
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from logbrook.config import BrokerConfig, CleanupPolicy, LogConfig
from logbrook.config.kafka_settings import broker_settings, check_promises, override, topic_settings
from logbrook.core.metadata import (
    ClusterMetadata,
    InvalidPartitionsError,
    MetadataRecord,
    Topic,
    TopicExistsError,
    TopicNotFoundError,
)
from logbrook.model import TopicPartition
from logbrook.ports import Clock, Random
from logbrook.records.batch import iter_headers
from logbrook.records.reader import iter_records
from logbrook.server.appends import Appends
from logbrook.storage.errors import DiskFullError, PartitionNotFoundError, StorageError
from logbrook.storage.log import Log
from logbrook.storage.log_directory import LogDirectory
from logbrook.storage.verification import verify

SettingsChange: TypeAlias = Callable[[Mapping[str, str]], Mapping[str, str]]

METADATA = TopicPartition("__cluster_metadata", 0)
CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, METADATA.topic})

_METADATA_CONFIG = LogConfig(segment_bytes=1 << 20, cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
_PRODUCER_IDS_AT_ONCE = 1_000
# While many logs are being made, others get a turn after so many.
_LOGS_AT_ONCE = 32

_logger = logging.getLogger(__name__)


class Topics:
    """Made by `open`. All of it runs on the event loop."""

    def __init__(
        self, config: BrokerConfig, directory: LogDirectory, appends: Appends, clock: Clock, random: Random
    ) -> None:
        self.directory = directory
        self.metadata = ClusterMetadata()
        self._config = config
        self._appends = appends
        self._clock = clock
        self._random = random
        self._producer_ids = range(0)
        # Changes are made one after another: each is decided on what the one before it left.
        self._changing = asyncio.Lock()

    async def open(self) -> None:
        """Read the metadata, begin a new epoch, and finish what a crash interrupted. Raises StorageError."""
        if METADATA not in self.directory:
            self.directory.create(METADATA, _METADATA_CONFIG)
        log = self._metadata_log
        log.config = _METADATA_CONFIG
        if log.corruption is not None:
            raise log.corruption
        # A flipped bit may well be good JSON.
        verify(log)
        for part in log.read_range(log.log_start_offset, log.high_watermark):
            for position, _ in iter_headers(part.data):
                for record in iter_records(part.data, position, bytes_max=part.length):
                    assert record.key is not None
                    self._replay(record.key, record.value)
        self._configure_logs(self.metadata.topics.values())
        try:
            await self._begin_epoch()
            for topic in list(self.metadata.topics.values()):
                if topic.is_deleting:
                    await self._remove(topic)
            await self.make_missing_logs()
        except DiskFullError as error:
            if not self.metadata.cluster_id:
                raise
            _logger.error("%s. Until there is room, records can be read and not written", error)
        unknown = [
            log.partition.directory for log in self.directory if log.partition != METADATA and not self._has(log)
        ]
        if unknown:
            _logger.warning("logs that the metadata does not know are left alone: %s", ", ".join(unknown))

    @property
    def defaults(self) -> LogConfig:
        """What a topic has that sets nothing."""
        return override(self._config.log, self.metadata.broker_settings, broker_settings())

    def is_internal(self, topic: str) -> bool:
        return topic in INTERNAL_TOPICS

    def log(self, partition: TopicPartition) -> Log:
        """The log of a partition that clients may see. Raises TopicNotFoundError or PartitionNotFoundError."""
        topic = self.metadata.topic(partition.topic)
        if not 0 <= partition.partition < topic.partition_count:
            raise PartitionNotFoundError(partition)
        return self.directory.get(partition)

    def logs(self) -> list[Log]:
        """All logs that are served."""
        return [log for log in self.directory if self._has(log)]

    def config_of(self, topic: Topic) -> LogConfig:
        return override(self.defaults, topic.settings, topic_settings())

    def check_new(self, name: str, partition_count: int | None, settings: Mapping[str, str]) -> int:
        """How many partitions the topic would get. Raises what `create` would, and changes nothing."""
        count = self._config.topics.partitions if partition_count is None else partition_count
        self._check_room(count)
        self.metadata.create_topic(name, count, settings, b"")
        self._check_unused(name, range(count))
        override(self.defaults, settings, topic_settings())
        check_promises(settings, self._config.storage)
        return count

    async def create(self, name: str, partition_count: int | None, settings: Mapping[str, str]) -> Topic:
        """Raises InvalidTopicNameError, MetadataError, InvalidSettingError or StorageError."""
        async with self._changing:
            count = self.check_new(name, partition_count, settings)
            await self._write(self.metadata.create_topic(name, count, settings, self._random.token(16)))
            topic = self.metadata.topic(name)
            await self._make_logs(topic)
            _logger.info("created topic %s with %d partitions", name, count)
            return topic

    async def add_partitions(self, name: str, partition_count: int, *, only_check: bool = False) -> None:
        """Raises MetadataError or StorageError."""
        async with self._changing:
            records = self.metadata.add_partitions(name, partition_count)
            known = self.metadata.topic(name).partition_count
            self._check_room(partition_count - known)
            self._check_unused(name, range(known, partition_count))
            if not only_check:
                await self._write(records)
                await self._make_logs(self.metadata.topic(name))

    async def make_missing_logs(self) -> None:
        """Give topics the logs for which there was no room when they were created. Raises StorageError."""
        async with self._changing:
            if self._appends.refusal is not None:
                await self._begin_epoch()
            for topic in list(self.metadata.topics.values()):
                if not topic.is_deleting:
                    await self._make_logs(topic)

    async def delete(self, name: str, topic_id: bytes | None = None) -> None:
        """Delete the topic, if its id is still the one that is meant. Raises TopicNotFoundError or StorageError."""
        async with self._changing:
            if topic_id is not None and self.metadata.topic(name).id != topic_id:
                raise TopicNotFoundError(name)
            await self._write(self.metadata.begin_delete(name))
            await self._remove(self.metadata.topics[name])
            _logger.info("deleted topic %s", name)

    async def configure_topic(self, name: str, settings: Mapping[str, str], *, only_check: bool = False) -> None:
        """Give a topic these settings and no others. Raises TopicNotFoundError, InvalidSettingError or StorageError."""
        await self.change_topic(name, lambda _settings: settings, only_check=only_check)

    async def change_topic(self, name: str, change: SettingsChange, *, only_check: bool = False) -> None:
        """Give a topic what `change` makes of its settings. Raises as `configure_topic` does, and what `change`
        does."""
        async with self._changing:
            settings = change(self.metadata.topic(name).settings)
            override(self.defaults, settings, topic_settings())
            check_promises(settings, self._config.storage)
            records = self.metadata.configure_topic(name, settings)
            if not only_check:
                await self._write(records)
                self._configure_logs([self.metadata.topic(name)])

    async def configure_broker(self, settings: Mapping[str, str], *, only_check: bool = False) -> None:
        """Give the broker these dynamic settings and no others. Raises InvalidSettingError or StorageError."""
        await self.change_broker(lambda _settings: settings, only_check=only_check)

    async def change_broker(self, change: SettingsChange, *, only_check: bool = False) -> None:
        """Give the broker what `change` makes of its dynamic settings. Raises as `configure_broker` does, and what
        `change` does."""
        async with self._changing:
            settings = change(self.metadata.broker_settings)
            override(self._config.log, settings, broker_settings())
            if not only_check:
                await self._write(self.metadata.configure_broker(settings))
                self._configure_logs(self.metadata.topics.values())

    async def new_producer_id(self) -> int:
        """An id that was never given out before. Raises StorageError."""
        if not self._producer_ids:
            async with self._changing:
                if not self._producer_ids:
                    first = self.metadata.next_producer_id
                    await self._write(self.metadata.reserve_producer_ids(_PRODUCER_IDS_AT_ONCE))
                    self._producer_ids = range(first, self.metadata.next_producer_id)
        given, self._producer_ids = self._producer_ids[0], self._producer_ids[1:]
        return given

    async def _begin_epoch(self) -> None:
        """Nothing is written before it: offsets that are given out again are told apart by it. Raises StorageError."""
        records = self.metadata.begin_epoch()
        if not self.metadata.cluster_id:
            cluster_id = base64.urlsafe_b64encode(self._random.token(16)).rstrip(b"=").decode()
            records += self.metadata.found_cluster(cluster_id)
        self._appends.refusal = None
        try:
            await self._write(records)
        except DiskFullError as error:
            self._appends.refusal = error
            raise
        self._appends.leader_epoch = self.metadata.epoch

    @property
    def _metadata_log(self) -> Log:
        return self.directory.get(METADATA)

    def _has(self, log: Log) -> bool:
        topic = self.metadata.topics.get(log.partition.topic)
        return topic is not None and not topic.is_deleting and log.partition.partition < topic.partition_count

    def _check_room(self, more: int) -> None:
        partitions_max = self._config.topics.partitions_max
        if self.metadata.partition_count + more > partitions_max:
            raise InvalidPartitionsError(
                f"{more} more partitions would be above topics.partitions_max, {partitions_max}"
            )

    def _check_unused(self, name: str, numbers: Iterable[int]) -> None:
        """New partitions do not begin with what is in logs that nobody knows."""
        if any(TopicPartition(name, number) in self.directory for number in numbers):
            raise TopicExistsError(name)

    def _replay(self, key: bytes, value: bytes | None) -> None:
        try:
            self.metadata.replay(key, value)
        except ValueError as error:
            raise StorageError(f"the metadata cannot be read: {error}") from error

    async def _write(self, records: Sequence[MetadataRecord]) -> None:
        """Append, and believe it once it is durable."""
        await self._appends.append_records(self._metadata_log, records)
        for key, value in records:
            self.metadata.replay(key, value)

    async def _make_logs(self, topic: Topic) -> None:
        missing = [partition for partition in topic.partitions if partition not in self.directory]
        if not missing:
            return
        config = self.config_of(topic)
        for start in range(0, len(missing), _LOGS_AT_ONCE):
            self.directory.create_all(missing[start : start + _LOGS_AT_ONCE], config)
            await asyncio.sleep(0)

    async def _remove(self, topic: Topic) -> None:
        now_ms = self._clock.now_ms()
        for partition in topic.partitions:
            if partition in self.directory:
                self.directory.delete(partition, now_ms)
        await self._write(self.metadata.finish_delete(topic.name))

    def _configure_logs(self, topics: Iterable[Topic]) -> None:
        for topic in topics:
            config = self.config_of(topic)
            for partition in topic.partitions:
                if partition in self.directory:
                    self.directory.get(partition).config = config
