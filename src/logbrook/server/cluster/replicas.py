"""The partitions of which this broker has a replica: its role in each, and their logs.

A change of the metadata gives a partition another role: leader (`leading`), follower of a broker (`replica_fetcher`),
or none while there is no leader. The logs of new replicas are created, and those of replicas that were moved away or
whose topic was deleted are deleted (`replica_logs`).
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

from logbrook.config import LogConfig
from logbrook.core.cluster.image import (
    BROKER_PREFIX,
    PARTITION_PREFIX,
    ClusterImage,
    ImagePartition,
    PartitionKey,
    parse_partition_key,
)
from logbrook.core.cluster.partition import PartitionRegistration, step_aside, step_down
from logbrook.core.metadata import TOPIC_PREFIX, ClusterMetadata, Topic
from logbrook.core.replication.follower import PartitionFollower
from logbrook.model import TopicPartition
from logbrook.model.event_log import event_logger
from logbrook.model.identifiers import BrokerId, Offset
from logbrook.ports import Clock
from logbrook.ports.metadata_store import MetadataStore, MetadataStoreError, Revision, StoreTransaction
from logbrook.server.cluster.background import BackgroundTasks, pause
from logbrook.server.cluster.elector import Elector
from logbrook.server.cluster.leading import LeadingReplicas
from logbrook.server.cluster.liveness import BrokerLiveness
from logbrook.server.cluster.membership import Membership
from logbrook.server.cluster.metadata_follower import MetadataFollower
from logbrook.server.cluster.peer_connection import PeerConnection
from logbrook.server.cluster.probe import ClusterProbe
from logbrook.server.cluster.replica import FetcherKey, Replica, ReplicaTable
from logbrook.server.cluster.replica_fetcher import ReplicaFetcher
from logbrook.server.cluster.replica_logs import ReplicaLogs
from logbrook.server.cluster.replica_repair import ReplicaRepair
from logbrook.server.cluster.throttle import ReplicationThrottle
from logbrook.server.fetch_purgatory import FetchPurgatory
from logbrook.server.topic_logs import TopicLogs
from logbrook.storage.data_directories import AnyDirectory
from logbrook.storage.errors import StorageError
from logbrook.storage.log import Log

_TICK_S = 0.2
_HIGH_WATERMARKS_S = 5.0
_RETRY_S = 0.2
_HAND_OVER_S_MAX = 5.0
# Leaders drop a broker that stops from the ISR as soon as they see it.
_LEAVE_S_MAX = 1.0
_LEAVE_POLL_S = 0.005
_WITHDRAWAL_S = 1.0
_LEAVE_AGAIN_S = 1.0
_UNCLEAN_SETTING = "unclean.leader.election.enable"

_logger = event_logger(__name__)


class ReplicaManager:
    """One per broker, on the event loop. `fetch_purgatory` has the waiting fetches of consumers."""

    _tick_timer: asyncio.TimerHandle | None = None
    _is_open = False
    _is_leaving = False

    def __init__(
        self,
        broker_id: BrokerId,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        store: MetadataStore,
        metadata: ClusterMetadata,
        image: ClusterImage,
        metadata_follower: MetadataFollower,
        membership: Membership,
        directory: AnyDirectory,
        logs: TopicLogs,
        liveness: BrokerLiveness,
        fetcher_of: Callable[["ReplicaManager", FetcherKey], ReplicaFetcher],
        config_of: Callable[[Topic], LogConfig],
        fetch_purgatory: FetchPurgatory,
        probe: ClusterProbe,
        *,
        lag_ms_max: int,
    ) -> None:
        self.broker_id = broker_id
        self.image = image
        self.membership = membership
        self.directory = directory
        self.probe = probe
        self._metadata_follower = metadata_follower
        self._loop = loop
        self._clock = clock
        self._metadata = metadata
        self._fetcher_of = fetcher_of
        self._config_of = config_of
        self._fetches = fetch_purgatory
        self._table = ReplicaTable()
        self._fetchers: dict[FetcherKey, ReplicaFetcher] = {}
        self._tasks = BackgroundTasks(loop, "the replica manager")
        self._logs = ReplicaLogs(
            directory, logs, clock, self._table, self._tasks, config_of, self._on_log_created, self._on_no_log
        )
        self._saved_s = clock.monotonic_s()
        self.liveness = liveness
        self.liveness.on_gone = self._on_brokers_gone
        self.elector = Elector(
            broker_id,
            loop,
            clock,
            store,
            image,
            metadata_follower,
            membership,
            self.liveness,
            probe,
            self._table,
            self._min_insync_of,
            self._may_be_unclean,
        )
        self.leading = LeadingReplicas(
            broker_id,
            loop,
            clock,
            image,
            membership,
            self.elector,
            self.liveness,
            self._table,
            fetch_purgatory,
            ReplicationThrottle(metadata, broker_id, clock, "leader"),
            probe,
            lag_ms_max=lag_ms_max,
        )
        self.repair = ReplicaRepair(broker_id, loop, clock, image, self.elector, self._table, directory, self._rebuild)

    @property
    def count(self) -> int:
        """The number of replicas on this broker."""
        return len(self._table.by_key)

    @property
    def metadata_revision(self) -> Revision:
        """The revision of the metadata store up to which changes are applied."""
        return self._metadata_follower.revision

    # Start and stop

    def open(self) -> None:
        """Take the roles of the metadata that is loaded: this broker is registered. Raises OSError."""
        self._logs.open()
        self._is_open = True
        self.apply_all()
        # A log that has lost its end by a power loss may get other records there. They must not count as committed.
        self.save_high_watermarks()
        # The registration may have been removed before this broker followed it.
        self._on_brokers_changed()
        self.elector.start()
        self._tick_timer = self._loop.call_later(_TICK_S, self._tick)

    async def hand_over_all(self) -> None:
        """Move the leadership of all partitions to other in-sync replicas, for a controlled shutdown.

        This broker must be marked as stopping. Returns when all are moved that can be, and when other leaders have
        dropped this broker from the ISR, so that no write waits for it; or after a time.
        """
        self.elector.end_elections()
        until_s = self._clock.monotonic_s() + _HAND_OVER_S_MAX
        while self._clock.monotonic_s() < until_s:
            changes = list(self.leading.hand_overs())
            if not changes:
                break
            if not await self.elector.resign(changes):
                await pause(_RETRY_S)
        until_s = min(until_s, self._clock.monotonic_s() + _LEAVE_S_MAX)
        while self._is_awaited() and self._clock.monotonic_s() < until_s:
            await pause(_LEAVE_POLL_S)

    def _is_awaited(self) -> bool:
        """True if another leader waits for this broker: it is in the ISR."""
        registrations = (self.image.partitions[key].registration for key in self._table.by_key)
        return any(
            self.broker_id in registration.isr and registration.leader in self.liveness
            for registration in registrations
        )

    async def withdraw(self) -> None:
        """Hand over every partition that another in-sync replica can lead, as long as this broker runs.

        Its data directory takes no more writes. It is marked as stopping, so that other leaders drop it from the ISR.
        It does not leave by itself: a leader that has just died, and lost its disk, would leave no complete copy.
        """
        self.elector.end_elections()
        while True:
            try:
                await self.membership.begin_stop()
                await self.elector.resign(list(self.leading.hand_overs()))
            except MetadataStoreError as error:
                _logger.warning("broker not withdrawn", broker_id=self.broker_id, error=error)
            await pause(_WITHDRAWAL_S)

    async def stop(self) -> None:
        """Stop fetching and fail the appends that wait."""
        if self._tick_timer is not None:
            self._tick_timer.cancel()
        await self.repair.stop()
        await self.elector.stop()
        await self.liveness.stop()
        await self._tasks.stop()
        fetchers = [fetcher.task for fetcher in self._fetchers.values()]
        for fetcher in self._fetchers.values():
            fetcher.stop()
        if fetchers:
            await asyncio.wait(fetchers)
        await self.leading.stop()

    def save_high_watermarks(self) -> None:
        """Save the high watermarks for the next start. They are a hint, so an error has no consequence."""
        with suppress(StorageError):
            self.directory.save_high_watermarks()

    # Roles

    def apply_all(self) -> None:
        """Take the role of every partition anew: this broker has another broker epoch, or has loaded everything."""
        for key in dict.fromkeys([*self._table.by_key, *self.image.partitions]):
            self._apply(key)
        # A store that was restored from an older backup may lack topics: then their logs are kept.
        if not self.membership.store_was_restored:
            self._logs.delete_unknown()
        self.elector.elect_soon()

    def apply(self, keys: Iterable[str]) -> None:
        """Take the roles that changed with these keys of the store. No effect before `open`.

        Until its registration, the broker may have another cluster's directory, or the id of a live node; and a log
        that is created hides that the one of a lost data directory is missing.
        """
        if not self._is_open:
            return
        partitions: dict[PartitionKey, None] = {}
        has_brokers = False
        for key in keys:
            if key.startswith(PARTITION_PREFIX):
                partitions[parse_partition_key(key)] = None
            elif key.startswith(TOPIC_PREFIX):
                topic = self._metadata.topics.get(key.removeprefix(TOPIC_PREFIX))
                if topic is not None:
                    self._configure(topic)
                    partitions.update((PartitionKey(topic.id, number), None) for number in range(topic.partition_count))
            elif key.startswith(BROKER_PREFIX):
                has_brokers = True
        # Replicas of deleted topics first: a new one may have the name of an old one.
        for partition in sorted(partitions, key=lambda partition: partition in self.image.partitions):
            self._apply(partition)
        if has_brokers:
            self._on_brokers_changed()
        if has_brokers or partitions:
            self.elector.elect_soon()

    def _on_brokers_changed(self) -> None:
        if self.broker_id not in self.image.brokers:
            self.membership.registration_removed(self.metadata_revision)
        for fetcher in self._fetchers.values():
            fetcher.address_changed()
        self.leading.drop_followers()

    def _on_brokers_gone(self) -> None:
        self.elector.elect_soon()
        self.leading.drop_followers()

    def _configure(self, topic: Topic) -> None:
        config = self._config_of(topic)
        for number in range(topic.partition_count):
            replica = self._table.by_key.get(PartitionKey(topic.id, number))
            if replica is not None and replica.log is not None:
                replica.log.config = config
                self.leading.configure(replica, config)

    def _apply(self, key: PartitionKey) -> None:
        """Take the role that the metadata assigns, and have consumers read again: another broker may lead now."""
        self._change_role(key)
        if (topic := self._metadata.topic_with_any_state(key.topic_id)) is not None:
            self._fetches.changed(TopicPartition(topic.name, key.partition))

    def _change_role(self, key: PartitionKey) -> None:
        partition = self.image.partitions.get(key)
        if partition is None or self.broker_id not in partition.registration.replicas:
            self._drop(key)
            return
        topic = self._metadata.topic_with_any_state(key.topic_id)
        if topic is None:
            return
        replica = self._table.by_key.get(key)
        if replica is None:
            replica = Replica(key, TopicPartition(topic.name, key.partition))
            self._table.add(replica)
        if replica.log is None:
            self._logs.find(replica, topic)
        if replica.log is not None:
            self._take_role(replica, replica.log, partition)

    def _take_role(self, replica: Replica, log: Log, partition: ImagePartition) -> None:
        registration = partition.registration
        is_own = registration.leader == self.broker_id
        if is_own and registration.leader_broker_epoch == self.membership.broker_epoch:
            self._unfollow(replica)
            self.leading.lead(replica, log, partition)
        elif registration.has_leader and not is_own:
            self.leading.resign(replica)
            self._follow(replica, registration)
        else:
            self.leading.resign(replica)
            self._unfollow(replica)

    def _follow(self, replica: Replica, registration: PartitionRegistration) -> None:
        follower = replica.follower
        key = FetcherKey(registration.leader, is_catching_up=self.broker_id not in registration.isr)
        if follower is None or follower.leader_epoch != registration.leader_epoch:
            self._unfollow(replica)
            replica.follower = PartitionFollower(registration.leader, registration.leader_epoch)
        if replica.fetcher != key:
            self._leave_fetcher(replica)
            fetcher = self._fetchers.get(key)
            if fetcher is None:
                fetcher = self._fetchers[key] = self._fetcher_of(self, key)
            replica.fetcher = key
            fetcher.add(replica)

    def _unfollow(self, replica: Replica) -> None:
        replica.follower = None
        self._leave_fetcher(replica)

    def _leave_fetcher(self, replica: Replica) -> None:
        key, replica.fetcher = replica.fetcher, None
        if key is None:
            return
        fetcher = self._fetchers[key]
        fetcher.remove(replica)
        if fetcher.is_idle:
            del self._fetchers[key]
            fetcher.stop()

    def _drop(self, key: PartitionKey) -> None:
        """This broker has no replica of the partition any more: delete its log."""
        if (replica := self._table.remove(key)) is None:
            return
        self.leading.resign(replica)
        self._unfollow(replica)
        if replica.log is not None:
            self._logs.delete(replica.log)

    # Followers

    def move_high_watermark(self, replica: Replica, offset: Offset) -> None:
        """A follower has learnt a higher high watermark from its leader."""
        assert replica.log is not None
        replica.log.advance_high_watermark(offset)
        self._fetches.changed(replica.partition)

    def replace_log(self, replica: Replica, start_offset: Offset) -> None:
        """Remove all records of a follower's log and continue at another offset. Raises StorageError.

        A replica that has lost its log by that, because the disk is full, gets one as soon as there is space.
        """
        try:
            self._logs.replace(replica, start_offset)
        except StorageError:
            if replica.log is None:
                self._unfollow(replica)
                self._apply(replica.key)
            raise

    def _rebuild(self, replica: Replica) -> None:
        """Replace the damaged log of a follower by an empty one, and fetch again. Raises StorageError or OSError."""
        assert replica.log is not None
        self._unfollow(replica)
        self.replace_log(replica, replica.log.log_start_offset)
        self._apply(replica.key)

    def on_connected(self, connection: PeerConnection, broker_id: BrokerId) -> None:
        """A fetcher has connected to its leader."""
        self.liveness.on_connected(connection, broker_id)

    def on_unreachable(self, broker_id: BrokerId, error: OSError) -> None:
        """A fetcher cannot connect to its leader."""
        self.liveness.on_unreachable(broker_id, error)

    def on_disk_full(self, log: Log) -> None:
        """An append to a follower's log was refused: no leader waits for this broker until it has caught up again."""
        if not self._is_leaving:
            self._is_leaving = True
            followers = [replica for replica in self._table.by_key.values() if replica.follower is not None]
            self._tasks.spawn(self._leave_on_disk([replica for replica in followers if replica.is_on_disk_of(log)]))

    def _on_log_created(self, key: PartitionKey) -> None:
        self._apply(key)
        # A replica without a log is not elected.
        self.elector.elect_soon()

    async def _on_no_log(self, replica: Replica) -> None:
        """The log of a replica cannot be created: others lead until it can."""
        await self._leave([replica], "no log")

    async def _leave_on_disk(self, replicas: Iterable[Replica]) -> None:
        try:
            await self._leave(replicas, "disk full")
            await pause(_LEAVE_AGAIN_S)
        finally:
            self._is_leaving = False

    async def _leave(self, replicas: Iterable[Replica], reason: str) -> None:
        """Leave the ISRs of these partitions, which take no records here, and hand over those led here."""
        changes = [change for replica in replicas if (change := self._departure(replica.key)) is not None]
        if changes:
            _logger.warning("in-sync replicas left", reason=reason, partitions=len(changes))
            await self.elector.resign(changes)

    def _departure(self, key: PartitionKey) -> StoreTransaction | None:
        """Return the change by which this broker leaves an ISR, None if it is not in it or nobody else can lead."""
        partition = self.image.partitions.get(key)
        if partition is None or self.broker_id not in partition.registration.isr:
            return None
        registration = partition.registration
        others = [member for member in registration.isr if member != self.broker_id and member in self.liveness]
        after: PartitionRegistration | None = None
        if others and registration.leader == self.broker_id:
            after = step_down(registration, others[0], self.image.brokers[others[0]].epoch)
        elif registration.leader in others:
            after = step_aside(registration, self.broker_id)
        return None if after is None else self.elector.change_of(partition.epoch, key, after)

    def _min_insync_of(self, key: PartitionKey) -> int:
        topic = self._metadata.topic_with_any_state(key.topic_id)
        return 1 if topic is None else self._config_of(topic).min_insync_replicas

    def _may_be_unclean(self, key: PartitionKey) -> bool:
        """Return the topic's `unclean.leader.election.enable`, which broker settings set for all topics."""
        topic = self._metadata.topic_with_any_state(key.topic_id)
        settings = {**self._metadata.dynamic_settings, **({} if topic is None else topic.settings)}
        return settings.get(_UNCLEAN_SETTING) == "true"

    def _tick(self) -> None:
        self._tick_timer = self._loop.call_later(_TICK_S, self._tick)
        now_s = self._clock.monotonic_s()
        self.leading.on_tick(now_s)
        self.elector.on_tick()
        self.repair.on_tick()
        if now_s - self._saved_s >= _HIGH_WATERMARKS_S:
            self._saved_s = now_s
            self.save_high_watermarks()
