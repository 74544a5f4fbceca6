"""Brokers that reach each other over a listener of their own."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from logbrook.client import Client
from logbrook.client.connection import Connection
from logbrook.config.network import DEFAULT_LISTENER, split_address
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.fetch import FetchRequest, FetchResponse, ReplicaState
from logbrook.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from logbrook.testing.cluster import Cluster

WAIT_S = 30


@pytest.fixture
def separated() -> Iterator[Cluster]:
    settings = {"network.listeners": "INTERNAL=127.0.0.1:0,OUTSIDE=127.0.0.1:0", "cluster.listener": "INTERNAL"}
    with Cluster(nodes=3, settings=settings, lease_s=30) as cluster:
        yield cluster


def port_of(cluster: Cluster, number: int, listener: str) -> int:
    return cluster.brokers[number]._running.endpoints[listener].port


def test_records_and_transactions_are_replicated_over_the_listener_of_the_brokers(separated: Cluster) -> None:
    separated.create_topic("orders", 3)
    producer = Producer({"bootstrap.servers": separated.bootstrap_servers, "transactional.id": "writer"})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    for partition in range(3):
        producer.produce("orders", b"%d" % partition, partition=partition)
    producer.commit_transaction(WAIT_S)
    assert sorted(record.value or b"" for record in separated.records("orders")) == [b"0", b"1", b"2"]
    connected_to = {address for broker in separated.brokers.values() for address, _ in broker._peers}
    internal = {f"127.0.0.1:{port_of(separated, number, 'INTERNAL')}" for number in separated.brokers}
    assert connected_to
    assert connected_to <= internal


def test_each_client_is_referred_to_brokers_by_the_listener_that_it_uses(separated: Cluster) -> None:
    for listener in (DEFAULT_LISTENER, "OUTSIDE"):
        with Client(f"127.0.0.1:{port_of(separated, 1, listener)}") as client:
            ports = [broker.port for broker in client.metadata().brokers]
        assert ports == [port_of(separated, number, listener) for number in (1, 2, 3)]


def test_requests_of_brokers_are_refused_on_the_listeners_of_clients(separated: Cluster) -> None:
    separated.create_topic("orders", assignments=[[1, 2, 3]])
    fetch = FetchRequest(replica_state=ReplicaState(replica_id=2, replica_epoch=1))
    marker = WritableTxnMarker(producer_id=1, topics=[WritableTxnMarkerTopic(name="orders", partition_indexes=[0])])
    with Connection(*split_address(separated.brokers[1].bootstrap_servers)) as connection:
        response = connection.request(fetch, FetchResponse)
        assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        written = connection.request(WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse)
        assert written.markers[0].topics[0].partitions[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    with Connection("127.0.0.1", port_of(separated, 1, "INTERNAL")) as connection:
        response = connection.request(fetch, FetchResponse)
        assert response.error_code == ErrorCode.NONE
