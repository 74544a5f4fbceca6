"""The registration of this broker in the metadata store, and its lease.

A registration has two keys: `brokers/N`, which the store deletes with the lease, and `nodes/N`, which stays. The data
directory has an identity of its own (`core.cluster.lifecycle`): before a broker with another directory, or with an
older state of it, registers, it leaves every ISR and ELR. No leader adds it to an ISR meanwhile: that needs a
registration (`core.cluster.elections.partition_change`).

When the lease is lost, the broker registers again and gets a new broker epoch: it leads nothing until it is elected.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from logbrook.core.cluster.features import FeatureRange, check_levels, finalized_levels, supported_ranges
from logbrook.core.cluster.image import (
    BrokerRegistration,
    ClusterImage,
    NodeRecord,
    PartitionKey,
    broker_key,
    encode_broker,
    encode_node,
    encode_partition,
    node_key,
    partition_key,
)
from logbrook.core.cluster.lifecycle import (
    BrokerLease,
    DirectoryIdentity,
    DirectoryLoss,
    NodeIdInUseError,
    directory_loss,
)
from logbrook.core.cluster.partition import NO_BROKER_EPOCH, leave
from logbrook.core.metadata import CLUSTER_KEY, decode_feature_levels
from logbrook.model import LogbrookError
from logbrook.model.event_log import event_logger
from logbrook.model.identifiers import BrokerEpoch, BrokerId
from logbrook.ports import Clock, Files, Random
from logbrook.ports.metadata_store import (
    ABSENT,
    Delete,
    LeaseId,
    LeaseNotFoundError,
    MetadataStore,
    Put,
    Revision,
    StoreSnapshot,
    StoreTransaction,
    StoreUnavailableError,
    is_absent,
    is_unmodified,
    was_created_at,
)
from logbrook.server.cluster.background import pause
from logbrook.server.cluster.identity_file import SavedIdentity, WrongNodeError, read_identity, save_identity

_RETRY_S = 0.1

_logger = event_logger(__name__)


class WrongClusterError(LogbrookError):
    """The data directory belongs to another cluster."""

    def __init__(self, expected: str, actual: str) -> None:
        super().__init__(f"the data directory belongs to the cluster {expected}, not to {actual}; use another --data")


class Membership:
    """One per broker, on the event loop. `on_registered()` is called for each new registration.

    `directories` are the files of all data directories, and `stored()` the partitions of which they have a log.
    """

    def __init__(
        self,
        store: MetadataStore,
        broker_id: BrokerId,
        directories: Sequence[Files],
        stored: Callable[[], Collection[PartitionKey]],
        clock: Clock,
        random: Random,
        on_registered: Callable[[], None],
        *,
        lease_s: float,
        syncs_before_reply: bool,
        boot_id: str,
        features: Mapping[str, FeatureRange],
    ) -> None:
        self._store = store
        self._broker_id = broker_id
        self._directories = directories
        self._stored = stored
        self._clock = clock
        self._random = random
        self._on_registered = on_registered
        self._syncs_before_reply = syncs_before_reply
        self._boot_id = boot_id
        self._features = features
        self._lease = BrokerLease(lease_s)
        self._lease_id: LeaseId | None = None
        # Changes under way by which this broker gives leadership up.
        self._resignations = 0
        # Set to register again before the next renewal is due.
        self._lost = asyncio.Event()
        self._registration = BrokerRegistration("", 0)
        self.broker_epoch: BrokerEpoch = NO_BROKER_EPOCH
        # The broker epoch whose registration is marked as stopping.
        self._stopping_epoch = NO_BROKER_EPOCH
        # The history of the store at the last registration.
        self._history_id = ""
        # True if the store was restored from a backup since the first registration of this directory.
        self.store_was_restored = False
        # Data directories that the last life had and this one has not: their replicas are lost.
        self._lost_directories = 0
        self._identity, self._cluster_id = self._read_identity()

    @property
    def registration(self) -> BrokerRegistration | None:
        """The registration of this broker, also while the store does not have it. None before the first one."""
        return self._registration if self._registration.host else None

    @property
    def is_certain(self) -> bool:
        """True if no other broker can have taken over what this one leads."""
        return not self._resignations and self._lease.is_certain(self._clock.monotonic_s())

    @contextmanager
    def resigning(self) -> Iterator[None]:
        """Be uncertain during the block: another broker may lead before this one hears of its own change."""
        self._resignations += 1
        try:
            yield
        finally:
            self._resignations -= 1

    @property
    def lease_age_s(self) -> float:
        """The time since the last renewal that was answered."""
        return self._lease.age_s(self._clock.monotonic_s())

    def claim_directory(self) -> None:
        """Make the data directory one of a cluster, before it gets logs. No effect on one that is. Raises OSError.

        A directory with logs and without an identity is taken for that of a single node.
        """
        if read_identity(self._directories) is None:
            self._save_identity(self._identity)

    async def register(self, registration: BrokerRegistration, cluster_id: str) -> None:
        """Register for the first time.

        Raises WrongClusterError, WrongNodeError, NodeIdInUseError, UnsupportedLevelError or StoreUnavailableError.
        """
        if self._cluster_id not in ("", cluster_id):
            raise WrongClusterError(self._cluster_id, cluster_id)
        self._cluster_id = cluster_id
        self._registration = replace(registration, directory_id=self._identity.directory_id)
        # A registration with the same id may be one of an earlier life, on a disk that was replaced, until it expires.
        until_s = self._clock.monotonic_s() + 2 * self._lease.ttl_s
        while True:
            try:
                if await self._try_register():
                    return
            except NodeIdInUseError:
                if self._clock.monotonic_s() > until_s:
                    raise
            await pause(_RETRY_S)

    async def run(self) -> None:
        """Renew the lease forever, and register again when it is lost."""
        while True:
            was_certain = self.is_certain
            with suppress(TimeoutError):
                async with asyncio.timeout(self._lease.renewal_interval_s):
                    await self._lost.wait()
            self._lost.clear()
            try:
                await self._renew()
            except StoreUnavailableError as error:
                if was_certain and not self.is_certain:
                    _logger.warning("broker lease uncertain", broker_id=self._broker_id, error=error)
            except (LogbrookError, OSError) as error:
                _logger.error("broker registration failed", broker_id=self._broker_id, error=error)

    async def begin_stop(self) -> None:
        """Mark the registration as stopping: this broker joins no ISR any more. No effect if it is marked already.

        Raises MetadataStoreError; call it again then.
        """
        # A registration that is under way, or made later, has the mark, too.
        self._registration = replace(self._registration, is_stopping=True)
        epoch, lease_id, key = self.broker_epoch, self._lease_id, broker_key(self._broker_id)
        if lease_id is not None and self._stopping_epoch != epoch:
            put = Put(key, encode_broker(self._registration), lease_id)
            if not (await self._store.commit(StoreTransaction([was_created_at(key, epoch)], [put]))).is_committed:
                raise LeaseNotFoundError(lease_id)
            self._stopping_epoch = epoch

    async def stop(self) -> None:
        """Record a clean stop and remove the registration. Raises MetadataStoreError.

        The record is that of the last registration, which may be one of another directory, on another machine.
        """
        if self._lease_id is not None:
            key = node_key(self._broker_id)
            record = self._node_record(self._identity.registration_ids[-1], stopped_cleanly=True)
            # The registration wrote both keys.
            is_own = is_unmodified(key, self.broker_epoch)
            if not (await self._store.commit(StoreTransaction([is_own], [Put(key, encode_node(record))]))).is_committed:
                _logger.warning("clean stop not recorded", reason="the node has registered again or was removed")
            lease_id, self._lease_id = self._lease_id, None
            with suppress(LeaseNotFoundError):
                await self._store.revoke_lease(lease_id)

    def registration_removed(self, revision: Revision) -> None:
        """The store had no registration of this broker at this revision: others may have taken over."""
        if self._lease_id is not None and revision > self.broker_epoch:
            self._lose_lease()
            self._lost.set()

    def _lose_lease(self) -> None:
        """Be uncertain until the next registration, which `run` makes."""
        _logger.warning("broker lease lost", broker_id=self._broker_id)
        self._lease.lost(self._clock.monotonic_s())
        self._lease_id = None

    async def _renew(self) -> None:
        if self._lease_id is not None:
            sent_s = self._clock.monotonic_s()
            try:
                await self._store.renew_lease(self._lease_id)
            except LeaseNotFoundError:
                self._lose_lease()
            else:
                self._lease.renewed(sent_s)
                return
        await self._try_register()

    async def _try_register(self) -> bool:
        """Return False if another transaction came first. Raises as `register` does."""
        snapshot, image = await self._read_all()
        if self._broker_id in image.brokers:
            if not await self._remove_earlier_life(image, snapshot):
                return False
            # Until then a leader may have added the earlier life to an ISR.
            snapshot, image = await self._read_all()
        if self._broker_id in image.brokers or not await self._leave_lost(image):
            return False
        cluster = snapshot.entries.get(CLUSTER_KEY)
        node = image.nodes.get(self._broker_id)
        registration_id = self._random.token(16).hex()
        self._save_identity(self._identity.begin_registration(registration_id))
        sent_s = self._clock.monotonic_s()
        lease_id = await self._store.grant_lease(self._lease.ttl_s)
        key, record_key = broker_key(self._broker_id), node_key(self._broker_id)
        node_revision = snapshot.entries[record_key].mod_revision if record_key in snapshot.entries else 0
        conditions = [
            is_absent(key),
            is_unmodified(record_key, node_revision),
            is_unmodified(CLUSTER_KEY, ABSENT if cluster is None else cluster.mod_revision),
        ]
        record = self._node_record(registration_id, stopped_cleanly=False)
        puts = [Put(key, encode_broker(self._registration), lease_id), Put(record_key, encode_node(record))]
        is_changed = node is None or supported_ranges(node.features) != supported_ranges(record.features)
        if is_changed and cluster is not None:
            # A level that is being raised was decided on the ranges from before: that transaction has to fail.
            puts.append(Put(CLUSTER_KEY, cluster.value))
        result = await self._store.commit(StoreTransaction(conditions, puts))
        if not result.is_committed:
            return False
        self._lease_id = lease_id
        self._lease.renewed(sent_s)
        if self._history_id not in ("", self._store.history_id):
            self.store_was_restored = True
            _logger.error("metadata store restored", history_id=self._store.history_id, expected=self._history_id)
        self._history_id = self._store.history_id
        self.broker_epoch = BrokerEpoch(result.revision)
        self._save_identity(self._identity.finish_registration())
        _logger.info("broker registered", broker_id=self._broker_id, broker_epoch=self.broker_epoch)
        self._on_registered()
        return True

    async def _read_all(self) -> tuple[StoreSnapshot, ClusterImage]:
        """Raises UnsupportedLevelError or StoreUnavailableError."""
        snapshot = await self._store.read_all()
        cluster = snapshot.entries.get(CLUSTER_KEY)
        if cluster is not None:
            check_levels(finalized_levels(decode_feature_levels(cluster.value)), self._features)
        image = ClusterImage()
        image.load(snapshot.entries)
        return snapshot, image

    async def _remove_earlier_life(self, image: ClusterImage, snapshot: StoreSnapshot) -> bool:
        """Remove a registration of this directory whose lease has not expired. Raises NodeIdInUseError.

        The directory is locked by this process, so the earlier one has ended.
        """
        broker = image.brokers[self._broker_id]
        if broker.registration.directory_id != self._identity.directory_id:
            raise NodeIdInUseError(self._broker_id, f"{broker.registration.host}:{broker.registration.port}")
        key = broker_key(self._broker_id)
        condition = is_unmodified(key, snapshot.entries[key].mod_revision)
        return (await self._store.commit(StoreTransaction([condition], [Delete(key)]))).is_committed

    async def _leave_lost(self, image: ClusterImage) -> bool:
        """Leave the ISRs of the partitions of which the data directory lacks records. Return False as `_leave` does."""
        node = image.nodes.get(self._broker_id)
        loss = directory_loss(node, self._identity, self._boot_id, syncs_before_reply=self._syncs_before_reply)
        if loss is not DirectoryLoss.NOTHING:
            _logger.warning("data directory lacks records", broker_id=self._broker_id, reason=loss.name.lower())
            if not await self._leave(image, image.partitions):
                return False
        elif self._lost_directories:
            _logger.warning("data directory lacks records", broker_id=self._broker_id, reason="directory left out")
            if not await self._leave(image, image.partitions.keys() - set(self._stored())):
                return False
        self._lost_directories = 0
        return True

    async def _leave(self, image: ClusterImage, keys: Iterable[PartitionKey]) -> bool:
        """Leave the ISR and ELR of these partitions. Return False if one has changed meanwhile."""
        for key in keys:
            partition = image.partitions[key]
            after = leave(partition.registration, self._broker_id)
            if after is not None:
                store_key = partition_key(key)
                transaction = StoreTransaction(
                    [is_unmodified(store_key, partition.epoch)], [Put(store_key, encode_partition(after))]
                )
                if not (await self._store.commit(transaction)).is_committed:
                    return False
        return True

    def _node_record(self, registration_id: str, *, stopped_cleanly: bool) -> NodeRecord:
        address = self._registration
        return NodeRecord(
            self._identity.directory_id,
            registration_id,
            stopped_cleanly,
            self._boot_id,
            address.host,
            address.port,
            address.rack,
            {feature: tuple(levels) for feature, levels in self._features.items()},
        )

    def _read_identity(self) -> tuple[DirectoryIdentity, str]:
        saved = read_identity(self._directories)
        if saved is None:
            return DirectoryIdentity(self._random.token(16).hex()), ""
        if saved.node_id != self._broker_id:
            raise WrongNodeError(saved.node_id, self._broker_id)
        self._history_id = saved.history_id
        self.store_was_restored = saved.store_was_restored
        self._lost_directories = saved.lost_directories
        return saved.identity, saved.cluster_id

    def _save_identity(self, identity: DirectoryIdentity) -> None:
        self._identity = identity
        saved = SavedIdentity(self._broker_id, identity, self._cluster_id, self._history_id, self.store_was_restored)
        save_identity(self._directories, saved, self._random)
