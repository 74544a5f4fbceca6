"""Topics of a cluster: every change is a transaction of the metadata store, made by whichever broker is asked.

A transaction has the condition that nothing it was decided on has changed; otherwise it is decided again. A topic and
the registrations of its partitions are created in one transaction, or, with many partitions, in several: the topic is
hidden until the last one. The brokers create and delete the logs of their replicas when they see the registrations
(`replicas`).
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice

from logbrook.config import BrokerConfig
from logbrook.core.cluster.features import FeatureRange
from logbrook.core.cluster.image import ClusterImage, PartitionKey, encode_partition, partition_key
from logbrook.core.cluster.partition import InvalidReassignmentError, PartitionRegistration, new_partition
from logbrook.core.cluster.placement import ReplicaPlacement, place_replicas
from logbrook.core.metadata import TOPIC_PREFIX, ClusterMetadata, MetadataRecord, Topic, TopicNotFoundError
from logbrook.model import TopicPartition
from logbrook.model.event_log import event_logger
from logbrook.model.identifiers import BrokerId, LeaderEpoch
from logbrook.ports import Clock, Random
from logbrook.ports.metadata_store import Delete, MetadataStore, Operation, Put, StoreTransaction
from logbrook.protocol.error_codes import ErrorCode
from logbrook.server.cluster.metadata_follower import MetadataFollower
from logbrook.server.cluster.replicas import ReplicaManager
from logbrook.server.errors import RequestRefusedError
from logbrook.server.log_appender import LogAppender
from logbrook.server.topic_logs import TopicLogs
from logbrook.server.topics import Topics
from logbrook.storage.data_directories import AnyDirectory
from logbrook.storage.log import Log

DEFAULT_REPLICATION_FACTOR_MAX = 3
# etcd takes 128 operations per transaction.
_OPERATIONS_MAX = 100

_logger = event_logger(__name__)


class ClusterTopics(Topics):
    """The topics of a cluster, as one of its brokers sees and changes them."""

    def __init__(
        self,
        config: BrokerConfig,
        directory: AnyDirectory,
        appender: LogAppender,
        clock: Clock,
        random: Random,
        on_many_created: Callable[[], None],
        metadata_store: MetadataStore,
        image: ClusterImage,
        features: Mapping[str, FeatureRange],
    ) -> None:
        """`features` are the levels that this broker supports: a new cluster gets the last ones."""
        super().__init__(config, directory, appender, clock, random, on_many_created)
        self._features = features
        self.metadata = ClusterMetadata(BrokerId(config.node_id))
        self.metadata.store_history = self._store_history
        self.follower = MetadataFollower(metadata_store, self.metadata, self.security, image, self._on_change)
        self.replicas: ReplicaManager | None = None
        # The id of each topic as of the last change.
        self._ids: dict[str, bytes] = {}
        # Called with the names of topics that any broker has deleted.
        self.on_deleted: Callable[[Collection[str]], None] = lambda _: None
        self._metadata_store = metadata_store
        self._image = image

    @property
    def log_files(self) -> TopicLogs:
        return self._logs

    async def open(self) -> None:
        """Found the cluster if there is none; the metadata is being followed. Raises StoreUnavailableError."""
        if not self.metadata.cluster_id:
            await self._change(lambda: [] if self.metadata.cluster_id else self._found_cluster())

    async def stop(self) -> None:
        self._logs.begin_stop()
        await self._changes.finish()
        self._logs.stop()

    def _on_change(self, keys: Collection[str]) -> None:
        """Other brokers, or this one, have changed these keys of the store."""
        if self.replicas is not None:
            self.replicas.apply(keys)
        names = [key.removeprefix(TOPIC_PREFIX) for key in keys if key.startswith(TOPIC_PREFIX)]
        if deleted := self._find_deleted(names):
            self.on_deleted(deleted)
        if any(self.metadata.is_broker_setting(key) for key in keys):
            self._configure_logs(self.metadata.topics.values())

    def _find_deleted(self, names: Iterable[str]) -> list[str]:
        """Return the topics that are deleted, also those that were created again since: a reload skips changes."""
        deleted = []
        for name in names:
            topic, id_before = self.metadata.topics.get(name), self._ids.pop(name, None)
            if topic is not None:
                self._ids[name] = topic.id
            if topic is None or id_before not in (None, topic.id):
                deleted.append(name)
        return deleted

    def _found_cluster(self) -> list[MetadataRecord]:
        levels = {feature: levels.last for feature, levels in self._features.items()}
        return self.metadata.found_cluster(self._new_cluster_id(), levels)

    # Partitions that this broker leads

    def log(self, partition: TopicPartition) -> Log:
        """Raises TopicNotFoundError, PartitionNotFoundError or NotLeaderError."""
        self.check_partition(partition)
        assert self.replicas is not None
        return self.replicas.leading.leader_log(partition)

    def readable_log(self, partition: TopicPartition, *, may_follow: bool) -> tuple[Log, LeaderEpoch]:
        self.check_partition(partition)
        assert self.replicas is not None
        return self.replicas.leading.readable_log(partition, may_follow=may_follow)

    def leads(self, partition: TopicPartition) -> bool:
        assert self.replicas is not None
        return self.replicas.leading.leads(partition)

    def leader_epoch(self, partition: TopicPartition) -> LeaderEpoch:
        """Raises NotLeaderError."""
        assert self.replicas is not None
        return self.replicas.leading.leader_of(partition).leader_epoch

    # Changes

    def replication_factor(self, placement: ReplicaPlacement) -> int:
        if placement.assignments is not None:
            return len(placement.assignments[0])
        if placement.replication_factor >= 0:
            return placement.replication_factor
        return min(DEFAULT_REPLICATION_FACTOR_MAX, max(1, len(self.placement_racks())))

    async def refresh(self) -> None:
        await self.follower.catch_up()

    async def make_missing_logs(self) -> None:
        """The replica manager retries by itself."""

    async def _create(
        self, name: str, partition_count: int | None, settings: Mapping[str, str], placement: ReplicaPlacement
    ) -> Topic:
        topic_id = self._random.token(16)
        async with self._changes.one_at_a_time(name):
            registrations: list[PartitionRegistration] = []
            is_large = False

            def decide() -> list[MetadataRecord]:
                nonlocal registrations, is_large
                count = self.check_new(name, placement.count_of(partition_count), settings)
                registrations = self._place(count, placement, start=len(self._image.partitions))
                is_large = count >= _OPERATIONS_MAX
                return self.metadata.create_topic(name, count, settings, topic_id, is_creating=is_large)

            await self._change(decide, lambda: [] if is_large else _puts(topic_id, registrations))
            if is_large:
                await self._register(self.metadata.topics[name], registrations)
                await self._change(lambda: self._finish_create(name, topic_id))
            _logger.info("topic created", topic=name, partitions=len(registrations))
            return self.metadata.topic(name)

    def _finish_create(self, name: str, topic_id: bytes) -> list[MetadataRecord]:
        """Raises RequestRefusedError if the creation took so long that another broker has undone it."""
        topic = self.metadata.topic_with_any_state(topic_id)
        if topic is None or not topic.is_creating:
            raise _changed_meanwhile(name)
        return self.metadata.finish_create(name)

    async def _register(self, topic: Topic, registrations: Sequence[PartitionRegistration], first: int = 0) -> None:
        """Write many registrations in several transactions. Raises RequestRefusedError if the topic changes."""
        await self._commit_in_parts(topic.name, _puts(topic.id, registrations, first))

    async def _commit_in_parts(self, name: str, operations: Sequence[Operation]) -> None:
        conditions = self.follower.unmodified([f"{TOPIC_PREFIX}{name}"])
        for number in range(0, len(operations), _OPERATIONS_MAX):
            part = operations[number : number + _OPERATIONS_MAX]
            if not (await self._metadata_store.commit(StoreTransaction(conditions, part))).is_committed:
                raise _changed_meanwhile(name)

    async def _add_partitions(
        self, name: str, partition_count: int, *, only_check: bool, placement: ReplicaPlacement
    ) -> None:
        async with self._changes.one_at_a_time(name):
            registrations: list[PartitionRegistration] = []
            first = 0
            # The partitions whose registrations are written already.
            written = range(0)

            def decide() -> list[MetadataRecord]:
                nonlocal registrations, first
                records = self.metadata.add_partitions(name, partition_count)
                topic = self.metadata.topic(name)
                first = topic.partition_count
                if written and not (first == written.start and self._are_registered(topic, written)):
                    raise _changed_meanwhile(name)
                self._check_partitions_max(partition_count - first)
                factor = len(self._image.partitions[PartitionKey(topic.id, 0)].registration.replicas)
                placed = placement if placement.assignments is not None else ReplicaPlacement(factor)
                registrations = self._place(partition_count - first, placed, start=len(self._image.partitions))
                return records

            def last_registrations() -> list[Put]:
                return _puts(self.metadata.topic(name).id, registrations, first)[-_OPERATIONS_MAX:]

            await self.refresh()
            if not only_check:
                # Those of an earlier attempt may have later leader epochs.
                await self._remove_surplus(self.metadata.topic(name).id)
            decide()
            if not only_check and len(registrations) > _OPERATIONS_MAX:
                # Registrations beyond the topic's partition count have no effect yet.
                await self._register(self.metadata.topic(name), registrations[:-_OPERATIONS_MAX], first)
                written = range(first, partition_count - _OPERATIONS_MAX)
            await self._change(decide, last_registrations, only_check=only_check)

    def _are_registered(self, topic: Topic, numbers: Iterable[int]) -> bool:
        return all(PartitionKey(topic.id, number) in self._image.partitions for number in numbers)

    async def _delete(self, name: str, topic_id: bytes | None) -> None:
        async with self._changes.one_at_a_time(name):
            deletes: list[Delete] = []
            is_large = False

            def decide() -> list[MetadataRecord]:
                nonlocal topic_id, deletes, is_large
                topic = self.metadata.topic(name)
                if topic.id != (topic_id or topic.id):
                    raise TopicNotFoundError(name)
                topic_id = topic.id
                deletes = self._deletes(topic)
                is_large = len(deletes) >= _OPERATIONS_MAX
                records = self.metadata.begin_delete(name)
                return records if is_large else [(key, None) for key, _ in records]

            await self._change(decide, lambda: [] if is_large else deletes)
            if is_large:
                assert topic_id is not None
                topic = self.metadata.topic_with_any_state(topic_id)
                # None: another broker has finished the deletion.
                if topic is not None:
                    await self._finish_delete(topic)
            _logger.info("topic deleted", topic=name)

    def _deletes(self, topic: Topic) -> list[Delete]:
        return [Delete(partition_key(key)) for key in self._image.partitions if key.topic_id == topic.id]

    async def _finish_delete(self, topic: Topic) -> None:
        """Delete a topic that is marked as deleting. Another broker may do the same."""
        await self._commit_in_parts(topic.name, self._deletes(topic))

        def decide() -> list[MetadataRecord]:
            is_same = self.metadata.topic_with_any_state(topic.id) is not None
            return self.metadata.finish_delete(topic.name) if is_same else []

        await self._change(decide)

    async def remove_abandoned(self, topic: Topic) -> None:
        """Remove a topic whose creation or deletion was begun by a broker that has ended. Raises MetadataStoreError.

        Raises RequestRefusedError if that broker goes on.
        """
        async with self._changes.one_at_a_time(topic.name):
            if topic.is_creating:
                await self._change(
                    lambda: (
                        self.metadata.undo_create(topic.name) if self.metadata.topics.get(topic.name) == topic else []
                    )
                )
            remaining = self.metadata.topic_with_any_state(topic.id)
            if remaining is not None and remaining.is_deleting:
                await self._finish_delete(remaining)
                _logger.warning("abandoned topic removed", topic=topic.name)

    def surplus(self) -> dict[bytes, int]:
        """Return the number of surplus registrations by topic id: without a topic, or beyond its partition count.

        A growth that is under way has some, and one that its broker has not finished leaves them. A deletion leaves
        those that a growth writes at the same time.
        """
        if len(self._image.partitions) <= self.metadata.partition_count or not self._knows_all_topics():
            return {}
        return Counter(key.topic_id for key in self._image.partitions if self._is_surplus(key))

    def _knows_all_topics(self) -> bool:
        """False if a topic was written by a newer version, and cannot be read."""
        return self.follower.count_keys(TOPIC_PREFIX) == len(self.metadata.topics)

    def _is_surplus(self, key: PartitionKey) -> bool:
        topic = self.metadata.topic_with_any_state(key.topic_id)
        return topic is None or (not topic.is_hidden and key.partition >= topic.partition_count)

    async def remove_surplus(self, topic_id: bytes) -> None:
        """Remove the surplus registrations of a topic. A growth that is under way fails. Raises MetadataStoreError."""
        topic = self.metadata.topic_with_any_state(topic_id)
        async with self._changes.one_at_a_time("" if topic is None else topic.name):
            await self._remove_surplus(topic_id)

    async def _remove_surplus(self, topic_id: bytes) -> None:
        def find() -> list[Delete]:
            keys = (key for key in self._image.partitions if key.topic_id == topic_id and self._is_surplus(key))
            return [Delete(partition_key(key)) for key in islice(keys, _OPERATIONS_MAX)]

        def decide() -> list[MetadataRecord]:
            # The topic is written again, so that the growth which these belong to cannot be completed.
            topic = self.metadata.topic_with_any_state(topic_id)
            return [] if topic is None or not find() else self.metadata.configure_topic(topic.name, topic.settings)

        if find():
            _logger.warning("surplus partitions removed", topic_id=topic_id.hex())
        while find():
            if self.metadata.topic_with_any_state(topic_id) is None:
                # An id is never used again.
                await self.follower.wait_for((await self._metadata_store.commit(StoreTransaction([], find()))).revision)
            else:
                await self._change(decide, find)

    def _store_history(self) -> tuple[str, bool]:
        assert self.replicas is not None
        return self._metadata_store.history_id, self.replicas.membership.store_was_restored

    def placement_racks(self) -> dict[BrokerId, str]:
        """Return the brokers that may get further replicas, with their racks."""
        return {
            broker_id: broker.registration.rack
            for broker_id, broker in self._image.brokers.items()
            if not (broker.registration.is_stopping or self.metadata.is_cordoned(broker_id))
        }

    def _place(self, count: int, placement: ReplicaPlacement, start: int) -> list[PartitionRegistration]:
        """Raises InvalidReplicationFactorError or InvalidReassignmentError."""
        epochs = self._image.broker_epochs
        if placement.assignments is not None:
            assigned = [tuple(BrokerId(replica) for replica in replicas) for replicas in placement.assignments]
            for replicas in assigned:
                if not replicas or len(set(replicas)) != len(replicas) or not set(replicas) <= epochs.keys():
                    raise InvalidReassignmentError(f"{list(replicas)} is not a list of different live brokers")
                if cordoned := [replica for replica in replicas if self.metadata.is_cordoned(replica)]:
                    raise InvalidReassignmentError(f"broker {cordoned[0]} is cordoned")
        else:
            assigned = place_replicas(self.placement_racks(), count, self.replication_factor(placement), start)
        return [new_partition(replicas, epochs.keys(), epochs) for replicas in assigned]

    async def _change(
        self,
        decide: Callable[[], Sequence[MetadataRecord]],
        more: Callable[[], Iterable[Operation]] = lambda: (),
        *,
        only_check: bool = False,
    ) -> None:
        """Write the records of a decision and the operations that belong to it, in one transaction.

        If something has changed meanwhile, decide again. Raises MetadataStoreError, and what `decide` raises.
        """
        # The change is refused for what is in the store, not for what this broker does not know yet.
        await self.refresh()
        while True:
            async with self._writing:
                records = decide()
                if not records or only_check:
                    return
                operations: list[Operation] = [
                    Delete(key) if value is None else Put(key, value) for key, value in records
                ]
                conditions = self.follower.unmodified([key for key, _ in records])
                result = await self._metadata_store.commit(StoreTransaction(conditions, [*operations, *more()]))
                await self.follower.wait_for(result.revision)
                if result.is_committed:
                    return

    def _check_unused(self, name: str, numbers: Iterable[int]) -> None:
        """A log of an earlier topic with this name is replaced."""


def _changed_meanwhile(name: str) -> RequestRefusedError:
    return RequestRefusedError(ErrorCode.REQUEST_TIMED_OUT, f"topic {name!r} was changed meanwhile; try again")


def _puts(topic_id: bytes, registrations: Sequence[PartitionRegistration], first: int = 0) -> list[Put]:
    return [
        Put(partition_key(PartitionKey(topic_id, number)), encode_partition(registration))
        for number, registration in enumerate(registrations, first)
    ]
