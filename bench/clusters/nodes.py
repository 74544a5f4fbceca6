"""A cluster of server processes under test, and what is asked of it by Kafka's protocol."""

import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.clusters.network import ClusterNetwork
from bench.peers.system import Server

NODES = (1, 2, 3)
WAIT_S_MAX = 180.0
_POLL_S = 0.02
_REQUEST_S = 10.0


class ClusterError(Exception):
    """The cluster did not do in time what a measurement needs."""


class BenchCluster:
    """Node processes by their number. `store` is the process of the metadata store, if it has one of its own.

    `address_of` has the addresses that clients are told. With `network`, those are of its proxy, and a node can be
    cut off; the caller has entered it, and closes it after the cluster.
    """

    def __init__(
        self,
        nodes: Mapping[int, Server],
        address_of: Mapping[int, str],
        *,
        store: Server | None = None,
        network: ClusterNetwork | None = None,
    ) -> None:
        self.nodes = nodes
        self.address_of = address_of
        self.store = store
        self.network = network

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self.address_of.values())

    def __enter__(self) -> Self:
        try:
            if self.store is not None:
                self.store.launch()
            for node in self.nodes.values():
                node.launch()
            self.wait_for_nodes()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for server in (*self.nodes.values(), self.store):
            if server is not None:
                server.kill()

    @property
    def servers(self) -> list[Server]:
        """All processes of the system: its nodes and its metadata store."""
        return [*self.nodes.values(), *([] if self.store is None else [self.store])]

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 2})

    def wait_for_nodes(self) -> None:
        """Wait until all nodes are members. Raises ClusterError."""
        admin = self.admin()
        wait_until(lambda: len(_brokers(admin)) == len(self.nodes), "all nodes are members of the cluster")

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        """Create a topic with a replica on every node, and wait until all are in sync. Raises ClusterError."""
        admin = self.admin()
        new = NewTopic(topic, partitions, len(self.nodes), config=dict(settings))
        admin.create_topics([new], operation_timeout=WAIT_S_MAX)[topic].result(WAIT_S_MAX)
        self.wait_until_in_sync(topic, partitions)

    def delete_topic(self, topic: str) -> None:
        admin = self.admin()
        admin.delete_topics([topic])[topic].result(WAIT_S_MAX)

    def wait_until_in_sync(self, topic: str, partitions: int) -> None:
        """Wait until every partition has a leader, and all its replicas are in sync. Raises ClusterError."""
        admin, count = self.admin(), len(self.nodes)

        def is_complete() -> bool:
            replicas = _in_sync(admin, topic)
            return len(replicas) == partitions and all(size == count for size in replicas)

        wait_until(is_complete, f"all replicas of {topic} are in sync")

    def leader_of(self, topic: str, partition: int) -> int:
        """Raises KafkaException."""
        metadata = self.admin().list_topics(topic, timeout=_REQUEST_S)
        return int(metadata.topics[topic].partitions[partition].leader)

    def signal(self, node: int, number: signal.Signals) -> None:
        """Send a signal to a node, and do not wait for anything."""
        os.kill(self.nodes[node].pid, number)


def wait_until(condition: Callable[[], bool], text: str, timeout_s: float = WAIT_S_MAX) -> None:
    """Raises ClusterError."""
    pause = Event()
    until_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > until_s:
            raise ClusterError(f"not within {timeout_s:.0f} s: {text}")
        pause.wait(_POLL_S)


def directory_of(parent: Path, name: str) -> Path:
    path = parent / name
    path.mkdir()
    return path


def _brokers(admin: AdminClient) -> list[int]:
    try:
        return list(admin.list_topics(timeout=1.0).brokers)
    except KafkaException:
        return []


def _in_sync(admin: AdminClient, topic: str) -> list[int]:
    """Return the number of in-sync replicas of each partition, 0 for one without a leader."""
    try:
        partitions = admin.list_topics(topic, timeout=_REQUEST_S).topics[topic].partitions.values()
    except KafkaException:
        return []
    return [len(partition.isrs) if partition.leader >= 0 else 0 for partition in partitions]
