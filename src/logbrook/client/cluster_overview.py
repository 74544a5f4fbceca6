"""An overview of a cluster: nodes, who leads what, which replicas are in sync, and moves under way.

It takes a few requests to any broker and one to each, for the sizes of its replicas: Metadata, DescribeCluster,
ListPartitionReassignments and DescribeLogDirs. What a broker does not tell is None. It works with any Kafka cluster.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from logbrook.client.admin_replicas import OngoingMove, ReplicaAdmin
from logbrook.client.client import Address, Client
from logbrook.client.errors import BrokerError, ClientError, check_code
from logbrook.model import TopicPartition
from logbrook.model.identifiers import BrokerId
from logbrook.protocol.errors import ProtocolError, UnsupportedApiError, UnsupportedVersionError
from logbrook.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from logbrook.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from logbrook.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition

UP = "up"
DOWN = "down"
NOT_ANSWERING = "not answering"

_NO_LEADER = -1


class ReplicaRole(StrEnum):
    """The role of a replica; the value is its mark in a map of who leads what."""

    LEADER = "L"
    IN_SYNC = "F"
    LAGGING = "lag"
    # Not in sync yet: a move adds it.
    ADDING = "+"


@dataclass(frozen=True, slots=True)
class PartitionOverview:
    """A partition. `sizes` has the bytes of each replica whose broker answers; `leader` is None while it has none.

    While it is moved, `replicas` has the old and the new ones; `adding` and `removing` are among them.
    """

    partition: TopicPartition
    is_internal: bool
    leader: BrokerId | None
    replicas: tuple[BrokerId, ...]
    in_sync: tuple[BrokerId, ...]
    offline: tuple[BrokerId, ...] = ()
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()
    sizes: Mapping[BrokerId, int] = field(default_factory=dict)

    @property
    def is_offline(self) -> bool:
        return self.leader is None

    @property
    def is_under_replicated(self) -> bool:
        """True if a replica is not in sync. Those that a move adds do not count, as in Kafka."""
        return not set(self.replicas) - set(self.adding) <= set(self.in_sync)

    @property
    def is_moving(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[BrokerId, ...]:
        """The replicas when the move under way has ended, the preferred leader first."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    @property
    def state(self) -> str:
        return "offline" if self.is_offline else "under-replicated" if self.is_under_replicated else "ok"

    @property
    def roles(self) -> dict[BrokerId, ReplicaRole]:
        """The role of each replica, by broker."""
        return {replica: self._role(replica) for replica in self.replicas}

    def _role(self, replica: BrokerId) -> ReplicaRole:
        if replica == self.leader:
            return ReplicaRole.LEADER
        if replica in self.in_sync:
            return ReplicaRole.IN_SYNC
        return ReplicaRole.ADDING if replica in self.adding else ReplicaRole.LAGGING

    @property
    def before_move(self) -> tuple[BrokerId, ...]:
        """The replicas without those that the move under way adds."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)

    @property
    def size_bytes(self) -> int | None:
        """Bytes of the leader's replica, or of the largest one if the leader is unknown."""
        if self.leader is not None and self.leader in self.sizes:
            return self.sizes[self.leader]
        return max(self.sizes.values(), default=None)

    @property
    def copied_bytes(self) -> int:
        """Bytes that the replicas have which the move adds."""
        size_bytes = self.size_bytes or 0
        return sum(min(self.sizes.get(replica, 0), size_bytes) for replica in self.adding)

    @property
    def bytes_to_copy(self) -> int:
        """Bytes that the replicas have when they are added."""
        return (self.size_bytes or 0) * len(self.adding)


@dataclass(frozen=True, slots=True)
class NodeOverview:
    """A broker. Without an address it is known from the replicas of partitions only.

    `state` is UP, DOWN, or NOT_ANSWERING if it is registered and does not answer; `problem` says why.
    """

    id: BrokerId
    host: str | None
    port: int | None
    rack: str | None
    state: str
    leaders: int
    replicas: int
    size_bytes: int | None
    problem: str | None = None
    # True if it gets no further replicas (KIP-1066).
    is_cordoned: bool = False

    @property
    def state_text(self) -> str:
        """The state with what else there is to say of it, in one line."""
        state = f"{self.state}, cordoned" if self.is_cordoned else self.state
        return state if self.problem is None else f"{state}: {self.problem}"


@dataclass(frozen=True, slots=True)
class ClusterOverview:
    """Nodes by id, and partitions by name."""

    cluster_id: str | None
    nodes: tuple[NodeOverview, ...]
    partitions: tuple[PartitionOverview, ...]

    @property
    def live_nodes(self) -> tuple[NodeOverview, ...]:
        """The registered nodes, which get replicas and lead."""
        return tuple(node for node in self.nodes if node.state != DOWN)

    @property
    def racks(self) -> dict[BrokerId, str | None]:
        """The racks of the registered nodes."""
        return {node.id: node.rack for node in self.live_nodes}

    @property
    def cordoned(self) -> tuple[NodeOverview, ...]:
        """The nodes that get no further replicas."""
        return tuple(node for node in self.nodes if node.is_cordoned)

    @property
    def under_replicated(self) -> tuple[PartitionOverview, ...]:
        return tuple(partition for partition in self.partitions if partition.is_under_replicated)

    @property
    def offline(self) -> tuple[PartitionOverview, ...]:
        return tuple(partition for partition in self.partitions if partition.is_offline)

    @property
    def moving(self) -> tuple[PartitionOverview, ...]:
        return tuple(partition for partition in self.partitions if partition.is_moving)

    @property
    def assignment(self) -> dict[TopicPartition, tuple[BrokerId, ...]]:
        """The replicas of all partitions, when the moves under way have ended."""
        return {partition.partition: partition.target for partition in self.partitions}

    @property
    def sizes(self) -> dict[TopicPartition, int]:
        """The known sizes of partitions, in bytes of one replica."""
        return {
            partition.partition: size_bytes
            for partition in self.partitions
            if (size_bytes := partition.size_bytes) is not None
        }


def read_overview(client: Client) -> ClusterOverview:
    """Ask the brokers of the cluster. Raises ClientError if none of the bootstrap servers answers."""
    metadata = client.metadata()
    client.update_metadata(metadata)
    moves = ongoing_moves(client)
    fenced = _fenced_brokers(client)
    stored: dict[BrokerId, _StoredReplicas] = {}
    problems: dict[BrokerId, str] = {}
    for broker in metadata.brokers:
        try:
            stored[BrokerId(broker.node_id)] = _stored_replicas(client, (broker.host, broker.port))
        except UnsupportedApiError:
            pass
        except (ClientError, ProtocolError) as error:
            problems[BrokerId(broker.node_id)] = str(error)
    partitions = tuple(_partitions(metadata, moves, stored))
    return ClusterOverview(
        metadata.cluster_id, tuple(_nodes(metadata, fenced, partitions, stored, problems)), partitions
    )


def read_partitions(client: Client, topics: Collection[str]) -> dict[TopicPartition, PartitionOverview]:
    """Return the partitions of these topics, with the sizes of those replicas whose brokers answer.

    Topics that do not exist are left out.
    """
    # The moves first: a move that is cancelled between the two requests would seem to have arrived.
    moves = ongoing_moves(client)
    metadata = client.metadata(sorted(topics))
    wanted = [
        DescribableLogDirTopic(
            topic=topic.name or "", partitions=[partition.partition_index for partition in topic.partitions]
        )
        for topic in metadata.topics
    ]
    stored: dict[BrokerId, _StoredReplicas] = {}
    for broker in metadata.brokers:
        with suppress(ClientError, ProtocolError):
            stored[BrokerId(broker.node_id)] = _stored_replicas(client, (broker.host, broker.port), wanted)
    return {partition.partition: partition for partition in _partitions(metadata, moves, stored)}


def ongoing_moves(client: Client) -> dict[TopicPartition, OngoingMove]:
    """Return the moves under way; none from brokers that are too old for them."""
    with suppress(UnsupportedApiError):
        return ReplicaAdmin(client).ongoing()
    return {}


def _fenced_brokers(client: Client) -> list[DescribeClusterBroker]:
    """Return registered brokers that are down; none from brokers that do not tell (before KIP-1073)."""
    with suppress(UnsupportedApiError, UnsupportedVersionError):
        response = client.request(DescribeClusterRequest(include_fenced_brokers=True), DescribeClusterResponse)
        check_code(response.error_code, "describing the cluster", response.error_message)
        return [broker for broker in response.brokers if broker.is_fenced]
    return []


class _StoredReplicas(NamedTuple):
    """The replicas of a broker, with their bytes."""

    sizes: Mapping[TopicPartition, int]
    is_cordoned: bool


def _stored_replicas(
    client: Client, address: Address, topics: Sequence[DescribableLogDirTopic] | None = None
) -> _StoredReplicas:
    """Ask a broker for its replicas of all topics or of some."""
    response = client.connection(address).request(DescribeLogDirsRequest(topics=topics), DescribeLogDirsResponse)
    check_code(response.error_code, "describing the log directories")
    sizes: dict[TopicPartition, int] = {}
    for directory in response.results:
        if directory.error_code:
            raise BrokerError(directory.error_code, directory.log_dir)
        for topic in directory.topics:
            for replica in topic.partitions:
                if not replica.is_future_key:
                    sizes[TopicPartition(topic.name, replica.partition_index)] = replica.partition_size
    is_cordoned = bool(response.results) and all(directory.is_cordoned for directory in response.results)
    return _StoredReplicas(sizes, is_cordoned)


def _partitions(
    metadata: MetadataResponse,
    moves: Mapping[TopicPartition, OngoingMove],
    stored: Mapping[BrokerId, _StoredReplicas],
) -> Iterable[PartitionOverview]:
    for topic in sorted(metadata.topics, key=lambda topic: topic.name or ""):
        if topic.error_code:
            continue
        for described in sorted(topic.partitions, key=lambda described: described.partition_index):
            partition = TopicPartition(topic.name or "", described.partition_index)
            yield _partition(partition, topic.is_internal, described, moves.get(partition), stored)


def _partition(
    partition: TopicPartition,
    is_internal: bool,
    described: MetadataResponsePartition,
    move: OngoingMove | None,
    stored: Mapping[BrokerId, _StoredReplicas],
) -> PartitionOverview:
    replicas = tuple(map(BrokerId, described.replica_nodes))
    # The move may have ended, or begun, since the metadata was read.
    is_current = move is not None and set(move.replicas) == set(replicas)
    return PartitionOverview(
        partition,
        is_internal,
        None if described.leader_id == _NO_LEADER else BrokerId(described.leader_id),
        replicas,
        tuple(map(BrokerId, described.isr_nodes)),
        tuple(map(BrokerId, described.offline_replicas)),
        move.adding if move is not None and is_current else (),
        move.removing if move is not None and is_current else (),
        {
            replica: stored[replica].sizes[partition]
            for replica in replicas
            if replica in stored and partition in stored[replica].sizes
        },
    )


def _nodes(
    metadata: MetadataResponse,
    fenced: Iterable[DescribeClusterBroker],
    partitions: Iterable[PartitionOverview],
    stored: Mapping[BrokerId, _StoredReplicas],
    problems: Mapping[BrokerId, str],
) -> Iterable[NodeOverview]:
    live = {BrokerId(broker.node_id): broker for broker in metadata.brokers}
    down = {BrokerId(broker.broker_id): broker for broker in fenced if broker.broker_id not in live}
    leaders: dict[BrokerId, int] = {}
    replicas: dict[BrokerId, int] = {}
    for partition in partitions:
        if partition.leader is not None:
            leaders[partition.leader] = leaders.get(partition.leader, 0) + 1
        for replica in partition.replicas:
            replicas[replica] = replicas.get(replica, 0) + 1
    for node_id in sorted(live.keys() | down.keys() | replicas.keys()):
        state = DOWN if node_id not in live else NOT_ANSWERING if node_id in problems else UP
        address = live.get(node_id) or down.get(node_id)
        yield NodeOverview(
            node_id,
            (address.host or None) if address is not None else None,
            address.port if address is not None and address.host else None,
            (address.rack or None) if address is not None else None,
            state,
            leaders.get(node_id, 0),
            replicas.get(node_id, 0),
            sum(stored[node_id].sizes.values()) if node_id in stored else None,
            problems.get(node_id),
            is_cordoned=node_id in stored and stored[node_id].is_cordoned,
        )
