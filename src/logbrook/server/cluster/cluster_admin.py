"""Changes of a cluster that operators ask for: reassignments, elections by request, and the removal of brokers that are
gone for good. Any broker makes them.

A change is decided on this broker's image and written with the condition that the partition has not changed meanwhile;
otherwise it is decided again.
"""

from collections.abc import Callable, Iterator, Sequence

from logbrook.core.cluster.elections import partition_change
from logbrook.core.cluster.image import ClusterImage, PartitionKey, broker_key, node_key
from logbrook.core.cluster.partition import (
    InvalidReassignmentError,
    PartitionRegistration,
    cancel_reassignment,
    elect_unclean,
    hand_over,
    reassign,
)
from logbrook.core.metadata import ClusterMetadata, broker_settings_key
from logbrook.model import TopicPartition
from logbrook.model.event_log import event_logger
from logbrook.model.identifiers import BrokerId
from logbrook.ports.metadata_store import Delete, MetadataStore, StoreTransaction, is_absent
from logbrook.protocol.error_codes import ErrorCode
from logbrook.server.cluster.membership import Membership
from logbrook.server.cluster.metadata_follower import MetadataFollower
from logbrook.server.cluster.probe import ClusterProbe
from logbrook.server.errors import RequestRefusedError
from logbrook.storage.errors import PartitionNotFoundError

_logger = event_logger(__name__)


class ClusterAdmin:
    """One per broker of a cluster, on the event loop. Changes raise MetadataStoreError, too."""

    def __init__(
        self,
        broker_id: BrokerId,
        store: MetadataStore,
        metadata: ClusterMetadata,
        image: ClusterImage,
        follower: MetadataFollower,
        membership: Membership,
        probe: ClusterProbe,
    ) -> None:
        self._broker_id = broker_id
        self._store = store
        self._metadata = metadata
        self._image = image
        self._follower = follower
        self._membership = membership
        self._probe = probe

    async def reassign(
        self, partition: TopicPartition, replicas: Sequence[int] | None, *, is_factor_fixed: bool = False
    ) -> None:
        """Begin to move a partition to these brokers, or with None cancel the reassignment in progress.

        With `is_factor_fixed`, a target with another number of replicas than now is refused (KIP-860).
        Raises TopicNotFoundError, PartitionNotFoundError, InvalidReassignmentError or RequestRefusedError.
        """

        def decide(registration: PartitionRegistration) -> PartitionRegistration:
            if replicas is None:
                cancelled = cancel_reassignment(registration)
                if cancelled is None:
                    raise RequestRefusedError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{partition} is not being moved")
                return cancelled
            if is_factor_fixed and len(replicas) != len(registration.replicas):
                message = f"{partition} has {len(registration.replicas)} replicas, and {len(replicas)} are assigned"
                raise RequestRefusedError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
            unknown = sorted(set(replicas) - self._image.brokers.keys())
            if unknown:
                raise InvalidReassignmentError(f"broker {unknown[0]} is not alive")
            target = [BrokerId(replica) for replica in replicas]
            for broker_id in target:
                if broker_id not in registration.replicas and self._metadata.is_cordoned(broker_id):
                    raise RequestRefusedError(ErrorCode.INELIGIBLE_REPLICA, f"broker {broker_id} is cordoned")
            return reassign(registration, target)

        await self._change(partition, decide)
        _logger.info("partition reassigned", partition=partition, replicas=None if replicas is None else list(replicas))

    def reassignments(self) -> Iterator[tuple[TopicPartition, PartitionRegistration]]:
        """Yield the partitions that are being moved."""
        for topic in self._metadata.topics.values():
            for number in range(topic.partition_count):
                registered = self._image.partitions.get(PartitionKey(topic.id, number))
                if registered is not None and registered.registration.is_reassigning:
                    yield TopicPartition(topic.name, number), registered.registration

    async def elect_preferred(self, partition: TopicPartition) -> None:
        """Make the first replica the leader. Raises RequestRefusedError and as `reassign` does."""

        def decide(registration: PartitionRegistration) -> PartitionRegistration:
            preferred = registration.target[0]
            if registration.leader == preferred and self._image.has_live_leader(registration):
                raise RequestRefusedError(ErrorCode.ELECTION_NOT_NEEDED, "the preferred replica is the leader")
            broker = self._image.brokers.get(preferred)
            after = None if broker is None else hand_over(registration, preferred, broker.epoch)
            if after is None:
                raise RequestRefusedError(
                    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"broker {preferred} is not alive or not in sync"
                )
            return after

        await self._change(partition, decide)

    async def elect_unclean(self, partition: TopicPartition) -> None:
        """Make a live replica the leader of a partition that has none, and lose the records that it lacks.

        Raises RequestRefusedError and as `reassign` does.
        """

        def decide(registration: PartitionRegistration) -> PartitionRegistration:
            if self._image.has_live_leader(registration):
                raise RequestRefusedError(ErrorCode.ELECTION_NOT_NEEDED, "the partition has a leader")
            candidates = [replica for replica in registration.replicas if replica in self._image.brokers]
            # Replicas with all committed records first.
            candidates.sort(key=lambda replica: (replica not in registration.isr, replica not in registration.elr))
            if not candidates:
                raise RequestRefusedError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no replica is alive")
            return elect_unclean(registration, candidates[0], self._image.brokers[candidates[0]].epoch)

        await self._change(partition, decide)
        self._probe.unclean_elections += 1
        _logger.warning("unclean leader elected", partition=partition)

    async def unregister(self, broker_id: BrokerId) -> None:
        """Forget a broker that will not come back. Raises RequestRefusedError if it runs, or still has replicas.

        A broker with replicas must stay known: if it came back with an empty disk, nobody would notice what it lacks.
        """
        await self._follower.catch_up()
        if broker_id in self._image.brokers:
            message = f"broker {broker_id} cannot be unregistered: it is running"
            raise RequestRefusedError(ErrorCode.INVALID_REQUEST, message)
        if broker_id not in self._image.nodes:
            raise RequestRefusedError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
        count = sum(broker_id in partition.registration.replicas for partition in self._image.partitions.values())
        if count:
            message = (
                f"broker {broker_id} cannot be unregistered: it has replicas of {count} partitions; move them first"
            )
            raise RequestRefusedError(ErrorCode.INVALID_REQUEST, message)
        # With its settings: a broker that gets its id later must not be cordoned.
        keys = [node_key(broker_id), broker_settings_key(broker_id)]
        conditions = [is_absent(broker_key(broker_id)), *self._follower.unmodified(keys)]
        deletions = [Delete(key) for key in keys if self._follower.revision_of(key)]
        result = await self._store.commit(StoreTransaction(conditions, deletions))
        await self._follower.wait_for(result.revision)
        if not result.is_committed:
            message = f"broker {broker_id} has registered again meanwhile"
            raise RequestRefusedError(ErrorCode.INVALID_REQUEST, message)
        _logger.info("broker unregistered", broker_id=broker_id)

    async def _change(
        self, partition: TopicPartition, decide: Callable[[PartitionRegistration], PartitionRegistration]
    ) -> None:
        await self._follower.catch_up()
        while True:
            topic = self._metadata.topic(partition.topic)
            key = PartitionKey(topic.id, partition.partition)
            registered = self._image.partitions.get(key)
            if registered is None or partition.partition >= topic.partition_count:
                raise PartitionNotFoundError(partition)
            after = decide(registered.registration)
            if after == registered.registration:
                return
            epoch = self._membership.broker_epoch
            result = await self._store.commit(partition_change(key, registered.epoch, after, self._broker_id, epoch))
            await self._follower.wait_for(result.revision)
            if result.is_committed:
                return
            if not self._image.is_current(self._broker_id, epoch) and epoch == self._membership.broker_epoch:
                raise RequestRefusedError(ErrorCode.NOT_CONTROLLER, "this broker is not registered; ask another one")
