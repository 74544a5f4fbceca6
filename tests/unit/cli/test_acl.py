"""`logbrook acl` and `logbrook quota`: what their options stand for, mistakes, and ACLs of a real broker."""

from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path

import pytest

from logbrook import Broker
from logbrook.cli.acl_options import AclOptions
from logbrook.client.admin_acls import (
    ANY,
    LITERAL,
    MATCH,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSIONS,
    PREFIXED,
    RESOURCE_TYPES,
    AclEntry,
    AclSelection,
)
from logbrook.core.acl_bindings import AclOperation, PatternType, PermissionType, ResourceType
from tests.unit.cli.shell import Shell

# Nothing listens there: the options are refused before a connection is made.
NOWHERE = "127.0.0.1:1"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(NOWHERE, tmp_path)


def test_a_producer_may_write_describe_and_create_as_in_kafkas_tool() -> None:
    options = AclOptions([("topic", "orders"), ("transactional-id", "tx")], allowed=["app"], is_producer=True)
    assert [(entry.resource_type, entry.operation) for entry in options.entries()] == [
        ("topic", "write"),
        ("topic", "describe"),
        ("topic", "create"),
        ("transactional-id", "write"),
        ("transactional-id", "describe"),
    ]


def test_a_consumer_may_read_the_topic_and_the_group() -> None:
    options = AclOptions([("topic", "orders"), ("group", "g")], allowed=["app"], is_consumer=True)
    assert [(entry.resource_type, entry.operation) for entry in options.entries()] == [
        ("topic", "read"),
        ("topic", "describe"),
        ("group", "read"),
    ]


def test_every_resource_is_combined_with_every_principal_host_and_operation() -> None:
    resources = [("topic", "a"), ("topic", "b")]
    options = AclOptions(resources, True, ["x"], ["Role:y"], ["1.1.1.1", "2.2.2.2"], ["READ", "alter_configs"])
    entries = options.entries()
    assert len(entries) == len(set(entries)) == 2 * 2 * 2 * 2
    assert AclEntry("topic", "b", PREFIXED, "Role:y", "2.2.2.2", "alter-configs", "deny") in entries


def test_the_cluster_has_no_prefix_and_an_acl_is_for_all_operations_by_default() -> None:
    options = AclOptions([("cluster", "kafka-cluster")], True, ["x"])
    assert options.entries() == [AclEntry("cluster", "kafka-cluster", LITERAL, "User:x", "*", "all", "allow")]


def test_options_that_are_not_given_select_everything() -> None:
    assert AclOptions([]).selections(MATCH) == [AclSelection()]
    assert AclOptions([("topic", "a")]).selections(MATCH) == [AclSelection("topic", "a", MATCH)]
    assert AclOptions([("topic", "a")], is_prefix=True, denied=["x"]).selections(LITERAL) == [
        AclSelection("topic", "a", PREFIXED, "User:x", None, ANY, "deny")
    ]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["add", "--allow", "a"], "--topic / --group / --transactional-id / --cluster: say for which resource"),
        (["add", "-t", "a"], "--allow / --deny: say who is allowed or denied"),
        (["add", "--allow", "User:", "-t", "a"], "--allow: 'User:' is not the name of a user or TYPE:NAME"),
        (["add", "--allow", "a", "-t", ""], "--topic: the name is empty"),
        (["add", "--allow", "a", "-t", "a", "-o", "fly"], "--operation: 'fly' is not one of all, read,"),
        (["add", "--allow", "a", "-t", "a", "--producer", "-o", "read"], "--operation: --producer stands for"),
        (["add", "--allow", "a", "-t", "a", "--consumer"], "--consumer: give the consumer groups with --group"),
        (["add", "--allow", "a", "-g", "a", "--producer"], "--producer: it does not apply to --group"),
        (["add", "--deny", "a", "-t", "a", "--producer"], "--deny: --producer is for --allow"),
        (["remove"], "--topic / --allow / ...: say whose ACLs or the ACLs of which resource to remove"),
    ],
)
def test_mistakes_in_acls_are_refused(shell: Shell, arguments: list[str], error: str) -> None:
    assert shell.refused("acl", *arguments, code=2).startswith(error)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["set", "request_percentage=5"], "--user / --client-id / --ip: say whose quota to set"),
        (["set", "-u", "a", "--default-user", "request_percentage=5"], "--user / --default-user: give one of them"),
        (["set", "-u", "a", "--ip", "1.1.1.1", "request_percentage=5"], "--ip: quotas of addresses cannot be combined"),
        (["set", "-u", "", "request_percentage=5"], "--user: the name is empty; --default-user is for all"),
        (
            ["set", "-u", "a", "nonsense=5"],
            "QUOTA=VALUE...: there is no quota 'nonsense'; there are producer_byte_rate",
        ),
        (["set", "-u", "a", "request_percentage"], "QUOTA=VALUE...: 'request_percentage' is not QUOTA=VALUE"),
        (["set", "-u", "a", "request_percentage=x"], "QUOTA=VALUE...: request_percentage=x, but it must be a number"),
        (["set", "-u", "a", "request_percentage=nan"], "QUOTA=VALUE...: request_percentage=nan, but it must be more"),
        (
            ["set", "-u", "a", "producer_byte_rate=0"],
            "QUOTA=VALUE...: producer_byte_rate=0, but it must be more than 0",
        ),
        (
            ["set", "-u", "a", "producer_byte_rate=5XB"],
            "QUOTA=VALUE...: producer_byte_rate=5XB, but it must be a number",
        ),
    ],
)
def test_mistakes_in_quotas_are_refused(shell: Shell, arguments: list[str], error: str) -> None:
    assert shell.refused("quota", *arguments, code=2).startswith(error)


@pytest.fixture(scope="module")
def guarded_broker() -> Iterator[Broker]:
    with Broker(settings={"security": {"authorization": True, "super_users": "User:ANONYMOUS"}}) as broker:
        yield broker


def test_acls_are_added_listed_and_removed(guarded_broker: Broker, tmp_path: Path) -> None:
    shell = Shell(guarded_broker.bootstrap_servers, tmp_path)
    added = shell.ok("acl", "add", "--allow", "app", "--consumer", "-t", "orders-", "-g", "billing", "--prefix")
    assert added.splitlines() == [
        "added: allow User:app to read topic orders-*",
        "added: allow User:app to describe topic orders-*",
        "added: allow User:app to read group billing*",
    ]
    shell.ok("acl", "add", "--deny", "*", "-t", "*", "--host", "10.0.0.7", "-o", "read")
    assert shell.ok("acl", "list", "--topic", "orders-eu").splitlines() == [
        "RESOURCE  NAME      PRINCIPAL  PERMISSION  OPERATION  HOST",
        "topic     *         User:*     deny        read       10.0.0.7",
        "topic     orders-*  User:app   allow       describe   *",
        "topic     orders-*  User:app   allow       read       *",
    ]
    assert len(shell.json("acl", "list", "-p", "app")) == 3
    assert "Remove 3 ACLs?" in shell.refused("acl", "remove", "--allow", "app", code=2)
    shell.ok("acl", "remove", "--allow", "app", "--consumer", "-t", "orders-", "-g", "billing", "--prefix", "--yes")
    assert shell.ok("acl", "remove", "-t", "*", "-y") == "removed: deny User:* from 10.0.0.7 to read topic *\n"
    assert shell.json("acl", "list") == []
    assert shell.run("acl", "list").err == "there are no such ACLs; `logbrook acl add` adds one\n"


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (RESOURCE_TYPES, ResourceType),
        (PATTERN_TYPES, PatternType),
        (OPERATIONS, AclOperation),
        (PERMISSIONS, PermissionType),
    ],
)
def test_the_words_have_the_numbers_of_the_broker(words: dict[str, int], kind: type[IntEnum]) -> None:
    assert words == {member.name.lower().replace("_", "-"): member for member in kind if member.name != "ANY"}
