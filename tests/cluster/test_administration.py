"""Moves, elections and descriptions of a cluster, by the requests of Kafka's own tools."""

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from logbrook.client import Client
from logbrook.client.admin import Admin
from logbrook.client.connection import Connection
from logbrook.config.network import split_address
from logbrook.model import TopicPartition as ReplicatedPartition
from logbrook.model.identifiers import BrokerId, Offset
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from logbrook.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from logbrook.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from logbrook.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from logbrook.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from logbrook.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from logbrook.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.testing.cluster import Cluster

PREFERRED, UNCLEAN = 0, 1
# As in DeleteRecords.
HIGH_WATERMARK = Offset(-1)


def connect(cluster: Cluster, number: int = 1) -> Connection:
    return Connection(*split_address(cluster.brokers[number].bootstrap_servers))


def move(connection: Connection, topic: str, replicas: list[int] | None) -> int:
    wanted = ReassignableTopic(name=topic, partitions=[ReassignablePartition(partition_index=0, replicas=replicas)])
    request = AlterPartitionReassignmentsRequest(topics=[wanted])
    response = connection.request(request, AlterPartitionReassignmentsResponse)
    return response.responses[0].partitions[0].error_code


def elect(connection: Connection, topic: str, election_type: int = PREFERRED) -> int:
    partitions = [TopicPartitions(topic=topic, partitions=[0])]
    request = ElectLeadersRequest(election_type=election_type, topic_partitions=partitions)
    response = connection.request(request, ElectLeadersResponse)
    return response.replica_election_results[0].partition_result[0].error_code


def moving(connection: Connection) -> int:
    response = connection.request(ListPartitionReassignmentsRequest(topics=None), ListPartitionReassignmentsResponse)
    return sum(len(topic.partitions) for topic in response.topics)


def test_a_partition_moves_to_other_brokers_with_its_records(
    cluster: Cluster, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    cluster.create_topic("orders", assignments=[[1, 2]])
    cluster.produce("orders", "first", "second")
    with connect(cluster, 3) as connection:
        assert move(connection, "orders", [3, 2]) == ErrorCode.NONE
        wait_until(lambda: moving(connection) == 0)
        assert cluster.replicas("orders") == [3, 2]
        assert cluster.stored("orders", on=3) == [b"first", b"second"]
        wait_until(lambda: not cluster.has_log("orders", on=1))
        cluster.produce("orders", "third")
        assert [record.value for record in cluster.records("orders")] == [b"first", b"second", b"third"]
        assert move(connection, "orders", None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        assert move(connection, "orders", [2, 2]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert move(connection, "orders", [2, 9]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_broker_that_is_gone_for_good_is_unregistered_once_it_has_no_replicas(
    wait_until: Callable[[Callable[[], bool]], None],
) -> None:
    with Cluster(nodes=3, lease_s=3.0) as cluster:
        unregister_broker_3(cluster, wait_until)


def unregister_broker_3(cluster: Cluster, wait_until: Callable[[Callable[[], bool]], None]) -> None:
    cluster.create_topic("orders", assignments=[[1, 3]])

    def unregister(broker_id: int) -> int:
        with connect(cluster) as connection:
            request = UnregisterBrokerRequest(broker_id=broker_id)
            return connection.request(request, UnregisterBrokerResponse).error_code

    assert unregister(3) == ErrorCode.INVALID_REQUEST, "it runs"
    assert unregister(9) == ErrorCode.BROKER_ID_NOT_REGISTERED
    cluster.kill(3)
    wait_until(lambda: 3 not in cluster._store.read_image()[0].brokers)
    assert unregister(3) == ErrorCode.INVALID_REQUEST, "it has a replica"
    with connect(cluster) as connection:
        assert move(connection, "orders", [1, 2]) == ErrorCode.NONE
        wait_until(lambda: moving(connection) == 0)
    wait_until(lambda: unregister(3) == ErrorCode.NONE)
    assert unregister(3) == ErrorCode.BROKER_ID_NOT_REGISTERED


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_throttled_move_waits_and_delays_no_other_partition(
    cluster: Cluster, wait_until: Callable[[Callable[[], bool]], None], side: str
) -> None:
    cluster.create_topic("moved", assignments=[[1]], settings={f"{side}.replication.throttled.replicas": "*"})
    cluster.create_topic("orders", assignments=[[1, 3]], settings={"min.insync.replicas": "2"})
    cluster.produce("moved", *(bytes(500_000) for _ in range(8)), partition=0)
    with Client(cluster.bootstrap_servers) as client, connect(cluster, 1) as connection:
        configs = Admin(client).configs
        configs.alter_all_brokers({f"{side}.replication.throttled.rate": "1"})
        assert move(connection, "moved", [1, 3]) == ErrorCode.NONE
        wait_until(lambda: cluster.has_log("moved", on=3) and len(cluster.stored("moved", on=3)) > 0)
        cluster.produce("orders", "acknowledged by both")
        assert moving(connection) == 1
        assert len(cluster.stored("moved", on=3)) < 8
        configs.alter_all_brokers({}, unset=[f"{side}.replication.throttled.rate"])
        wait_until(lambda: moving(connection) == 0)
    assert len(cluster.stored("moved", on=3)) == 8


def test_the_preferred_replica_leads_after_an_election(cluster: Cluster) -> None:
    cluster.create_topic("orders", assignments=[[2, 1, 3]])
    with connect(cluster) as connection:
        assert elect(connection, "orders") == ErrorCode.ELECTION_NOT_NEEDED
        cluster.kill(2)
        cluster.wait_for_leader("orders", other_than=2)
        assert elect(connection, "orders") == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        cluster.restart(2)
        cluster.wait_for_isr("orders")
        assert elect(connection, "orders") == ErrorCode.NONE
        assert cluster.wait_for_leader("orders") == 2


def test_an_unclean_leader_is_elected_only_by_request(
    impatient_cluster: Cluster, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    cluster = impatient_cluster
    cluster.create_topic("orders", assignments=[[2, 3]])
    cluster.produce("orders", "on both")
    cluster.kill(3)
    cluster.wait_for_isr("orders", size=1)
    cluster.produce("orders", "on the leader only")
    with connect(cluster) as connection:
        assert elect(connection, "orders", UNCLEAN) == ErrorCode.ELECTION_NOT_NEEDED
    cluster.kill(2)
    cluster.restart(3)
    cluster.wait_until_registered(3)
    with connect(cluster) as connection:
        wait_until(lambda: cluster.leader("orders") is None)
        assert elect(connection, "orders", UNCLEAN) == ErrorCode.NONE
    assert cluster.wait_for_leader("orders") == 3
    assert [record.value for record in cluster.records("orders")] == [b"on both"]
    cluster.restart(2)
    cluster.wait_for_isr("orders")
    assert cluster.stored("orders", on=2) == [b"on both"]


def test_a_replica_that_retention_has_emptied_starts_again_after_an_unclean_election(
    impatient_cluster: Cluster, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    """Its log starts after the records of the new leader."""
    cluster = impatient_cluster
    cluster.create_topic("orders", assignments=[[2, 3]])
    cluster.produce("orders", "on both")
    cluster.kill(3)
    cluster.wait_for_isr("orders", size=1)
    cluster.produce("orders", "on the leader only")
    with Client(cluster.brokers[2].bootstrap_servers) as client:
        Admin(client).topics.delete_records({ReplicatedPartition("orders", 0): HIGH_WATERMARK})
    cluster.kill(2)
    cluster.restart(3)
    cluster.wait_until_registered(3)
    with connect(cluster) as connection:
        wait_until(lambda: cluster.leader("orders") is None)
        assert elect(connection, "orders", UNCLEAN) == ErrorCode.NONE
    cluster.wait_for_leader("orders")
    cluster.produce("orders", "on the new leader")
    cluster.restart(2)
    cluster.wait_for_isr("orders")
    assert cluster.stored("orders", on=2) == [b"on both", b"on the new leader"]


def test_clients_see_all_brokers_and_replicas(cluster: Cluster) -> None:
    cluster.create_topic("orders", assignments=[[1, 2, 3], [3, 1, 2]])
    metadata = AdminClient({"bootstrap.servers": cluster.brokers[2].bootstrap_servers}).list_topics(timeout=10)
    assert sorted(metadata.brokers) == [1, 2, 3]
    partitions = metadata.topics["orders"].partitions
    assert [(partition.leader, partition.replicas, partition.isrs) for partition in partitions.values()] == [
        (1, [1, 2, 3], [1, 2, 3]),
        (3, [3, 1, 2], [3, 1, 2]),
    ]


def test_a_cordoned_broker_gets_no_replicas(cluster: Cluster) -> None:
    """KIP-1066. What it has stays."""
    cluster.create_topic("orders", assignments=[[3, 1]])
    with Client(cluster.bootstrap_servers) as client:
        Admin(client).configs.alter_broker(BrokerId(3), {"cordoned.log.dirs": "*"})
    cluster.create_topic("later", assignments=[[1, 2]])
    with pytest.raises(Exception, match="broker 3 is cordoned"):
        cluster.create_topic("assigned", assignments=[[1, 3]])
    with connect(cluster) as connection:
        assert move(connection, "later", [1, 3]) == ErrorCode.INELIGIBLE_REPLICA
        assert move(connection, "orders", [3, 2]) == ErrorCode.NONE
    with connect(cluster, 3) as connection:
        request = DescribeLogDirsRequest(topics=None)
        assert [entry.is_cordoned for entry in connection.request(request, DescribeLogDirsResponse).results] == [True]
    with connect(cluster, 2) as connection:
        assert [entry.is_cordoned for entry in connection.request(request, DescribeLogDirsResponse).results] == [False]


def test_an_offline_replica_is_reported(
    impatient_cluster: Cluster, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    cluster = impatient_cluster
    cluster.create_topic("orders", assignments=[[1, 2, 3]])
    cluster.kill(3)
    cluster.wait_for_isr("orders", size=2)
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="orders")])
    with connect(cluster) as connection:

        def described() -> tuple[int, list[int], list[int]]:
            (partition,) = connection.request(request, DescribeTopicPartitionsResponse).topics[0].partitions
            return partition.leader_id, list(partition.isr_nodes), list(partition.offline_replicas)

        wait_until(lambda: described() == (1, [1, 2], [3]))


@pytest.mark.parametrize("version", [9, 10])
def test_a_producer_is_referred_to_the_leader(cluster: Cluster, version: int) -> None:
    cluster.create_topic("orders", assignments=[[1, 2, 3]])
    data = PartitionProduceData(index=0, records=memoryview(build_batch([Record(value=b"misdirected")])))
    request = ProduceRequest(
        acks=-1, timeout_ms=5_000, topic_data=[TopicProduceData(name="orders", partition_data=[data])]
    )
    with connect(cluster, 2) as connection:
        response = connection.request(request, ProduceResponse, version)
    (partition,) = response.responses[0].partition_responses
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    if version == 10:
        assert partition.current_leader is not None
        assert partition.current_leader.leader_id == 1
        assert [node.node_id for node in response.node_endpoints] == [1]


def test_consumers_read_from_a_follower_in_their_rack() -> None:
    with Cluster(nodes=3, racks=["a", "b", "c"]) as cluster:
        cluster.create_topic("orders", assignments=[[1, 2, 3]])
        cluster.produce("orders", *(f"{number}" for number in range(100)))
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "racked", "client.rack": "c"})
        consumer.assign([TopicPartition("orders", 0, 0)])
        read = [message.value() for message in consumer.consume(100, timeout=20)]
        consumer.close()
        assert read == [f"{number}".encode() for number in range(100)]
        assert cluster.bytes_served("orders", by=3) > 0


def test_a_stopped_cluster_has_all_its_data_after_a_start(cluster: Cluster) -> None:
    cluster.create_topic("orders", 2)
    cluster.produce("orders", "kept", partition=1)
    for number in cluster.brokers:
        cluster.kill(number)
    for number in cluster.brokers:
        cluster.restart(number)
    cluster.wait_for_leader("orders", 1)
    assert [record.value for record in cluster.records("orders", 1)] == [b"kept"]
    with Client(cluster.bootstrap_servers) as client:
        assert sorted(client.partitions("orders")) == [0, 1]
