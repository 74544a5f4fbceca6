"""Kafka's tools for clusters, against replicated brokers: moves with a throttle, elections, brokers that are gone."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from logbrook.core.cluster.features import CLUSTER_VERSION, FeatureRange
from logbrook.testing.cluster import Cluster
from logbrook.testing.processes import wait_until
from tests.interop.java.kafka_tools import KafkaTools

WAIT_S = 60


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=3, lease_s=3.0) as cluster:
        yield cluster


def test_kafka_features_prints_and_raises_the_level_of_the_cluster(tools: KafkaTools, cluster: Cluster) -> None:
    for broker in cluster.brokers.values():
        broker.features = {CLUSTER_VERSION: FeatureRange(1, 2)}
        broker.restart()
    tools = tools.of(cluster.brokers[1])

    def described() -> list[str]:
        lines = tools.run("kafka-features", "describe").lines
        (line,) = [line for line in lines if "logbrook.version" in line]
        return line.split()[1:-2]

    names = ["SupportedMinVersion:", "1", "SupportedMaxVersion:", "2", "FinalizedVersionLevel:"]
    assert described() == ["logbrook.version", *names, "1"]
    tools.run("kafka-features", "upgrade", "--feature", "logbrook.version=2")
    assert described() == ["logbrook.version", *names, "2"]
    refused = tools.run("kafka-features", "downgrade", "--feature", "logbrook.version=1", code=1, allowed="Exception")
    assert "levels are never lowered" in refused.output


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
