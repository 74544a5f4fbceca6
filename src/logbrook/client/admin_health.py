"""Health of a cluster, as seen by a client: brokers that do not answer, partitions without a leader, and so on.

Every broker is asked for its log directories, and every leader for the end offsets of its partitions, which a partition
that is offline cannot give. A partition that Logbrook has quarantined is an offline replica in its metadata.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from logbrook.client.client import LATEST, Address, Client
from logbrook.client.errors import BrokerError, ClientError
from logbrook.client.partition_requests import PartitionRequests
from logbrook.model import TopicPartition
from logbrook.model.identifiers import BrokerId
from logbrook.protocol.errors import ProtocolError
from logbrook.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from logbrook.protocol.messages.metadata import MetadataResponse


@dataclass(frozen=True, slots=True)
class ClusterHealth:
    """The state of a cluster. `controller_id` is None if there is no controller."""

    controller_id: BrokerId | None
    brokers: tuple[BrokerId, ...]
    # The reason by broker, and by partition.
    brokers_down: Mapping[BrokerId, str]
    offline_log_dirs: tuple[str, ...]
    leaderless_partitions: tuple[TopicPartition, ...]
    under_replicated_partitions: tuple[TopicPartition, ...]
    unavailable_partitions: Mapping[TopicPartition, str]

    @property
    def is_healthy(self) -> bool:
        return self.controller_id is not None and not (
            self.brokers_down
            or self.offline_log_dirs
            or self.leaderless_partitions
            or self.under_replicated_partitions
            or self.unavailable_partitions
        )


def check_health(client: Client) -> ClusterHealth:
    """Ask all brokers of the cluster. Raises ClientError if none of the bootstrap servers answers."""
    metadata = client.metadata()
    client.update_metadata(metadata)
    addresses = {BrokerId(broker.node_id): (broker.host, broker.port) for broker in metadata.brokers}
    offline_log_dirs: list[str] = []
    brokers_down: dict[BrokerId, str] = {}
    for broker_id, address in sorted(addresses.items()):
        try:
            offline_log_dirs += _offline_log_dirs(client, broker_id, address)
        except (ClientError, ProtocolError) as error:
            brokers_down[broker_id] = str(error)
    leaders = {partition: leader for partition, leader, _ in _partitions(metadata)}
    led = [partition for partition, leader in leaders.items() if leader in addresses and leader not in brokers_down]
    return ClusterHealth(
        BrokerId(metadata.controller_id) if metadata.controller_id in addresses else None,
        tuple(sorted(addresses)),
        brokers_down,
        tuple(offline_log_dirs),
        tuple(partition for partition, leader in leaders.items() if leader not in addresses),
        tuple(partition for partition, _, is_replicated in _partitions(metadata) if not is_replicated),
        _unavailable(PartitionRequests(client), led) | _with_offline_leader(metadata),
    )


def _partitions(metadata: MetadataResponse) -> Iterator[tuple[TopicPartition, BrokerId, bool]]:
    """Yield each partition with its leader, and whether all its replicas are in sync."""
    for topic in metadata.topics:
        for partition in topic.partitions:
            is_replicated = len(partition.isr_nodes) == len(partition.replica_nodes)
            named = TopicPartition(topic.name or "", partition.partition_index)
            yield named, BrokerId(partition.leader_id), is_replicated


def _with_offline_leader(metadata: MetadataResponse) -> dict[TopicPartition, str]:
    return {
        TopicPartition(topic.name or "", partition.partition_index): "the leader's replica is offline or quarantined"
        for topic in metadata.topics
        for partition in topic.partitions
        if partition.leader_id in partition.offline_replicas
    }


def _offline_log_dirs(client: Client, broker_id: BrokerId, address: Address) -> Iterator[str]:
    response = client.connection(address).request(DescribeLogDirsRequest(topics=[]), DescribeLogDirsResponse)
    for directory in response.results:
        if directory.error_code:
            error = BrokerError(directory.error_code, f"{directory.log_dir} of broker {broker_id}")
            yield str(error)


def _unavailable(cluster: PartitionRequests, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, str]:
    """Return the partitions whose offsets cannot be listed, with the reason; one by one only if there are any."""
    with suppress(ClientError):
        cluster.list_offsets(dict.fromkeys(partitions, LATEST))
        return {}
    unavailable = {}
    for partition in partitions:
        try:
            cluster.list_offsets({partition: LATEST})
        except BrokerError as error:
            unavailable[partition] = error.code.name
        except ClientError as error:
            unavailable[partition] = str(error)
    return unavailable
