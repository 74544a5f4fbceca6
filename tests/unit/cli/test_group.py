"""`logbrook group`, against a real broker."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from logbrook import Broker
from logbrook.client import Client
from logbrook.client.group_member import GroupMember
from logbrook.model import TopicPartition
from tests.unit.cli.shell import Shell


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"orders": 2}, settings={"groups": {"initial_rebalance_delay_ms": 0}}) as broker:
        yield broker


@pytest.fixture
def shell(broker: Broker, tmp_path: Path) -> Shell:
    shell = Shell(broker.bootstrap_servers, tmp_path)
    if shell.json("topic", "list")[0]["offsets"] == 0:
        shell.ok("produce", "orders", "-p", "0", stdin="a\nb\nc\nd\n")
        shell.ok("produce", "orders", "-p", "1", stdin="x\n")
    return shell


@pytest.fixture
def member(broker: Broker, request: pytest.FixtureRequest) -> Iterator[GroupMember]:
    """The only member of a group named after the test; it has committed offset 3 in one of two partitions."""
    with (
        Client(broker.bootstrap_servers, client_id="the-client") as client,
        GroupMember(client, request.node.name, ["orders"]) as member,
    ):
        member.join()
        assert member.commit({TopicPartition("orders", 0): 3})
        yield member


def test_groups_are_listed(shell: Shell, member: GroupMember) -> None:
    listed = {row["group"]: row for row in shell.json("group", "list")}
    assert listed[member.group_id] == {
        "group": member.group_id,
        "state": "Stable",
        "protocol_type": "consumer",
        "type": "classic",
    }
    assert member.group_id in shell.ok("group", "list")


def test_a_cluster_without_groups_reports_it(tmp_path: Path) -> None:
    with Broker() as broker:
        shell = Shell(broker.bootstrap_servers, tmp_path)
        assert shell.json("group", "list") == []
        assert shell.run("group", "list").err.startswith("there are no groups; `logbrook consume TOPIC --group NAME`")


def test_a_description_has_members_and_lag(shell: Shell, broker: Broker, member: GroupMember) -> None:
    assert shell.json("group", "describe", member.group_id) == {
        "group": member.group_id,
        "type": "classic",
        "state": "Stable",
        "protocol_type": "consumer",
        "assignor": "range",
        "coordinator": broker.bootstrap_servers,
        "lag": 1,
        "members": [
            {
                "member": member.member_id,
                "instance": None,
                "client": "the-client",
                "host": "127.0.0.1",
                "partitions": [{"topic": "orders", "partition": 0}, {"topic": "orders", "partition": 1}],
            }
        ],
        "partitions": [
            {
                "topic": "orders",
                "partition": 0,
                "committed": 3,
                "start": 0,
                "end": 4,
                "lag": 1,
                "metadata": "",
                "member": member.member_id,
                "host": "127.0.0.1",
            },
            {
                "topic": "orders",
                "partition": 1,
                "committed": None,
                "start": 0,
                "end": 1,
                "lag": None,
                "metadata": "",
                "member": member.member_id,
                "host": "127.0.0.1",
            },
        ],
    }
    text = shell.ok("group", "describe", member.group_id)
    assert "TOPIC   PARTITION  COMMITTED  END  LAG  MEMBER" in text
    code, seen = shell.on_terminal("group", "describe", member.group_id, width=80)
    assert code == 0
    assert all(len(line) <= 80 for line in seen.splitlines())


def test_a_reset_is_shown_and_applied_with_execute(shell: Shell, member: GroupMember) -> None:
    member.leave()
    group = member.group_id
    planned = {
        "group": group,
        "executed": False,
        "changes": [
            {"topic": "orders", "partition": 0, "before": 3, "after": 0},
            {"topic": "orders", "partition": 1, "before": None, "after": 0},
        ],
    }
    assert shell.json("group", "reset", group, "--to", "earliest") == planned
    shown = shell.run("group", "reset", group, "--to", "earliest")
    assert shown.err == "nothing was changed; --execute does it\n"
    assert shown.out.splitlines()[0] == "TOPIC   PARTITION  BEFORE  AFTER"
    assert shell.json("group", "describe", group)["lag"] == 1
    assert shell.json("group", "reset", group, "--to", "earliest", "--execute") == planned | {"executed": True}
    assert shell.json("group", "describe", group)["lag"] == 5


@pytest.mark.parametrize(
    ("arguments", "after"),
    [
        (["--to", "latest"], [4, 1]),
        (["--to", "2"], [2, 1]),
        (["--to", "-1"], [3, 0]),
        (["--to", "2000-01-01"], [0, 0]),
        (["--to", "@99999999999999"], [4, 1]),
        (["--shift-by", "-2"], [1]),
        (["--shift-by", "100"], [4]),
        (["--to", "start", "-p", "0"], [0]),
        (["--to", "start", "-t", "orders", "-p", "1"], [0]),
    ],
)
def test_offsets_can_be_reset_to_any_offset_of_the_log(
    shell: Shell, member: GroupMember, arguments: list[str], after: list[int]
) -> None:
    changes = shell.json("group", "reset", member.group_id, *arguments)["changes"]
    assert [change["after"] for change in changes] == after


def test_a_group_with_members_is_neither_reset_nor_deleted(shell: Shell, member: GroupMember) -> None:
    group = member.group_id
    sentence = "it has active members; stop them first (`logbrook group describe` lists them)"
    assert (
        shell.refused("group", "reset", group, "--to", "start", "--execute") == f"resetting group {group}: {sentence}"
    )
    assert shell.refused("group", "delete", group, "--yes") == f"deleting group {group}: {sentence}"
    member.leave()
    assert shell.ok("group", "delete", group, "--yes") == f"deleted {group}\n"
    assert shell.refused("group", "describe", group).startswith(f"looking up group {group}: it does not exist")


def test_a_new_group_can_be_given_offsets(shell: Shell) -> None:
    assert shell.refused("group", "reset", "new", "--to", "end") == (
        "group new has no committed offsets there; name the topics to reset with --topic"
    )
    shell.ok("group", "reset", "new", "--to", "2", "--topic", "orders", "--execute")
    assert shell.ok("consume", "orders", "-g", "new").split() == ["c", "d"]


def test_missing_groups_and_wrong_usage_are_reported(shell: Shell) -> None:
    assert shell.refused("group", "describe", "nope") == (
        "looking up group nope: it does not exist; `logbrook group list` shows the groups"
    )
    assert shell.refused("group", "reset", "g", "--to", "1", "--topic", "nope").startswith("looking up topic nope")
    assert shell.refused("group", "delete", "nope", "--yes").startswith("there is no group nope, and none was deleted")
    assert shell.refused("group", "reset", "g", code=2).startswith("--to / --shift-by: give one of them")
    assert shell.refused("group", "reset", "g", "--to", "1", "--shift-by", "1", code=2).startswith("--to / --shift-by")


def test_deleting_needs_a_yes(shell: Shell, member: GroupMember) -> None:
    member.leave()
    assert "give --yes" in shell.refused("group", "delete", member.group_id, code=2)
    assert shell.on_terminal("group", "delete", member.group_id, typed="y\n")[0] == 0


def test_committed_offsets_are_deleted_by_topic_and_partition(shell: Shell) -> None:
    shell.ok("group", "reset", "erased", "--to", "1", "--topic", "orders", "--execute")
    arguments = ("group", "offset-delete", "erased", "-t", "orders")
    assert "give --yes" in shell.refused(*arguments, "-p", "1", code=2)
    assert shell.json(*arguments, "-p", "1", "-y") == [{"topic": "orders", "partition": 1, "committed": 1}]
    assert shell.refused(*arguments, "-p", "1", "-y") == (
        "group erased has no committed offsets in these partitions of orders, and none was deleted; "
        "`logbrook group describe erased` shows them"
    )
    assert shell.ok(*arguments, "-y").splitlines() == ["TOPIC   PARTITION  DELETED", "orders          0        1"]
    assert shell.refused("group", "offset-delete", "nope", "-t", "orders", "-y").startswith("group nope has no comm")


def test_offsets_of_a_topic_that_members_read_are_not_deleted(shell: Shell, member: GroupMember) -> None:
    message = shell.refused("group", "offset-delete", member.group_id, "-t", "orders", "-y")
    assert message.endswith(
        "members of the group read the topic; stop them first (`logbrook group describe` lists them)"
    )


def test_names_of_groups_are_completed(shell: Shell, member: GroupMember) -> None:
    words = {"COMP_WORDS": "logbrook group describe test_names", "COMP_CWORD": "3"}
    shell.environment |= words | {"_LOGBROOK_COMPLETE": "complete_bash"}
    assert shell.run().out.split() == [member.group_id]
