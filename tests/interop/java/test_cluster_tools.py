"""Kafka's tools for clusters, against replicated brokers: moves with a throttle, elections, brokers that are gone."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from logbrook.testing.cluster import Cluster
from logbrook.testing.processes import wait_until
from tests.interop.java.kafka_tools import KafkaTools

WAIT_S = 60


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=3, lease_s=3.0) as cluster:
        yield cluster


def test_partitions_are_moved_elected_and_a_dead_broker_is_unregistered(
    tools: KafkaTools, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.create_topic("orders", assignments=[[1, 3]])
    cluster.produce("orders", "moved")
    tools = tools.of(cluster.brokers[1])
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [2, 1]}]}))
    moved = tools.run(
        "kafka-reassign-partitions", "--reassignment-json-file", str(plan), "--execute", "--throttle", "1000000"
    )
    assert "Successfully started partition reassignment for orders-0" in moved.output
    assert wait_until(lambda: cluster.replicas("orders") == [2, 1], WAIT_S)
    verified = tools.run("kafka-reassign-partitions", "--reassignment-json-file", str(plan), "--verify")
    assert "Reassignment of partition orders-0 is completed." in verified.output
    assert "Clearing topic-level throttles" in verified.output
    assert cluster.stored("orders", on=2) == [b"moved"]

    elected = tools.run(
        "kafka-leader-election", "--election-type", "PREFERRED", "--topic", "orders", "--partition", "0"
    )
    assert "orders-0" in elected.output
    assert cluster.wait_for_leader("orders") == 2

    cluster.kill(3)
    assert wait_until(lambda: 3 not in cluster._store.read_image()[0].brokers, WAIT_S)
    assert "Broker 3 is no longer registered." in tools.run("kafka-cluster", "unregister", "--id", "3").output
