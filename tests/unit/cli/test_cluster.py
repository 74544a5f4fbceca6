"""`logbrook cluster`, against a real broker; unhealthy clusters are scripted."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from logbrook import Broker
from tests.unit.cli.shell import Shell
from tests.unit.client.unhealthy_cluster import unhealthy_cluster


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"orders": 2, "events": 1}) as broker:
        yield broker


@pytest.fixture
def shell(broker: Broker, tmp_path: Path) -> Shell:
    return Shell(broker.bootstrap_servers, tmp_path)


def test_info_has_brokers_disks_and_counts(shell: Shell, broker: Broker) -> None:
    document = shell.json("cluster", "info")
    (node,) = document.pop("brokers")
    assert len(document.pop("cluster_id")) == 22
    assert document == {"controller": 1, "topics": 2, "partitions": 3}
    (directory,) = node.pop("log_dirs")
    assert f"{node['host']}:{node['port']}" == broker.bootstrap_servers
    assert (node["id"], node["rack"]) == (1, None)
    assert 0 < directory["free_bytes"] <= directory["disk_bytes"]
    text = shell.ok("cluster", "info")
    assert "topics      2\n" in text
    assert "BROKER  PATH" in text


def test_a_healthy_cluster_ends_with_0(shell: Shell) -> None:
    assert shell.json("cluster", "health") == {
        "healthy": True,
        "controller": 1,
        "brokers": [1],
        "brokers_down": {},
        "offline_log_dirs": [],
        "leaderless_partitions": [],
        "under_replicated_partitions": [],
        "unavailable_partitions": {},
    }
    assert "leaderless partitions        none\n" in shell.ok("cluster", "health")


def test_an_unhealthy_cluster_ends_with_1(tmp_path: Path) -> None:
    with unhealthy_cluster() as scripted:
        done = Shell(scripted.address, tmp_path).run("cluster", "health")
    assert (done.code, done.err) == (1, "")
    fields = dict(line.split("  ", 1) for line in done.out.splitlines())
    assert fields["healthy"].strip() == "no"
    assert fields["leaderless partitions"].strip() == "t-3"
    assert fields["unavailable partitions"].strip().startswith("t-1 (KAFKA_STORAGE_ERROR), t-4 (the leader's replica")


def test_an_unreachable_cluster_is_reported(shell: Shell) -> None:
    assert shell.refused("cluster", "health", "-b", "127.0.0.1:1").startswith("cannot connect to 127.0.0.1:1")


def test_settings_of_all_brokers_are_changed_and_unset(shell: Shell) -> None:
    assert shell.ok("cluster", "config", "log.retention.ms=3d") == "changed log.retention.ms of all brokers\n"
    changed = {row["name"]: row for row in shell.json("cluster", "config", "--changed")}
    assert changed["log.retention.ms"] == {
        "name": "log.retention.ms",
        "value": "259200000",
        "source": "dynamic_default_broker",
        "default": "259200000",
        "read_only": False,
        "sensitive": False,
    }
    assert "log.retention.ms" in shell.ok("cluster", "config", "--changed")
    assert shell.json("topic", "describe", "orders")["settings"][0]["source"] == "dynamic_default_broker"
    shell.ok("cluster", "config", "--broker", "1", "log.retention.ms=12h")
    effective = {row["name"]: row["value"] for row in shell.json("cluster", "config", "--broker", "1")}
    assert effective["log.retention.ms"] == "43200000"
    shell.ok("cluster", "config", "--broker", "1", "--unset", "log.retention.ms")
    shell.ok("cluster", "config", "--unset", "log.retention.ms")
    effective = {row["name"]: row["value"] for row in shell.json("cluster", "config")}
    assert effective["log.retention.ms"] == "604800000"


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (
            ["log.retention=3d"],
            1,
            "changing the settings of all brokers: log.retention: there is no such setting; did you mean ",
        ),
        (["--unset", "log.retention.msec"], 1, "a broker has no setting 'log.retention.msec'; did you mean log.ret"),
        (["--broker", "1", "num.partitions=3"], 1, "changing the settings of broker 1: num.partitions cannot be cha"),
        (["--broker", "7"], 2, "--broker: there is no broker 7; there are 1"),
        (["a=1", "--unset", "a"], 2, "--unset: a cannot be set and unset at once"),
        (["log.retention.ms"], 2, "KEY=VALUE...: 'log.retention.ms' is not KEY=VALUE"),
    ],
)
def test_invalid_changes_are_refused(shell: Shell, arguments: list[str], code: int, sentence: str) -> None:
    assert shell.refused("cluster", "config", *arguments, code=code).startswith(sentence)
