"""Descriptions of a cluster by its brokers: eligible replicas, leaders of other partitions, and the quorum."""

from collections.abc import Callable

import pytest

from logbrook.client.connection import Connection
from logbrook.config.network import split_address
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages import describe_quorum
from logbrook.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from logbrook.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from logbrook.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from logbrook.testing.cluster import Cluster
from tests.cluster.test_administration import connect

ENDPOINTS_SINCE = 16


def test_replicas_that_are_eligible_to_lead_are_described(
    impatient_cluster: Cluster, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    """KIP-966: the third replica left the ISR, which is smaller than its minimum, and has every committed record."""
    cluster = impatient_cluster
    cluster.create_topic("orders", assignments=[[1, 2, 3]], settings={"min.insync.replicas": "3"})
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="orders")])
    with connect(cluster, 2) as connection:

        def described() -> tuple[list[int], list[int]]:
            (partition,) = connection.request(request, DescribeTopicPartitionsResponse).topics[0].partitions
            return sorted(partition.isr_nodes), list(partition.eligible_leader_replicas or ())

        wait_until(lambda: described() == ([1, 2, 3], []))
        cluster.kill(3)
        wait_until(lambda: described() == ([1, 2], [3]))
        cluster.restart(3)
        wait_until(lambda: described() == ([1, 2, 3], []))


@pytest.mark.parametrize("version", [ENDPOINTS_SINCE - 1, ENDPOINTS_SINCE])
def test_a_consumer_is_referred_to_the_leader(
    cluster: Cluster, wait_until: Callable[[Callable[[], bool]], None], version: int
) -> None:
    """KIP-951: by a broker without a replica. A follower would answer it."""
    cluster.create_topic("orders", assignments=[[1, 3]])
    topic_id = cluster._store.read_image()[1]["orders"]
    wanted = FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition=0, partition_max_bytes=1)])
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1, session_epoch=-1, topics=[wanted])

    def fetch(connection: Connection) -> FetchResponse:
        return connection.request(request, FetchResponse, version)

    with connect(cluster, 2) as connection:
        # It may not have heard of the topic yet.
        wait_until(lambda: fetch(connection).responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER)
        response = fetch(connection)
    leader = response.responses[0].partitions[0].current_leader
    assert leader is not None
    assert (leader.leader_id, leader.leader_epoch) == (1, 0)
    endpoints = [(node.node_id, (node.host, node.port)) for node in response.node_endpoints]
    addressed = [(1, split_address(cluster.brokers[1].bootstrap_servers))]
    assert endpoints == (addressed if version >= ENDPOINTS_SINCE else [])


def test_the_brokers_are_observers_of_the_metadata_and_nobody_votes(cluster: Cluster) -> None:
    """Their metadata is in a store of its own."""
    metadata = describe_quorum.TopicData(
        topic_name="__cluster_metadata", partitions=[describe_quorum.PartitionData(partition_index=0)]
    )
    with connect(cluster, 2) as connection:
        response = connection.request(DescribeQuorumRequest(topics=[metadata]), DescribeQuorumResponse)
    (partition,) = response.topics[0].partitions
    assert (response.error_code, partition.error_code) == (ErrorCode.NONE, ErrorCode.NONE)
    assert (partition.leader_id, partition.leader_epoch, list(partition.current_voters)) == (-1, -1, [])
    assert sorted(observer.replica_id for observer in partition.observers) == [1, 2, 3]
    assert {node.node_id: (node.listeners[0].host, node.listeners[0].port) for node in response.nodes} == {
        number: split_address(broker.bootstrap_servers) for number, broker in cluster.brokers.items()
    }
