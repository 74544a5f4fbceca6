"""The brokers and partitions that clients are told about: a single node leads everything itself."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from logbrook.config.network import DEFAULT_LISTENER
from logbrook.core.metadata import Topic
from logbrook.model import TopicPartition
from logbrook.model.identifiers import BrokerId, LeaderEpoch
from logbrook.server.topics import Topics

NO_LEADER = BrokerId(-1)


class BrokerAddress(NamedTuple):
    broker_id: BrokerId
    host: str
    port: int
    rack: str | None = None


class PartitionView(NamedTuple):
    """A partition with its leader and replicas. `is_available` is False while it has no leader that serves it."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    replicas: Sequence[BrokerId]
    isr: Sequence[BrokerId]
    offline: Sequence[BrokerId] = ()
    elr: Sequence[BrokerId] = ()
    is_available: bool = True


class CurrentLeader(NamedTuple):
    """The leader to which a client is referred (KIP-951)."""

    leader_epoch: LeaderEpoch
    address: BrokerAddress


class ClusterView(Protocol):
    """Read by handlers on the event loop."""

    @property
    def controller_id(self) -> BrokerId:
        """The broker to which clients send administrative requests."""

    def brokers(self, listener: str = DEFAULT_LISTENER) -> list[BrokerAddress]:
        """Return the live brokers that have the listener, with their addresses for its clients."""

    def fenced_brokers(self) -> list[BrokerAddress]:
        """Return the brokers that the cluster knows and that are not alive, with their last addresses."""

    def partition(self, topic: Topic, number: int) -> PartitionView: ...

    def leader_address(self, partition: TopicPartition, listener: str) -> BrokerAddress | None:
        """Return the leader of a partition if it is alive and has the listener."""

    def current_leader(self, partition: TopicPartition, listener: str) -> CurrentLeader | None:
        """Return the leader of a partition that this broker does not lead, if it is alive and has the listener."""


class AdvertisedAddress(NamedTuple):
    """The address that Metadata and FindCoordinator responses announce for this broker, to clients of a listener."""

    host: str
    port: int


# The addresses of a broker by the names of its listeners.
AdvertisedAddresses: TypeAlias = Mapping[str, AdvertisedAddress]


class SingleNodeView:
    """The view of a single node. `endpoints` are set when the broker listens."""

    def __init__(self, node_id: BrokerId, topics: Topics) -> None:
        self._node_id = node_id
        self._topics = topics
        self.endpoints: AdvertisedAddresses = {}

    @property
    def controller_id(self) -> BrokerId:
        return self._node_id

    def brokers(self, listener: str = DEFAULT_LISTENER) -> list[BrokerAddress]:
        return [BrokerAddress(self._node_id, *self.endpoints[listener])]

    def fenced_brokers(self) -> list[BrokerAddress]:
        return []

    def partition(self, topic: Topic, number: int) -> PartitionView:
        """A quarantined log is an offline replica. It is still the leader's: records before the damage can be read."""
        partition, directory = TopicPartition(topic.name, number), self._topics.directory
        replicas = [self._node_id]
        has_log = partition in directory
        is_quarantined = has_log and directory.get(partition).corruption is not None
        return PartitionView(
            leader=self._node_id,
            leader_epoch=self._topics.metadata.epoch,
            replicas=replicas,
            isr=replicas,
            offline=replicas if is_quarantined else (),
            # The log of a partition that was added is being created.
            is_available=has_log,
        )

    def leader_address(self, partition: TopicPartition, listener: str) -> BrokerAddress | None:
        del partition
        return BrokerAddress(self._node_id, *self.endpoints[listener])

    def current_leader(self, partition: TopicPartition, listener: str) -> CurrentLeader | None:
        del partition, listener
        return None
