"""`logbrook cluster` manages a cluster of Apache Kafka: two brokers, and a third one that is added and removed."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from time import monotonic

import pytest

from logbrook.client import Client
from logbrook.client.admin import Admin
from tests.interop.java.kafka_broker import KafkaBroker
from tests.unit.cli.shell import Shell

# Values of Kafka's settings for the internal topics, which the brokers of this test do not create.
HOST = "127.0.0.1"


class KafkaPeer(KafkaBroker):
    """One more broker for the cluster of `first`, without a controller."""

    def __init__(self, classpath: str, directory: Path, node_id: int, first: KafkaBroker) -> None:
        super().__init__(classpath, directory)
        self._node_id = node_id
        self._first = first

    def _required(self, port: int, controller_port: int) -> dict[str, str]:
        del controller_port
        voters = re.search(r"^controller\.quorum\.voters=(.*)$", self._first._properties_path.read_text(), re.MULTILINE)
        assert voters is not None
        return {
            "process.roles": "broker",
            "node.id": str(self._node_id),
            "controller.quorum.voters": voters[1],
            "listeners": f"PLAINTEXT://{HOST}:{port}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self._directory / "data"),
        }


@pytest.fixture
def brokers(tools_jars: str, tmp_path: Path) -> Iterator[list[KafkaBroker]]:
    with (
        KafkaBroker(tools_jars, tmp_path / "1") as first,
        KafkaPeer(tools_jars, tmp_path / "2", 2, first) as second,
        KafkaPeer(tools_jars, tmp_path / "3", 3, first) as third,
    ):
        yield [first, second, third]


def wait_until(condition: Callable[[], bool]) -> None:
    until_s = monotonic() + 60
    while not condition():
        assert monotonic() < until_s, "the condition does not hold after 60 s"
        Event().wait(0.1)


def nodes(shell: Shell) -> dict[int, tuple[str, int, int]]:
    return {
        node["id"]: (node["state"], node["replicas"], node["leaders"])
        for node in shell.json("cluster", "status")["nodes"]
    }


@pytest.mark.long
def test_partitions_of_kafka_are_moved_and_balanced_and_a_broker_is_drained_and_removed(
    brokers: list[KafkaBroker], tmp_path: Path
) -> None:
    shell = Shell(brokers[0].bootstrap_servers, tmp_path)
    wait_until(lambda: len(nodes(shell)) == 3)
    with Client(brokers[0].bootstrap_servers) as client:
        Admin(client).topics.create("orders", 6, 2)
    wait_until(lambda: sum(replicas for _, replicas, _ in nodes(shell).values()) == 12)
    shell.ok("cluster", "move", "orders", "--to", "1,2", "--throttle", "50MB")
    wait_until(lambda: nodes(shell)[3] == ("up", 0, 0))
    settings = {setting["name"]: setting for setting in shell.json("topic", "config", "orders")}
    assert settings["leader.replication.throttled.replicas"]["value"] == ""
    assert [row["replicas_after"] for row in shell.json("cluster", "balance", "--dry-run")["nodes"]] == [4, 4, 4]
    shell.ok("cluster", "balance", "--yes", "--throttle", "50MB")
    wait_until(lambda: nodes(shell) == dict.fromkeys((1, 2, 3), ("up", 4, 2)))
    shell.ok("cluster", "drain", "3", "--yes")
    wait_until(lambda: nodes(shell)[3] == ("up", 0, 0))
    assert shell.refused("cluster", "remove", "3").startswith("node 3 has no replicas, but it runs")
    brokers[2].stop()
    wait_until(lambda: nodes(shell)[3] == ("down", 0, 0))
    shell.ok("cluster", "remove", "3")
    wait_until(lambda: sorted(nodes(shell)) == [1, 2])
