"""The metrics of brokers in a cluster."""

from collections.abc import Callable, Iterator
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from logbrook.client import Client
from logbrook.client.admin import Admin
from logbrook.model import TopicPartition
from logbrook.model.identifiers import BrokerId
from logbrook.server.metrics.cluster import CLUSTER
from logbrook.testing.cluster import Cluster

WaitUntil = Callable[[Callable[[], bool]], None]


@pytest.fixture
def measured() -> Iterator[Cluster]:
    settings = {"metrics": {"listen": "127.0.0.1:0"}}
    with Cluster(nodes=3, lease_s=2.0, replica_lag_ms_max=1_000, settings=settings) as cluster:
        yield cluster


def scrape(cluster: Cluster, number: int) -> dict[tuple[str, tuple[str, ...]], float]:
    """Return the samples of a broker by name and values of the labels."""
    address = cluster.brokers[number]._running.http_address
    assert address is not None
    with urlopen("http://{}:{}/metrics".format(*address), timeout=30) as response:
        text = response.read().decode()
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(cluster: Cluster, number: int, name: str, *labels: str) -> float:
    return scrape(cluster, number)[f"logbrook_{name}", labels]


def test_every_metric_of_clusters_has_a_value(measured: Cluster) -> None:
    measured.create_topic("orders", assignments=[[1, 2]])
    measured.produce("orders", "first")
    measured.wait_for_isr("orders")
    names = {name for name, _ in scrape(measured, 1)}
    for metric in CLUSTER:
        suffix = "_count" if metric.kind == "histogram" else ""
        if metric.name != "logbrook_cluster_store_errors_total":
            assert f"{metric.name}{suffix}" in names


def test_leaders_count_their_partitions_and_followers(measured: Cluster, wait_until: WaitUntil) -> None:
    measured.create_topic("orders", assignments=[[1, 2], [1, 2], [2, 3]])
    measured.produce("orders", *(bytes(1000) for _ in range(10)), partition=0)
    measured.wait_for_isr("orders")
    assert value(measured, 1, "cluster_partitions_led") == 2
    assert value(measured, 2, "cluster_partitions_led") == 1
    assert [value(measured, number, "cluster_replicas") for number in (1, 2, 3)] == [2, 3, 1]
    assert value(measured, 1, "cluster_nodes", "up") == 3
    wait_until(lambda: value(measured, 1, "partition_follower_lag", "orders", "0", "2") == 0)
    assert value(measured, 2, "cluster_fetched_bytes_total") > 10_000
    assert value(measured, 1, "cluster_elections_total") == 2
    assert value(measured, 1, "cluster_lease_certain") == 1
    assert 0 <= value(measured, 1, "cluster_lease_age_seconds") < 2
    wait_until(lambda: value(measured, 1, "cluster_lease_renewals_total", "answered") >= 1)
    assert value(measured, 1, "cluster_registrations_total") == 1
    assert value(measured, 1, "cluster_store_duration_seconds_count", "commit") > 0
    assert value(measured, 1, "cluster_metadata_revision") > 0


def test_a_lost_broker_shows_in_the_metrics_of_the_others(measured: Cluster, wait_until: WaitUntil) -> None:
    cluster = measured
    cluster.create_topic("orders", assignments=[[1, 3], [3]], settings={"min.insync.replicas": "2"})
    cluster.kill(3)
    wait_until(lambda: value(cluster, 1, "cluster_partitions_under_replicated") == 1)
    wait_until(lambda: value(cluster, 1, "cluster_partitions_offline") == 1)
    assert value(cluster, 2, "cluster_partitions_offline") == 1, "every broker counts them"
    assert value(cluster, 2, "cluster_partitions_under_replicated") == 0, "only the leader counts it"
    assert value(cluster, 1, "cluster_partitions_under_min_isr") == 1
    assert value(cluster, 1, "cluster_isr_changes_total", "shrink") == 1
    assert value(cluster, 1, "cluster_nodes", "down") == 1
    cluster.restart(3)
    wait_until(lambda: value(cluster, 1, "cluster_partitions_under_replicated") == 0)
    assert value(cluster, 1, "cluster_isr_changes_total", "expand") == 1
    assert value(cluster, 1, "cluster_partitions_offline") == 0


def test_a_move_and_its_lag_are_counted(measured: Cluster, wait_until: WaitUntil) -> None:
    cluster = measured
    cluster.create_topic("orders", assignments=[[1]], settings={"leader.replication.throttled.replicas": "*"})
    for _ in range(8):
        cluster.produce("orders", bytes(500_000))
    with Client(cluster.bootstrap_servers) as client:
        admin = Admin(client)
        admin.configs.alter_all_brokers({"leader.replication.throttled.rate": "1"})
        admin.replicas.move({TopicPartition("orders", 0): [BrokerId(1), BrokerId(3)]})
        wait_until(lambda: value(cluster, 1, "cluster_partitions_moving") == 1)
        wait_until(lambda: value(cluster, 1, "cluster_follower_lag_max") > 0)
        assert value(cluster, 1, "cluster_partitions_under_replicated") == 0, "the added replica does not count"
        admin.configs.alter_all_brokers({}, unset=["leader.replication.throttled.rate"])
    wait_until(lambda: value(cluster, 1, "cluster_partitions_moving") == 0)
    wait_until(lambda: value(cluster, 1, "cluster_follower_lag_max") == 0)


def test_a_broker_without_its_metadata_store_reports_it(measured: Cluster, wait_until: WaitUntil) -> None:
    measured.stop_store()
    wait_until(lambda: value(measured, 1, "cluster_lease_certain") == 0)
    wait_until(lambda: value(measured, 1, "cluster_lease_renewals_total", "failed") >= 1)
    assert value(measured, 1, "cluster_lease_age_seconds") > 1
    measured.start_store()
    wait_until(lambda: value(measured, 1, "cluster_lease_certain") == 1)
