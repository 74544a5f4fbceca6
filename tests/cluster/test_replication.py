"""Replication, elections and the recovery of replicas: real brokers, real sockets, real clients."""

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from logbrook.client import Client
from logbrook.client.admin import Admin
from logbrook.client.connection import Connection
from logbrook.config.network import split_address
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from logbrook.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from logbrook.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from logbrook.server.handlers.list_offsets import EARLIEST, LATEST
from logbrook.testing.cluster import Cluster


def values(cluster: Cluster, topic: str, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in cluster.records(topic, partition)]


def test_every_in_sync_replica_has_an_acknowledged_record(cluster: Cluster) -> None:
    cluster.create_topic("orders", 3)
    for partition in range(3):
        cluster.produce("orders", f"record {partition}", partition=partition)
        assert cluster.isr("orders", partition) == [1, 2, 3]
        for number in cluster.brokers:
            assert cluster.stored("orders", partition, on=number) == [f"record {partition}".encode()]


def test_leaders_are_spread_over_all_brokers(cluster: Cluster) -> None:
    cluster.create_topic("orders", 6)
    leaders = [cluster.leader("orders", partition) for partition in range(6)]
    assert sorted(leaders, key=str) == [1, 1, 2, 2, 3, 3]


def test_another_replica_leads_after_a_kill_and_nothing_is_lost(cluster: Cluster) -> None:
    cluster.create_topic("orders")
    cluster.produce("orders", "before")
    killed = cluster.leader("orders")
    assert killed is not None
    cluster.kill(killed)
    assert cluster.wait_for_leader("orders", other_than=killed) != killed
    cluster.produce("orders", "after")
    assert values(cluster, "orders") == [b"before", b"after"]
    cluster.restart(killed)
    assert cluster.wait_for_isr("orders") == [1, 2, 3]
    assert cluster.stored("orders", on=killed) == [b"before", b"after"]


def test_the_fixture_of_the_pytest_plugin_is_a_replicated_cluster(logbrook_cluster: Cluster) -> None:
    cluster = logbrook_cluster
    cluster.create_topic("orders", settings={"min.insync.replicas": "2"})
    cluster.produce("orders", "before")
    killed = cluster.wait_for_leader("orders")
    cluster.kill(killed)
    cluster.wait_for_leader("orders", other_than=killed)
    assert values(cluster, "orders") == [b"before"]
    cluster.produce("orders", "after")
    assert values(cluster, "orders") == [b"before", b"after"]


def test_a_clean_restart_of_each_broker_hands_leadership_over(cluster: Cluster) -> None:
    cluster.create_topic("orders", 3)
    for number in cluster.brokers:
        cluster.restart(number)
        for partition in range(3):
            cluster.produce("orders", f"after {number}", partition=partition)
            cluster.wait_for_isr("orders", partition)
    for partition in range(3):
        assert values(cluster, "orders", partition) == [b"after 1", b"after 2", b"after 3"]


def test_a_broker_that_stops_stays_in_the_isr_if_its_successor_has_just_died() -> None:
    with Cluster(2, ["orders"]) as cluster:
        cluster.produce("orders", "acknowledged")
        stopping = cluster.leader("orders")
        assert stopping is not None
        successor = 3 - stopping
        cluster.pause(successor)
        # It restarts within the lease of the other, which counts as alive.
        cluster.restart(stopping)
        assert stopping in cluster.isr("orders")
        cluster.kill(successor)
        assert cluster.wait_for_leader("orders", other_than=successor) == stopping
        assert values(cluster, "orders") == [b"acknowledged"]


def test_records_that_only_a_deposed_leader_has_are_removed(
    impatient_cluster: Cluster, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    cluster = impatient_cluster
    cluster.create_topic("orders")
    cluster.produce("orders", "kept")
    deposed = cluster.leader("orders")
    assert deposed is not None
    cluster.cut_off(deposed)
    producer = Producer(
        {
            "bootstrap.servers": cluster.brokers[deposed].bootstrap_servers,
            "acks": 1,
            "enable.idempotence": False,
        }
    )
    producer.produce("orders", "not replicated")
    wait_until(lambda: cluster.stored("orders", on=deposed) == [b"kept", b"not replicated"])
    # It must not send the record again, to the next leader.
    producer.purge()
    producer.flush(5)
    leader = cluster.wait_for_leader("orders", other_than=deposed)
    cluster.produce_to(leader, "orders", "instead")
    cluster.reconnect(deposed)
    cluster.wait_for_isr("orders")
    for number in cluster.brokers:
        assert cluster.stored("orders", on=number) == [b"kept", b"instead"]


def test_writes_with_acks_all_are_refused_below_min_insync_replicas(impatient_cluster: Cluster) -> None:
    cluster = impatient_cluster
    cluster.create_topic("orders", settings={"min.insync.replicas": "3"})
    cluster.produce("orders", "to three")
    follower = next(number for number in cluster.brokers if number != cluster.leader("orders"))
    cluster.kill(follower)
    cluster.wait_for_isr("orders", size=2)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "message.timeout.ms": 1_000})
    errors: list[str] = []
    producer.produce("orders", "to two", on_delivery=lambda error, _: errors.append(str(error and error.name())))
    producer.flush(10)
    assert errors == ["_MSG_TIMED_OUT"]
    cluster.restart(follower)
    cluster.wait_for_isr("orders")
    cluster.produce("orders", "to three again")
    assert values(cluster, "orders")[0] == b"to three"
    assert values(cluster, "orders")[-1] == b"to three again"


def test_a_leader_without_a_certain_lease_does_not_return_offset_out_of_range(
    impatient_cluster: Cluster, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    """Consumers would start again at the beginning or the end."""
    cluster = impatient_cluster
    cluster.create_topic("orders", assignments=[[1, 2, 3]])
    cluster.produce("orders", "before")
    cluster.cut_off(1)
    cluster.wait_for_leader("orders", other_than=1)
    wanted = FetchTopic(topic="orders", partitions=[FetchPartition(partition=0, fetch_offset=5, partition_max_bytes=1)])
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1, session_epoch=-1, topics=[wanted])

    def error_of_deposed_leader() -> int:
        with Connection(*split_address(cluster.brokers[1].bootstrap_servers)) as connection:
            response = connection.request(request, FetchResponse, 12)
            return response.responses[0].partitions[0].error_code

    wait_until(lambda: error_of_deposed_leader() == ErrorCode.OFFSET_NOT_AVAILABLE)
    cluster.reconnect(1)


def test_a_deposed_leader_does_not_return_the_latest_offset(
    impatient_cluster: Cluster, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    """A reader that was told an earlier one would miss records that are acknowledged."""
    cluster = impatient_cluster
    cluster.create_topic("orders", assignments=[[1, 2, 3]])
    cluster.produce("orders", "before")
    cluster.cut_off(1)
    leader = cluster.wait_for_leader("orders", other_than=1)
    cluster.produce_to(leader, "orders", "after")
    assert latest_offset(cluster, leader) == (ErrorCode.NONE, 2)
    assert latest_offset(cluster, 1) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
    assert latest_offset(cluster, 1, EARLIEST) == (ErrorCode.NONE, 0)
    cluster.reconnect(1)
    wait_until(lambda: latest_offset(cluster, 1)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_leaders_return_the_latest_offset_while_the_metadata_store_is_unavailable(
    impatient_cluster: Cluster, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    """Their followers confirm that there is no other leader."""
    cluster = impatient_cluster
    cluster.create_topic("orders", assignments=[[1, 2, 3]])
    cluster.produce("orders", "before")
    cluster.stop_store()
    wait_until(lambda: not cluster.brokers[1].has_certain_lease)
    cluster.produce_to(1, "orders", "after")
    assert latest_offset(cluster, 1) == (ErrorCode.NONE, 2)
    cluster.start_store()


def test_a_leader_whose_disk_is_full_hands_over(
    impatient_cluster: Cluster, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    cluster = impatient_cluster
    cluster.create_topic("orders", assignments=[[1, 2, 3], [1, 3, 2]])
    with cluster.brokers[1].fault("disk_full"):
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
        for partition in (0, 1):
            producer.produce("orders", "while its disk is full", partition=partition)
        assert producer.flush(30) == 0, "the records were not acknowledged"
        assert [cluster.leader("orders", partition) for partition in (0, 1)] == [2, 3]
        wait_until(lambda: 1 not in cluster.isr("orders", 0))
    for partition in (0, 1):
        assert cluster.wait_for_isr("orders", partition) == [1, 2, 3]
        assert cluster.stored("orders", partition, on=1) == [b"while its disk is full"]


def test_writes_do_not_wait_for_a_follower_whose_disk_is_full() -> None:
    with Cluster(nodes=3, topics={"orders": 1}, lease_s=30, replica_lag_ms_max=300_000) as cluster:
        leader = cluster.wait_for_leader("orders")
        full = next(number for number in cluster.brokers if number != leader)
        with cluster.brokers[full].fault("disk_full"):
            for value in ("first", "second"):
                cluster.produce("orders", value)
            assert full not in cluster.isr("orders")
        assert cluster.wait_for_isr("orders") == [1, 2, 3]
        assert cluster.stored("orders", on=full) == [b"first", b"second"]


@pytest.mark.parametrize("full", [1, 2])
def test_a_topic_can_be_written_to_although_a_broker_has_no_space_for_its_replica(full: int) -> None:
    with Cluster(nodes=3, lease_s=30, replica_lag_ms_max=300_000) as cluster:
        with cluster.brokers[full].fault("disk_full"):
            cluster.create_topic("orders", assignments=[[1, 2, 3]])
            cluster.produce("orders", "first")
            assert full not in cluster.isr("orders")
        assert cluster.wait_for_isr("orders") == [1, 2, 3]
        assert cluster.stored("orders", on=full) == [b"first"]


def latest_offset(cluster: Cluster, number: int, timestamp: int = LATEST) -> tuple[ErrorCode, int]:
    """Ask one broker for the latest offset of the topic."""
    partition = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[ListOffsetsTopic(name="orders", partitions=[partition])]
    )
    with Connection(*split_address(cluster.brokers[number].bootstrap_servers)) as connection:
        response = connection.request(request, ListOffsetsResponse, 7).topics[0].partitions[0]
        return ErrorCode(response.error_code), response.offset


def test_a_new_leader_does_not_return_offset_out_of_range_for_committed_records(impatient_cluster: Cluster) -> None:
    """Its high watermark is older than what consumers have read, until other replicas have confirmed its records."""
    cluster = impatient_cluster
    cluster.create_topic("orders", settings={"min.insync.replicas": "2"})
    cluster.produce("orders", "read by consumers")
    # All at the same time: nobody takes over.
    cluster.stop_store()
    for number in cluster.brokers:
        cluster.kill(number)
    cluster.start_store()
    cluster.restart(1)
    with Connection(*split_address(cluster.brokers[1].bootstrap_servers)) as connection:
        wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic="orders", partitions=[wanted])]
        )
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        while code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            (end,) = connection.request(request, OffsetForLeaderEpochResponse).topics[0].partitions
            code = ErrorCode(end.error_code)
    assert (code, end.leader_epoch, end.end_offset) == (ErrorCode.NONE, 0, 1)


def test_writes_do_not_wait_for_a_follower_whose_registration_is_gone() -> None:
    with Cluster(nodes=3, lease_s=1.0, replica_lag_ms_max=600_000) as cluster:
        cluster.create_topic("orders", assignments=[[1, 2, 3]])
        cluster.kill(3)
        cluster.produce("orders", "written")
        assert 3 not in cluster.isr("orders")
        cluster.restart(3)
        cluster.wait_for_isr("orders")


def test_a_group_continues_after_its_coordinator_was_killed(cluster: Cluster) -> None:
    cluster.create_topic("orders")
    cluster.produce("orders", *(f"{number}" for number in range(10)))
    config = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": "readers",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(config)
    consumer.subscribe(["orders"])
    read = consumer.consume(5, timeout=20)
    assert [message.value() for message in read] == [b"0", b"1", b"2", b"3", b"4"]
    consumer.commit(asynchronous=False)
    consumer.close()
    coordinator = cluster.leader("__consumer_offsets")
    assert coordinator is not None
    assert cluster.isr("__consumer_offsets") == [1, 2, 3]
    cluster.kill(coordinator)
    cluster.wait_for_leader("__consumer_offsets", other_than=coordinator)
    consumer = Consumer(config)
    consumer.subscribe(["orders"])
    read = consumer.consume(5, timeout=20)
    consumer.close()
    assert [message.value() for message in read] == [b"5", b"6", b"7", b"8", b"9"]


def test_transactions_over_partitions_of_several_brokers_are_atomic(cluster: Cluster) -> None:
    cluster.create_topic("orders", 3)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "writer"})
    producer.init_transactions(20)
    for number, is_commit in enumerate([True, False, True]):
        producer.begin_transaction()
        for partition in range(3):
            producer.produce("orders", f"{number}", partition=partition)
        if is_commit:
            producer.commit_transaction(20)
        else:
            producer.abort_transaction(20)
    for partition in range(3):
        assert values(cluster, "orders", partition) == [b"0", b"2"]


def test_a_transaction_is_completed_by_the_next_coordinator(
    cluster: Cluster, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    cluster.create_topic("orders", 3)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "writer"})
    producer.init_transactions(20)
    producer.begin_transaction()
    for partition in range(3):
        producer.produce("orders", "first", partition=partition)
    producer.flush(20)
    coordinator = cluster.leader("__transaction_state")
    assert coordinator is not None
    cluster.kill(coordinator)
    try:
        producer.commit_transaction(1)
    except KafkaException:
        # The next coordinator was not known in time.
        producer.commit_transaction(30)
    # As in Kafka, a commit is answered when it is decided. A marker that could not be written is retried.
    wait_until(lambda: all(values(cluster, "orders", partition) == [b"first"] for partition in range(3)))


def test_a_deleted_topic_is_deleted_on_every_broker_and_its_name_can_be_used_again(cluster: Cluster) -> None:
    cluster.create_topic("orders")
    cluster.produce("orders", "old")
    with Client(cluster.bootstrap_servers) as client:
        Admin(client).topics.delete(["orders"])
    cluster.create_topic("orders")
    cluster.produce("orders", "new")
    assert values(cluster, "orders") == [b"new"]
    for number in cluster.brokers:
        assert cluster.stored("orders", on=number) == [b"new"]


def test_invalid_replication_factors_are_refused(cluster: Cluster) -> None:
    with pytest.raises(
        Exception, match="replication factor of 4 needs as many live brokers that are not cordoned, and there are 3"
    ):
        cluster.create_topic("orders", 1, 4)
    cluster.create_topic("single", 1, 1)
    assert len(cluster.isr("single")) == 1
