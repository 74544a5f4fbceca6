"""WriteTxnMarkers between the brokers of a cluster: markers of a deposed coordinator are refused."""

from collections.abc import Callable

from confluent_kafka import Producer

from logbrook.client.connection import Connection
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages import describe_producers
from logbrook.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from logbrook.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from logbrook.testing.cluster import Cluster
from tests.cluster.test_administration import connect

TOPIC = "orders"
TRANSACTION_STATE = "__transaction_state"
WAIT_S = 30


def producer_in(connection: Connection) -> describe_producers.ProducerState:
    """Return the state of the only producer of the topic's partition."""
    request = DescribeProducersRequest(topics=[describe_producers.TopicRequest(name=TOPIC, partition_indexes=[0])])
    (partition,) = connection.request(request, DescribeProducersResponse).topics[0].partitions
    (producer,) = partition.active_producers
    return producer


def abort(connection: Connection, producer: describe_producers.ProducerState, coordinator_epoch: int) -> int:
    """Write a marker that aborts the producer's open transaction, as a coordinator does. Return the error code."""
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        coordinator_epoch=coordinator_epoch,
        topics=[WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])],
    )
    (result,) = connection.request(WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse).markers
    return result.topics[0].partitions[0].error_code


def write(producer: Producer, value: str) -> None:
    """Begin a transaction that has one record."""
    producer.begin_transaction()
    producer.produce(TOPIC, value, partition=0)
    assert producer.flush(WAIT_S) == 0


def test_a_marker_of_a_deposed_coordinator_is_refused(
    cluster: Cluster, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    cluster.create_topic(TOPIC)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "writer"})
    producer.init_transactions(WAIT_S)
    write(producer, "of the first coordinator")
    producer.commit_transaction(WAIT_S)
    with connect(cluster, cluster.wait_for_leader(TOPIC)) as connection:
        deposed = producer_in(connection).coordinator_epoch
    coordinator = cluster.wait_for_leader(TRANSACTION_STATE)
    cluster.kill(coordinator)
    cluster.wait_for_leader(TRANSACTION_STATE, other_than=coordinator)
    write(producer, "of the second coordinator")
    producer.commit_transaction(WAIT_S)
    write(producer, "open")
    with connect(cluster, cluster.wait_for_leader(TOPIC)) as connection:
        # The marker of the commit may be on its way when the client is answered, but not once the next one is open.
        known = producer_in(connection)
        assert known.coordinator_epoch > deposed
        assert known.current_txn_start_offset >= 0
        assert abort(connection, known, deposed) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert producer_in(connection).current_txn_start_offset == known.current_txn_start_offset
    producer.commit_transaction(WAIT_S)
    wait_until(
        lambda: (
            [record.value for record in cluster.records(TOPIC)]
            == [b"of the first coordinator", b"of the second coordinator", b"open"]
        )
    )
