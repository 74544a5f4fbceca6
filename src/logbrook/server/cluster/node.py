"""A broker's membership in a cluster: creates the components of this package, and starts and stops them in order.

open     load the metadata and follow it
join     register, take the roles of all partitions, and renew the lease
leave    hand the leadership of all partitions over, while requests are still served
stop     stop fetching and following
finish   record the clean stop, when the data directory is closed
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from logbrook.config import BrokerConfig, Durability
from logbrook.config.network import DEFAULT_LISTENER
from logbrook.core.cluster.features import SUPPORTED, FeatureRange, check_levels
from logbrook.core.cluster.image import BrokerRegistration, ClusterImage, PartitionKey
from logbrook.model.event_log import event_logger
from logbrook.model.identifiers import BrokerId
from logbrook.ports import Clock, Random
from logbrook.ports.metadata_store import MetadataStore, MetadataStoreError, Revision
from logbrook.server.advertised import cluster_listener
from logbrook.server.cluster.cluster_admin import ClusterAdmin
from logbrook.server.cluster.cluster_features import ClusterFeatures
from logbrook.server.cluster.cluster_maintenance import ClusterMaintenance
from logbrook.server.cluster.liveness import BrokerLiveness
from logbrook.server.cluster.measured_store import MeasuredStore
from logbrook.server.cluster.membership import Membership
from logbrook.server.cluster.peers import Peers
from logbrook.server.cluster.probe import ClusterProbe
from logbrook.server.cluster.replica import FetcherKey
from logbrook.server.cluster.replica_fetcher import Connect, ReplicaFetcher
from logbrook.server.cluster.replicas import ReplicaManager
from logbrook.server.cluster.throttle import ReplicationThrottle
from logbrook.server.cluster.topics import ClusterTopics
from logbrook.server.cluster.view import ImageView
from logbrook.server.cluster_view import AdvertisedAddresses
from logbrook.server.fetch_purgatory import FetchPurgatory
from logbrook.server.log_appender import LogAppender
from logbrook.storage.data_directories import AnyDirectory
from logbrook.storage.errors import StorageOfflineError

_STOP_S_MAX = 5.0

_logger = event_logger(__name__)


@dataclass(frozen=True)
class ClusterLink:
    """The access of a broker to its cluster. `connect(host, port)` connects to another broker, and raises OSError.

    `boot_id` identifies the run of the machine's kernel, empty if unknown.
    """

    store: MetadataStore
    connect: Connect
    rack: str = ""
    lease_s: float = 3.0
    replica_lag_ms_max: int = 30_000
    boot_id: str = ""
    maintenance_interval_s: float = 5.0
    # The levels of features that this broker supports.
    features: Mapping[str, FeatureRange] = field(default_factory=lambda: SUPPORTED)


class ClusterNode:
    """One per broker of a cluster, on the event loop."""

    def __init__(
        self,
        link: ClusterLink,
        config: BrokerConfig,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        random: Random,
        directory: AnyDirectory,
        appender: LogAppender,
        fetch_purgatory: FetchPurgatory,
        on_many_logs_created: Callable[[], None],
    ) -> None:
        self._link = link
        self._loop = loop
        self._clock = clock
        self._appender = appender
        self._directory = directory
        self._broker_id = broker_id = BrokerId(config.node_id)
        self._listener = cluster_listener(config)
        self.image = ClusterImage()
        self._probe = ClusterProbe()
        store = MeasuredStore(link.store, clock, self._probe)
        self.topics = ClusterTopics(
            config, directory, appender, clock, random, on_many_logs_created, store, self.image, link.features
        )
        self.membership = Membership(
            store,
            broker_id,
            [member.environment.files for member in directory.members],
            self._stored,
            clock,
            random,
            self._on_registered,
            lease_s=link.lease_s,
            syncs_before_reply=config.storage.durability is Durability.FSYNC,
            boot_id=link.boot_id,
            features=link.features,
        )
        self.replicas = ReplicaManager(
            broker_id,
            loop,
            clock,
            store,
            self.topics.metadata,
            self.image,
            self.topics.follower,
            self.membership,
            directory,
            self.topics.log_files,
            BrokerLiveness(loop, clock, self.image, link.connect, self._listener),
            self._new_fetcher,
            self.topics.config_of,
            fetch_purgatory,
            self._probe,
            lag_ms_max=link.replica_lag_ms_max,
        )
        self.cluster_admin = ClusterAdmin(
            broker_id, store, self.topics.metadata, self.image, self.topics.follower, self.membership, self._probe
        )
        self.features = ClusterFeatures(store, self.topics.metadata, self.image, self.topics.follower, link.features)
        self._maintenance = ClusterMaintenance(
            broker_id, clock, self.image, self.topics, self.cluster_admin, interval_s=link.maintenance_interval_s
        )
        self._throttle = ReplicationThrottle(self.topics.metadata, broker_id, clock, "follower")
        self.topics.replicas = self.replicas
        appender.replicas = self.replicas.leading
        self.view = ImageView(broker_id, self.image, self.topics, self.membership, self.replicas.liveness)
        self.peers = Peers(link.connect)
        self._is_open = False
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Raises UnsupportedLevelError, StoreUnavailableError or OSError."""
        for member in self._directory.members:
            member.environment.health.add_failure_callback(self._on_storage_failed)
        self.membership.claim_directory()
        await self.topics.follower.load()
        # Before anything is done on the data; the registration checks it again.
        if self.topics.metadata.cluster_id:
            check_levels(self.features.finalized, self._link.features)
        self._tasks.append(self._loop.create_task(self.topics.follower.run()))
        await self.topics.open()

    async def join(self, addresses: AdvertisedAddresses) -> None:
        """Raises NodeIdInUseError, WrongClusterError, UnsupportedLevelError, StoreUnavailableError or OSError."""
        further = {name: tuple(address) for name, address in addresses.items() if name != DEFAULT_LISTENER}
        registration = BrokerRegistration(*addresses[DEFAULT_LISTENER], self._link.rack, listeners=further)
        await self.membership.register(registration, self.topics.metadata.cluster_id)
        await self.topics.follower.wait_for(Revision(self.membership.broker_epoch))
        self._is_open = True
        self.replicas.open()
        self._tasks.append(self._loop.create_task(self.membership.run()))
        self._tasks.append(self._loop.create_task(self._maintenance.run()))
        # Producers can start while the store is away.
        await self.topics.reserve_producer_ids()

    async def leave(self) -> None:
        """Hand over what this broker leads. An unreachable store is logged: then the others take over."""
        try:
            async with asyncio.timeout(_STOP_S_MAX):
                await self.membership.begin_stop()
                await self.replicas.hand_over_all()
        except (MetadataStoreError, TimeoutError) as error:
            _logger.warning("leadership not handed over", error=error)
        self.replicas.save_high_watermarks()

    async def stop(self) -> None:
        self._is_open = False
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.replicas.stop()
        self.peers.close()

    async def finish(self) -> None:
        """Record the clean stop. An unreachable store is logged: the registration then ends with its lease."""
        try:
            async with asyncio.timeout(_STOP_S_MAX):
                await self.membership.stop()
        except (MetadataStoreError, TimeoutError) as error:
            _logger.warning("clean stop not recorded", error=error)
        with suppress(MetadataStoreError):
            await self._link.store.close()

    def _new_fetcher(self, replicas: ReplicaManager, key: FetcherKey) -> ReplicaFetcher:
        return ReplicaFetcher(
            replicas,
            key.leader,
            self._broker_id,
            lambda: self.membership.broker_epoch,
            self.image,
            self._appender,
            self._clock,
            self._link.connect,
            self._loop,
            self._throttle if key.is_catching_up else None,
            self._listener,
        )

    def _stored(self) -> set[PartitionKey]:
        """Return the partitions of which the data directories have a log."""
        return {
            PartitionKey(bytes.fromhex(log.state.topic_id), log.partition.partition)
            for log in self._directory
            if log.state.topic_id
        }

    def _on_storage_failed(self, _: StorageOfflineError) -> None:
        """Called from any thread."""
        with suppress(RuntimeError):  # The event loop is closed.
            self._loop.call_soon_threadsafe(self._withdraw)

    def _withdraw(self) -> None:
        """No data directory takes writes any more: other brokers lead from now on. No effect after `stop`.

        As long as one does, the replicas of the others are repaired (`replica_repair`).
        """
        has_failed = all(member.environment.health.failure for member in self._directory.members)
        if self._is_open and has_failed:
            self._tasks.append(self._loop.create_task(self.replicas.withdraw()))

    def _on_registered(self) -> None:
        self._probe.registrations += 1
        if self._is_open:
            self.replicas.apply_all()
