"""The brokers and partitions of the cluster, from this broker's image of the metadata store."""

from logbrook.config.network import DEFAULT_LISTENER
from logbrook.core.cluster.image import ClusterImage, PartitionKey
from logbrook.core.metadata import Topic, TopicNotFoundError
from logbrook.model import TopicPartition
from logbrook.model.identifiers import BrokerId
from logbrook.server.cluster.liveness import BrokerLiveness
from logbrook.server.cluster.membership import Membership
from logbrook.server.cluster_view import NO_LEADER, BrokerAddress, CurrentLeader, PartitionView
from logbrook.server.leader_epoch import NO_EPOCH
from logbrook.server.topics import Topics


class ImageView:
    """A `ClusterView`. There is no controller: each broker names itself, since any broker takes such requests.

    A leader whose process has ended is not one: a client that is told so asks again soon, and else after a second.

    This broker is one of the brokers, also while its registration is gone: a client that has reached it must not forget
    it, for want of another one to ask.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        image: ClusterImage,
        topics: Topics,
        membership: Membership,
        liveness: BrokerLiveness,
    ) -> None:
        self._broker_id = broker_id
        self._image = image
        self._topics = topics
        self._membership = membership
        self._liveness = liveness

    @property
    def controller_id(self) -> BrokerId:
        return self._broker_id

    def brokers(self, listener: str = DEFAULT_LISTENER) -> list[BrokerAddress]:
        addresses = (self._address(number, listener) for number in sorted({*self._image.brokers, self._broker_id}))
        return [address for address in addresses if address is not None]

    def fenced_brokers(self) -> list[BrokerAddress]:
        return [
            BrokerAddress(broker_id, node.host, node.port, node.rack or None)
            for broker_id, node in sorted(self._image.nodes.items())
            if broker_id not in self._image.brokers and broker_id != self._broker_id
        ]

    def partition(self, topic: Topic, number: int) -> PartitionView:
        partition = self._image.partitions.get(PartitionKey(topic.id, number))
        if partition is None:
            return PartitionView(NO_LEADER, NO_EPOCH, (), (), is_available=False)
        registration = partition.registration
        is_led = self._image.has_live_leader(registration) and registration.leader not in self._liveness.gone()
        return PartitionView(
            leader=registration.leader if is_led else NO_LEADER,
            leader_epoch=registration.leader_epoch,
            replicas=registration.replicas,
            isr=registration.isr,
            offline=[replica for replica in registration.replicas if replica not in self._image.brokers],
            elr=registration.elr,
            is_available=is_led,
        )

    def leader_address(self, partition: TopicPartition, listener: str) -> BrokerAddress | None:
        try:
            topic = self._topics.metadata.topic(partition.topic)
        except TopicNotFoundError:
            return None
        return self._address(self.partition(topic, partition.partition).leader, listener)

    def current_leader(self, partition: TopicPartition, listener: str) -> CurrentLeader | None:
        try:
            topic = self._topics.metadata.topic(partition.topic)
        except TopicNotFoundError:
            return None
        view = self.partition(topic, partition.partition)
        address = None if view.leader == self._broker_id else self._address(view.leader, listener)
        return None if address is None else CurrentLeader(view.leader_epoch, address)

    def _address(self, broker_id: BrokerId, listener: str) -> BrokerAddress | None:
        broker = self._image.brokers.get(broker_id)
        registration = None if broker is None else broker.registration
        if registration is None and broker_id == self._broker_id:
            registration = self._membership.registration
        address = None if registration is None else registration.address(listener)
        if registration is None or address is None:
            return None
        return BrokerAddress(broker_id, *address, registration.rack or None)
