"""The cluster page in a browser, and the HTTP API about the cluster, with brokers that are lost and partitions that
move."""

import pytest
from playwright.sync_api import Page, expect

from logbrook.client import Client
from logbrook.client.admin import Admin
from logbrook.model import TopicPartition
from logbrook.model.identifiers import BrokerId
from logbrook.testing import Cluster
from logbrook.testing.processes import wait_until
from tests.console.conftest import Opened
from tests.console.test_accessibility import unreadable
from tests.console.test_api import Api

expect.set_options(timeout=15_000)

WAIT_S = 60.0


@pytest.fixture
def api(cluster_console: str) -> Api:
    return Api(cluster_console)


def shows(page: Page, text: str) -> None:
    expect(page.get_by_text(text).first).to_be_visible()


def test_the_map_shows_the_leaders_of_partitions(cluster: Cluster, cluster_console: str, open_page: Opened) -> None:
    cluster.create_topic("mapped", assignments=[[1, 2], [3, 1]])
    page = open_page(f"{cluster_console}/cluster")
    shows(page, "3 of 3")
    shows(page, "Nothing is being moved.")
    page.get_by_label("Topic", exact=True).fill("mapped")
    row = page.get_by_role("row").filter(has_text="mapped-0")
    expect(row.get_by_role("img", name="node 1 leads")).to_have_text("L")
    expect(row.get_by_role("img", name="node 2 follows in sync")).to_have_text("F")
    expect(row.get_by_role("img")).to_have_count(2)
    expect(page.get_by_role("row").filter(has_text="mapped-1").get_by_role("img", name="node 3 leads")).to_be_visible()
    nodes = page.get_by_role("row").filter(has_text=cluster.brokers[2].bootstrap_servers)
    expect(nodes.get_by_role("cell").first).to_have_text("2")
    expect(nodes.get_by_role("cell").last).to_have_text("up")


def test_a_lost_node_and_what_it_impairs_is_shown(
    cluster: Cluster, cluster_console: str, open_page: Opened, api: Api
) -> None:
    cluster.create_topic("impaired", assignments=[[1, 3], [3]])
    page = open_page(f"{cluster_console}/cluster")
    shows(page, "3 of 3")
    cluster.kill(3)
    try:
        shows(page, "2 of 3")
        offline = page.get_by_role("row").filter(has_text="impaired-1").filter(has_text="offline")
        expect(offline.first).to_be_visible()
        lagging = page.get_by_role("row").filter(has_text="impaired-0")
        expect(lagging.get_by_role("img", name="node 3 is not in sync")).to_have_text("lag")
        page.get_by_role("switch", name="Only impaired or moving").click()
        expect(page.get_by_role("img", name="node 1 leads").first).to_be_visible()
        assert unreadable(page) == {}
        status, impaired = api("GET", "/api/cluster/partitions?topic=impaired&impaired=true")
        assert status == 200
        assert [(row["partition"], row["state"], row["leader"]) for row in impaired] == [
            (0, "under-replicated", 1),
            (1, "offline", None),
        ]
        status, described = api("GET", "/api/cluster")
        assert [node["state"] for node in described["nodes"]] == ["up", "up", "down"]
        assert (described["offline"], described["nodes"][2]["rack"]) == (1, "c")
    finally:
        cluster.restart(3)
        cluster.wait_for_isr("impaired", 0)
        cluster.wait_for_leader("impaired", 1)
    shows(page, "Every partition has a leader, and all replicas are in sync.")


def test_a_move_is_shown_with_its_progress(cluster: Cluster, cluster_console: str, open_page: Opened, api: Api) -> None:
    cluster.create_topic("moved", assignments=[[1]], settings={"leader.replication.throttled.replicas": "*"})
    for _ in range(8):
        cluster.produce("moved", bytes(500_000))
    with Client(cluster.bootstrap_servers) as client:
        admin = Admin(client)
        admin.configs.alter_all_brokers({"leader.replication.throttled.rate": "1"})
        try:
            admin.replicas.move({TopicPartition("moved", 0): [BrokerId(2), BrokerId(1)]})
            page = open_page(f"{cluster_console}/cluster")
            row = page.get_by_role("row").filter(has_text="moved-0").filter(has_text="%")
            expect(row).to_be_visible()
            expect(row.get_by_role("cell").nth(2)).to_have_text("2, 1")
            moving = page.get_by_role("row").filter(has_text="moved-0")
            expect(moving.get_by_role("img", name="node 2 is being added")).to_have_text("+")
            assert unreadable(page) == {}
            assert wait_until(lambda: api("GET", "/api/cluster")[1]["moving"][0]["copied_bytes"] > 0, WAIT_S)
            (move,) = api("GET", "/api/cluster")[1]["moving"]
            assert (move["topic"], move["before"], move["after"]) == ("moved", [1], [2, 1])
            assert 0 < move["copied_bytes"] < move["size_bytes"]
            (listed,) = api("GET", "/api/cluster/partitions?moving=true")[1]
            assert (listed["adding"], listed["removing"], listed["state"]) == ([2], [], "ok")
        finally:
            admin.configs.alter_all_brokers({}, unset=["leader.replication.throttled.rate"])
        expect(row).to_have_count(0)
    assert wait_until(lambda: cluster.replicas("moved") == [2, 1], WAIT_S)


def test_partitions_are_listed_by_topic_and_node(cluster: Cluster, api: Api) -> None:
    cluster.create_topic("listed", assignments=[[1, 2], [2, 3]])
    status, rows = api("GET", "/api/cluster/partitions?topic=listed&node=3")
    assert status == 200
    size_bytes = rows[0].pop("size_bytes")
    assert size_bytes >= 0
    assert rows == [
        {
            "topic": "listed",
            "partition": 1,
            "state": "ok",
            "leader": 2,
            "replicas": [2, 3],
            "in_sync": [2, 3],
            "offline": [],
            "adding": [],
            "removing": [],
        }
    ]
    assert api("GET", "/api/cluster/partitions?node=-1")[0] == 400
    assert api("GET", "/api/cluster/partitions?broker=1")[0] == 400, "unknown parameters are refused"


def test_a_single_node_has_a_cluster_page_too(console: str, open_page: Opened) -> None:
    page = open_page(f"{console}/cluster")
    shows(page, "1 of 1")
    shows(page, "Every partition has a leader, and all replicas are in sync.")
