"""`logbrook cluster` against a cluster: status, partitions, moves, balance, drain, uncordon and remove."""

import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logbrook.client import BrokerError, Client
from logbrook.client.admin import Admin
from logbrook.client.admin_results import SettingSource
from logbrook.client.cluster_overview import read_overview, read_partitions
from logbrook.client.move_throttle import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS
from logbrook.config.accepted_settings import CORDONED_LOG_DIRS
from logbrook.core.metadata import broker_settings_key
from logbrook.model import TopicPartition
from logbrook.model.identifiers import BrokerId
from logbrook.protocol.messages.metadata import MetadataResponse
from logbrook.testing.cluster import Cluster
from tests.cluster.load import Load
from tests.unit.cli.shell import Shell

WaitUntil = Callable[[Callable[[], bool]], None]


@pytest.fixture
def shell(cluster: Cluster, tmp_path: Path) -> Shell:
    return Shell(cluster.bootstrap_servers, tmp_path)


@pytest.fixture
def racked() -> Iterator[Cluster]:
    with Cluster(nodes=4, racks=["a", "b", "c", "a"], lease_s=30) as cluster:
        yield cluster


def throttles(cluster: Cluster, *topics: str) -> dict[str, str]:
    """Return the throttle settings of these topics and of all brokers that are set."""
    with Client(cluster.bootstrap_servers) as client:
        configs = Admin(client).configs
        settings = [setting for topic in topics for setting in configs.of_topic(topic)]
        for number in cluster.brokers:
            settings += configs.of_broker(cluster.brokers[number].number)
    names = (LEADER_REPLICAS, FOLLOWER_REPLICAS, LEADER_RATE, FOLLOWER_RATE)
    return {
        setting.name: setting.value or ""
        for setting in settings
        if setting.name in names and setting.source is not SettingSource.DEFAULT
    }


def moving(cluster: Cluster) -> int:
    with Client(cluster.bootstrap_servers) as client:
        return len(read_overview(client).moving)


def test_status_shows_nodes_and_totals(cluster: Cluster, shell: Shell) -> None:
    cluster.create_topic("orders", assignments=[[1, 2], [2, 1], [3, 1]])
    cluster.produce("orders", "first", partition=0)
    document = shell.json("cluster", "status")
    nodes = {node["id"]: node for node in document["nodes"]}
    assert {number: (node["leaders"], node["replicas"], node["state"]) for number, node in nodes.items()} == {
        1: (1, 3, "up"),
        2: (1, 2, "up"),
        3: (1, 1, "up"),
    }
    assert f"{nodes[2]['host']}:{nodes[2]['port']}" == cluster.brokers[2].bootstrap_servers
    assert nodes[1]["size_bytes"] > nodes[3]["size_bytes"]
    assert (document["topics"], document["partitions"]) == (1, 3)
    assert (document["under_replicated"], document["offline"], document["moving"]) == ([], [], [])
    text = shell.ok("cluster", "status")
    assert "nodes             3 of 3 up\n" in text
    assert "NODE  ADDRESS" in text


def test_status_shows_what_a_lost_node_impairs(tmp_path: Path, wait_until: WaitUntil) -> None:
    with Cluster(nodes=3, lease_s=1.0, racks=["a", "b", "c"]) as cluster:
        shell = Shell(cluster.bootstrap_servers, tmp_path)
        cluster.create_topic("orders", assignments=[[1, 3], [3]])
        cluster.kill(3)
        wait_until(lambda: shell.json("cluster", "status")["offline"] == ["orders-1"])
        wait_until(lambda: "orders-0" in shell.json("cluster", "status")["under_replicated"])
        # The partitions are impaired at once, and the node is down when its lease has ended.
        wait_until(lambda: shell.json("cluster", "status")["nodes"][2]["state"] == "down")
        node = shell.json("cluster", "status")["nodes"][2]
        assert (node["id"], node["state"], node["rack"], node["replicas"]) == (3, "down", "c", 2)
        assert f"{node['host']}:{node['port']}" == cluster.brokers[3].bootstrap_servers
        assert shell.ok("cluster", "partitions", "--offline").splitlines()[1].split()[:2] == ["orders-1", "-"]
        rows = {row["partition"]: row for row in shell.json("cluster", "partitions", "--under-replicated")}
        assert rows[0]["offline_replicas"] == [3]
        text = shell.ok("cluster", "status")
        assert "Offline or under-replicated" in text
        cluster.restart(3)
        wait_until(lambda: shell.json("cluster", "status")["under_replicated"] == [])


def test_a_node_that_does_not_answer_yet_is_not_down(tmp_path: Path) -> None:
    with Cluster(nodes=2, lease_s=30) as cluster:
        shell = Shell(cluster.bootstrap_servers, tmp_path)
        cluster.kill(2)
        node = shell.json("cluster", "status")["nodes"][1]
        assert (node["state"], node["size_bytes"]) == ("not answering", None)
        assert "cannot connect to" in node["problem"]


def test_status_is_refreshed_as_lines_of_json(cluster: Cluster, shell: Shell) -> None:
    with shell.start("cluster", "status", "--watch", "--json", "--interval", "0.1") as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert all(line.startswith(b'{"cluster_id"') for line in lines)


def test_partitions_are_filtered_and_mapped(cluster: Cluster, shell: Shell) -> None:
    cluster.create_topic("orders", assignments=[[1, 2], [2, 3]])
    cluster.create_topic("events", assignments=[[3]])
    lines = shell.ok("cluster", "partitions", "orders").splitlines()
    assert lines[0].split() == ["PARTITION", "LEADER", "REPLICAS", "IN", "SYNC", "SIZE", "STATE"]
    assert lines[1].split()[:4] == ["orders-0", "1", "1,2", "1,2"]
    assert len(lines) == 3
    on_3 = shell.json("cluster", "partitions", "--broker", "3")
    assert [(row["topic"], row["partition"]) for row in on_3] == [("events", 0), ("orders", 1)]
    assert shell.json("cluster", "partitions", "--moving") == []
    assert shell.json("cluster", "partitions", "ev*", "--map") == [
        {"topic": "events", "partition": 0, "nodes": {"3": "L"}}
    ]
    assert [line.split() for line in shell.ok("cluster", "partitions", "--map").splitlines()] == [
        ["PARTITION", "1", "2", "3"],
        ["events-0", ".", ".", "L"],
        ["orders-0", "L", "F", "."],
        ["orders-1", ".", "L", "F"],
    ]
    assert shell.refused("cluster", "partitions", "nothing").startswith("no topic matches 'nothing'")
    assert shell.refused("cluster", "partitions", "--broker", "9", code=2) == (
        "--broker: there is no node 9; there are 1, 2, 3"
    )


def test_a_partition_moves_by_either_notation(cluster: Cluster, shell: Shell) -> None:
    cluster.create_topic("orders", assignments=[[1, 2], [1, 2]])
    cluster.produce("orders", "kept", partition=0)
    done = shell.json("cluster", "move", "orders:0", "--to", "3,2")
    (row,) = done["moves"]
    assert (done["state"], row["from"], row["to"]) == ("done", [1, 2], [3, 2])
    assert row["size_bytes"] > 0
    assert cluster.replicas("orders", 0) == [3, 2]
    assert cluster.stored("orders", 0, on=3) == [b"kept"]
    shell.ok("cluster", "move", "orders-1", "--to", "2,3")
    assert cluster.replicas("orders", 1) == [2, 3]
    done = shell.json("cluster", "move", "orders-1", "--to", "2,3")
    assert done == {"state": "done", "moves": []}


def test_a_topic_whose_name_ends_with_a_number_comes_first(cluster: Cluster, shell: Shell) -> None:
    cluster.create_topic("orders", assignments=[[1], [1]])
    cluster.create_topic("orders-1", assignments=[[1]])
    shell.ok("cluster", "move", "orders-1", "--to", "2")
    assert (cluster.replicas("orders-1"), cluster.replicas("orders", 1)) == ([2], [1])
    shell.ok("cluster", "move", "orders:1", "--to", "3")
    assert cluster.replicas("orders", 1) == [3]


def test_a_whole_topic_moves_and_its_leaders_are_spread(cluster: Cluster, shell: Shell) -> None:
    cluster.create_topic("orders", assignments=[[1]] * 4)
    shell.ok("cluster", "move", "orders", "--to", "2,3")
    replicas = [cluster.replicas("orders", number) for number in range(4)]
    assert Counter(members[0] for members in replicas) == {2: 2, 3: 2}


def test_the_replicas_of_a_node_move_to_another(cluster: Cluster, shell: Shell) -> None:
    cluster.create_topic("orders", assignments=[[1, 2], [2, 3], [3, 1]])
    cluster.create_topic("events", assignments=[[3]])
    plan = shell.json("cluster", "move", "--from", "3", "--to", "1", "--dry-run")
    assert plan["state"] == "planned"
    done = shell.run("cluster", "move", "--from", "3", "--to", "1")
    assert done.code == 0
    assert "partitions with replicas on both nodes stay: orders-2" in done.err
    assert cluster.replicas("orders", 1) == [2, 1]
    assert cluster.replicas("orders", 2) == [3, 1]
    assert cluster.replicas("events") == [1]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["orders", "--to", "1,9"], 2, "--to: there is no node 9; up are 1, 2, 3"),
        (["orders", "--to", "1,1"], 2, "--to: 1,1 names a node twice"),
        (["orders", "--to", "one"], 2, "--to: 'one' is not a list of nodes such as 1,2,3"),
        (["orders"], 2, "--to: name the nodes to move to"),
        (["--to", "1"], 2, "TOPIC[:PARTITION]...: name topics or partitions"),
        (["orders:7", "--to", "1"], 1, "there is no topic or partition 'orders:7'; `logbrook cluster partitions`"),
        (["--from", "1", "--to", "2,3"], 2, "--to: with --from it is a single node"),
        (["--from", "9", "--to", "2"], 2, "--from: there is no node 9"),
        (["orders", "--to", "1", "--throttle", "fast"], 2, "--throttle: 'fast' is not a number of bytes per second"),
        (["orders", "--to", "1", "--throttle", "1MB", "--no-wait"], 2, "--throttle: the limit is removed at the end"),
        (["orders", "--cancel", "--to", "1"], 2, "--cancel: it takes partitions only"),
    ],
)
def test_invalid_moves_are_refused(
    cluster: Cluster, shell: Shell, arguments: list[str], code: int, sentence: str
) -> None:
    cluster.create_topic("orders", assignments=[[1]])
    assert shell.refused("cluster", "move", *arguments, code=code).startswith(sentence)
    assert cluster.replicas("orders") == [1]


def test_a_throttled_move_removes_its_settings(cluster: Cluster, shell: Shell) -> None:
    cluster.create_topic("orders", assignments=[[1, 2]], settings={LEADER_REPLICAS: "7:1"})
    cluster.produce("orders", *(bytes(100_000) for _ in range(10)))
    shell.ok("cluster", "move", "orders", "--to", "3,2", "--throttle", "100MB/s")
    assert len(cluster.stored("orders", on=3)) == 10
    assert throttles(cluster, "orders") == {LEADER_REPLICAS: "7:1"}, "others stay listed"


def begin_slow_move(cluster: Cluster, shell: Shell, process: "subprocess.Popen[bytes]", wait_until: WaitUntil) -> None:
    """Wait until a move of 4 MB is under way, of which the limit lets through a part only."""
    wait_until(lambda: process.poll() is not None or moving(cluster) == 1)
    assert process.poll() is None, process.stderr
    assert throttles(cluster, "orders") == {
        LEADER_REPLICAS: "0:1",
        FOLLOWER_REPLICAS: "0:3",
        LEADER_RATE: "1000",
        FOLLOWER_RATE: "1000",
    }


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_move_goes_on_without_its_limit(
    cluster: Cluster, shell: Shell, wait_until: WaitUntil, number: signal.Signals, code: int
) -> None:
    cluster.create_topic("orders", assignments=[[1]])
    for _ in range(8):
        cluster.produce("orders", bytes(500_000))
    with shell.start("cluster", "move", "orders", "--to", "1,3", "--throttle", "1000") as process:
        begin_slow_move(cluster, shell, process, wait_until)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
        assert process.returncode == code, err
    assert b"the move goes on, without its limit: `logbrook cluster status` shows it" in err
    assert throttles(cluster, "orders") == {}
    wait_until(lambda: moving(cluster) == 0)
    assert len(cluster.stored("orders", on=3)) == 8


def test_a_move_under_way_is_shown_repeated_and_cancelled(
    cluster: Cluster, shell: Shell, wait_until: WaitUntil
) -> None:
    cluster.create_topic("orders", assignments=[[1]])
    for _ in range(8):
        cluster.produce("orders", bytes(500_000))
    with shell.start("cluster", "move", "orders", "--to", "1,3", "--throttle", "1000") as process:
        begin_slow_move(cluster, shell, process, wait_until)
        (row,) = shell.json("cluster", "status")["moving"]
        assert (row["topic"], row["from"], row["to"]) == ("orders", [1], [1, 3])
        assert 0 <= row["copied_bytes"] < row["size_bytes"]
        assert "Moving" in shell.ok("cluster", "status")
        assert shell.json("cluster", "partitions", "--map", "--moving")[0]["nodes"] == {"1": "L", "3": "+"}
        assert shell.refused("cluster", "balance", "--yes").startswith("1 partition is being moved: wait")
        assert shell.json("cluster", "move", "--cancel")["state"] == "cancelled"
        _, err = process.communicate(timeout=60)
        assert process.returncode == 1
    assert b"orders-0 did not arrive: the move was cancelled, or replaced by another one" in err
    assert cluster.replicas("orders") == [1]
    assert throttles(cluster, "orders") == {}
    assert shell.run("cluster", "move", "orders", "--cancel").err == "nothing is being moved\n"


def test_a_move_that_is_cancelled_while_it_is_read_has_not_arrived(
    cluster: Cluster, shell: Shell, wait_until: WaitUntil, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command that waits for it exited with 0 if it was cancelled between its two requests."""
    cluster.create_topic("orders", assignments=[[1]])
    for _ in range(8):
        cluster.produce("orders", bytes(500_000))
    with shell.start("cluster", "move", "orders", "--to", "1,3", "--throttle", "1000") as process:
        begin_slow_move(cluster, shell, process, wait_until)
        with Client(cluster.bootstrap_servers) as client:
            read_metadata = client.metadata

            def read_and_cancel(topics: list[str] | None = None) -> MetadataResponse:
                metadata = read_metadata(topics)
                if moving(cluster):
                    assert shell.json("cluster", "move", "--cancel")["state"] == "cancelled"
                return metadata

            monkeypatch.setattr(client, "metadata", read_and_cancel)
            partition = read_partitions(client, ["orders"])[TopicPartition("orders", 0)]
            assert partition.is_moving or partition.replicas == (1,)
        process.communicate(timeout=60)


def test_balance_asks_and_has_a_dry_run(cluster: Cluster, shell: Shell) -> None:
    cluster.create_topic("orders", assignments=[[1, 2]] * 6)
    plan = shell.json("cluster", "balance", "--dry-run")
    assert plan["state"] == "planned"
    assert [node["replicas_after"] for node in plan["nodes"]] == [4, 4, 4]
    assert [node["leaders_after"] for node in plan["nodes"]] == [2, 2, 2]
    assert "4 copies (" in shell.refused("cluster", "balance", code=2)
    code, text = shell.on_terminal("cluster", "balance", typed="n\n")
    assert (code, "nothing was changed" in text) == (1, True)
    assert cluster.replicas("orders", 5) == [1, 2]
    assert shell.json("cluster", "balance", "--yes")["state"] == "done"
    nodes = shell.json("cluster", "status")["nodes"]
    assert [(node["replicas"], node["leaders"]) for node in nodes] == [(4, 2)] * 3
    assert shell.json("cluster", "balance")["moves"] == []


def test_only_leaders_are_balanced(cluster: Cluster, shell: Shell, wait_until: WaitUntil) -> None:
    cluster.create_topic("orders", assignments=[[2, 1], [1, 2]])
    cluster.restart(2)
    cluster.wait_for_isr("orders", 0)
    assert cluster.leader("orders", 0) == 1
    done = shell.json("cluster", "balance", "--leaders-only", "--yes")
    assert done["elections"] == [{"topic": "orders", "partition": 0, "from": 1, "to": 2}]
    assert cluster.wait_for_leader("orders", 0) == 2
    assert shell.json("cluster", "balance", "--leaders-only")["elections"] == []


def test_a_node_that_joins_under_load_gets_its_share(cluster: Cluster, shell: Shell) -> None:
    cluster.create_topic("orders", 12, settings={"min.insync.replicas": "2"})
    with Load(cluster.bootstrap_servers, "orders") as load:
        cluster.add()
        shell.ok("cluster", "balance", "--yes", "--throttle", "50MB")
        nodes = shell.json("cluster", "status")["nodes"]
    assert [(node["replicas"], node["leaders"]) for node in nodes] == [(9, 3)] * 4
    assert load.errors == []
    assert sorted(load.acknowledged) == sorted(record.value or b"" for record in cluster.records("orders"))


def test_a_node_is_drained_under_load_stopped_and_removed(racked: Cluster, tmp_path: Path) -> None:
    cluster = racked
    servers = cluster.bootstrap_servers
    shell = Shell(servers, tmp_path)
    cluster.create_topic("orders", 8, 3, settings={"min.insync.replicas": "2"})
    settings_key = broker_settings_key(BrokerId(1))
    assert "replicas: move them away first with `logbrook cluster drain 1`" in shell.refused("cluster", "remove", "1")
    with Load(servers, "orders") as load:
        done = shell.json("cluster", "drain", "1", "--yes")
        assert done["state"] == "done"
        assert {row["to"].count(1) for row in done["moves"]} == {0}
        assert shell.json("cluster", "partitions", "--broker", "1") == []
        assert shell.refused("cluster", "remove", "1").startswith("node 1 has no replicas, but it runs: stop it first")
        cluster.brokers[1].stop()
        assert cluster._store.call(lambda: settings_key in cluster._store.store.state.entries)
        assert shell.ok("cluster", "remove", "1") == "removed node 1\n"
        assert not cluster._store.call(lambda: settings_key in cluster._store.store.state.entries), "it was cordoned"
        assert [node["id"] for node in shell.json("cluster", "status")["nodes"]] == [2, 3, 4]
    assert load.errors == []
    racks = {1: "a", 2: "b", 3: "c", 4: "a"}
    for number in range(8):
        assert {racks[replica] for replica in cluster.replicas("orders", number)} == {"a", "b", "c"}
    del cluster.brokers[1]
    assert sorted(load.acknowledged) == sorted(record.value or b"" for record in cluster.records("orders"))
    assert shell.refused("cluster", "remove", "1") == "there is no node 1; there are 2, 3, 4"


def test_a_drain_without_enough_nodes_is_refused(cluster: Cluster, shell: Shell) -> None:
    cluster.create_topic("orders", assignments=[[1, 2, 3]])
    assert shell.refused("cluster", "drain", "3", "--yes") == (
        "orders-0 has 3 replicas, and only nodes 1, 2 could have them: start another node first, or give the topic "
        "fewer replicas with `logbrook cluster move orders --to 1,2`"
    )
    assert shell.refused("cluster", "drain", "9", "--yes") == "there is no node 9; there are 1, 2, 3"
    shell.ok("cluster", "move", "orders", "--to", "1,2")
    done = shell.run("cluster", "drain", "3", "--yes")
    assert (done.code, done.out) == (0, "")
    assert done.err == (
        "drained node 3; next: stop it, then `logbrook cluster remove 3`, or use it again with `logbrook cluster "
        "uncordon 3`\n"
    )


def test_a_drained_node_gets_no_replicas_until_it_is_used_again(racked: Cluster, tmp_path: Path) -> None:
    cluster = racked
    shell = Shell(cluster.bootstrap_servers, tmp_path)
    cluster.create_topic("orders", 4, 3)
    assert shell.json("cluster", "drain", "4", "--dry-run")["state"] == "planned"
    assert not any(node["cordoned"] for node in shell.json("cluster", "status")["nodes"])
    shell.ok("cluster", "drain", "4", "--yes")
    assert [node["cordoned"] for node in shell.json("cluster", "status")["nodes"]] == [False, False, False, True]
    assert "up, cordoned" in shell.ok("cluster", "status")
    shell.ok("topic", "create", "later", "--partitions", "8")
    assert not any(4 in cluster.replicas("later", number) for number in range(8))
    refused = shell.refused("topic", "create", "wide", "--replicas", "4")
    assert "a replication factor of 4 needs as many live brokers that are not cordoned, and there are 3" in refused
    refused = shell.refused("cluster", "move", "later", "--to", "1,2,4", code=2)
    assert "node 4 is cordoned; `logbrook cluster uncordon 4` lets it get replicas" in refused
    assert shell.json("cluster", "balance", "--yes")["moves"] == []

    assert shell.ok("cluster", "uncordon", "4") == "uncordoned node 4\n"
    assert shell.refused("cluster", "uncordon", "9") == "there is no node 9; there are 1, 2, 3, 4"
    shell.ok("topic", "create", "wide", "--replicas", "4")
    assert any(4 in row["to"] for row in shell.json("cluster", "balance", "--yes")["moves"])


def test_a_node_is_uncordoned_although_all_are_cordoned_by_default(cluster: Cluster, shell: Shell) -> None:
    with Client(cluster.bootstrap_servers) as client:
        Admin(client).configs.alter_all_brokers({CORDONED_LOG_DIRS: "*"})
    shell.ok("cluster", "uncordon", "2")
    assert [node["cordoned"] for node in shell.json("cluster", "status")["nodes"]] == [True, False, True]
    shell.ok("topic", "create", "orders")
    assert cluster.replicas("orders", 0) == [2]


def test_a_cordoned_node_with_replicas_is_not_balanced(cluster: Cluster, shell: Shell) -> None:
    cluster.create_topic("orders", assignments=[[1, 2, 3]])
    with Client(cluster.bootstrap_servers) as client:
        Admin(client).configs.alter_broker(BrokerId(3), {CORDONED_LOG_DIRS: "*"})
    refused = shell.refused("cluster", "balance", "--yes")
    assert refused.startswith("node 3 is cordoned and has 1 replica: move them away with `logbrook cluster drain 3`")
    with Client(cluster.bootstrap_servers) as client, pytest.raises(BrokerError, match="INVALID_CONFIG"):
        Admin(client).configs.alter_broker(BrokerId(3), {CORDONED_LOG_DIRS: "/data"})


def test_nodes_that_are_gone_for_good_are_drained_together(tmp_path: Path, wait_until: WaitUntil) -> None:
    with Cluster(nodes=4, lease_s=3.0) as cluster:
        cluster.create_topic("orders", assignments=[[1, 3, 4]])
        cluster.produce("orders", "kept")
        shell = Shell(cluster.bootstrap_servers, tmp_path)
        cluster.kill(3)
        cluster.kill(4)

        def states() -> list[str]:
            return [node["state"] for node in shell.json("cluster", "status")["nodes"]]

        wait_until(lambda: states() == ["up", "up", "down", "down"])
        assert "node 4, too, which is down" in shell.refused("cluster", "drain", "3", "--yes")
        assert "orders-0 has 3 replicas" in shell.refused("cluster", "drain", "3", "4", "--yes")
        shell.ok("cluster", "move", "orders", "--to", "1,2")
        wait_until(lambda: shell.run("cluster", "remove", "3").code == 0)
        assert cluster.stored("orders", on=2) == [b"kept"]
