"""Brokers of a cluster that are killed while queries run: they continue with the others, and deliver exactly once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from logbrook.client import Client, ClientError
from logbrook.client.admin import Admin
from logbrook.spark.tables.union import history
from logbrook.testing.copy.topics import read_topic
from logbrook.testing.etcd import EtcdProcess
from logbrook.testing.kill.broker_process import BrokerProcess
from logbrook.testing.processes import free_port, working_directory
from tests.etcd_command import etcd_or_skip
from tests.interop.waiting import wait_until
from tests.spark.limits import QUERY_S_MAX
from tests.spark.test_outages import (
    INPUT,
    LAST,
    OUTPUT,
    PART,
    PARTITIONS,
    READY_S_MAX,
    WINDOW_S,
    WINDOWS,
    produce,
    records_read,
    rows_in,
    start_copy,
    start_windows,
)

NODES = (1, 2, 3)
DURABLE = {"min.insync.replicas": "2"}


@pytest.fixture
def brokers() -> Iterator[dict[int, BrokerProcess]]:
    """Three brokers that replicate to each other."""
    with working_directory("cluster-outage") as (directory, reaper), EtcdProcess(etcd_or_skip()) as etcd:
        flags = ("--metrics=", f"--cluster={etcd.address}/spark", "--log-min-insync-replicas=2")
        brokers = {
            number: BrokerProcess(
                f"{directory}/{number}", free_port(), f"{directory}/log-{number}", (*flags, f"--node={number}"), reaper
            )
            for number in NODES
        }
        for broker in brokers.values():
            broker.start()
        try:
            for broker in brokers.values():
                broker.wait_until_ready(READY_S_MAX)
            wait_until(lambda: is_in_sync(brokers), "three brokers", READY_S_MAX)
            yield brokers
        finally:
            for broker in brokers.values():
                broker.end()


def servers_of(brokers: dict[int, BrokerProcess]) -> str:
    return ",".join(broker.address for broker in brokers.values())


def is_in_sync(brokers: dict[int, BrokerProcess]) -> bool:
    """Return True if all brokers are registered and have all replicas in sync."""
    try:
        with Client(servers_of(brokers)) as client:
            metadata = client.metadata()
    except ClientError:
        return False
    return len(metadata.brokers) == len(NODES) and all(
        len(partition.isr_nodes) == len(NODES) for topic in metadata.topics for partition in topic.partitions
    )


def kill_leader(brokers: dict[int, BrokerProcess], topic: str) -> BrokerProcess:
    with Client(servers_of(brokers)) as client:
        leader = Admin(client).topics.describe(topic).partitions[0].leader
    assert leader is not None
    brokers[leader].kill()
    return brokers[leader]


def restart(brokers: dict[int, BrokerProcess], killed: BrokerProcess) -> None:
    killed.start()
    wait_until(lambda: is_in_sync(brokers), "all replicas in sync", READY_S_MAX)


@pytest.mark.long
def test_queries_into_a_topic_and_a_table_go_on_when_a_broker_of_a_cluster_is_killed(
    spark: SparkSession, brokers: dict[int, BrokerProcess], tmp_path: Path
) -> None:
    servers = servers_of(brokers)
    with Client(servers) as client:
        for topic in (INPUT, OUTPUT):
            Admin(client).topics.create(topic, PARTITIONS, settings=DURABLE)
    produce(servers, range(PART))
    queries = [start_copy(spark, servers, tmp_path), start_windows(spark, servers, tmp_path)]
    try:
        wait_until(lambda: all(map(records_read, queries)), "the first batch of each", QUERY_S_MAX)
        killed = kill_leader(brokers, INPUT)
        # Written and read while the broker is down.
        produce(servers, range(PART, 2 * PART))
        wait_until(lambda: all(records_read(query) == 2 * PART for query in queries), "the second part", QUERY_S_MAX)
        restart(brokers, killed)
        produce(servers, range(2 * PART, 3 * PART))
        killed = kill_leader(brokers, OUTPUT)
        produce(servers, [LAST])
        total = 3 * PART + 1
        wait_until(lambda: all(records_read(query) == total for query in queries), "all records", QUERY_S_MAX)
        # A batch without records, once the last one has closed their windows.
        wait_until(lambda: rows_in(tmp_path / "table") == WINDOWS, f"{WINDOWS} windows", QUERY_S_MAX)
        restart(brokers, killed)
        assert [query.exception() for query in queries] == [None, None]
    finally:
        for query in queries:
            query.stop()
    numbers = [*range(3 * PART), LAST]
    copies = read_topic(servers, OUTPUT, PARTITIONS, "read_committed", QUERY_S_MAX)
    assert {partition: [int(value) for _, value in records] for partition, records in copies.items()} == {
        partition: [number for number in numbers if number % PARTITIONS == partition] for partition in range(PARTITIONS)
    }
    windows = history(spark, str(tmp_path / "table")).orderBy("since").collect()
    assert [tuple(row) for row in windows] == [(since, WINDOW_S) for since in range(0, 3 * PART, WINDOW_S)]
