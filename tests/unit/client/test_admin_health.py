"""`check_health`: every kind of damage is reported, and a healthy cluster is healthy."""

from logbrook import Broker
from logbrook.client import Client
from logbrook.client.admin_health import check_health
from logbrook.model import TopicPartition
from logbrook.model.identifiers import BrokerId
from tests.unit.client.unhealthy_cluster import LEADERLESS, OF_BROKER_2, QUARANTINED, UNREADABLE, unhealthy_cluster


def test_every_problem_is_reported() -> None:
    with unhealthy_cluster() as broker, Client(broker.address, timeout_s=10) as client:
        health = check_health(client)
    assert not health.is_healthy
    assert (health.controller_id, health.brokers) == (2, (1, 2))
    assert list(health.brokers_down) == [2]
    assert health.brokers_down[BrokerId(2)].startswith("cannot connect to 127.0.0.1:1")
    assert health.offline_log_dirs == ("/data of broker 1: KAFKA_STORAGE_ERROR",)
    assert health.leaderless_partitions == (TopicPartition("t", LEADERLESS),)
    assert health.under_replicated_partitions == (TopicPartition("t", OF_BROKER_2),)
    assert health.unavailable_partitions == {
        TopicPartition("t", UNREADABLE): "KAFKA_STORAGE_ERROR",
        TopicPartition("t", QUARANTINED): "the leader's replica is offline or quarantined",
    }


def test_a_cluster_without_problems_is_healthy() -> None:
    with Broker({"orders": 3}) as broker, Client(broker.bootstrap_servers) as client:
        assert check_health(client).is_healthy
