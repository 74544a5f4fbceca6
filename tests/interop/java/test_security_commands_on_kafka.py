"""`logbrook user`, `quota` and `acl` on Apache Kafka."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.java.kafka_broker import KafkaBroker
from tests.unit.cli.shell import Shell


@pytest.fixture
def shell(kafka: KafkaBroker, tmp_path: Path) -> Shell:
    return Shell(kafka.bootstrap_servers, tmp_path)


def test_users(shell: Shell) -> None:
    shell.ok("user", "create", "alice", stdin="secret\n")
    assert "already exists" in shell.refused("user", "create", "alice", stdin="other\n")
    shell.ok("user", "create", "bob", "-m", "SCRAM-SHA-256", "--iterations", "4096", stdin="secret\n")
    assert shell.json("user", "list") == [
        {"user": "alice", "mechanisms": {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 8192}},
        {"user": "bob", "mechanisms": {"SCRAM-SHA-256": 4096}},
    ]
    assert shell.ok("user", "password", "bob", stdin="new\n") == "changed the password of bob\n"
    assert "there is no user carol" in shell.refused("user", "password", "carol", stdin="x\n")
    shell.ok("user", "delete", "alice", "bob", "--yes")
    assert shell.json("user", "list") == []


def test_quotas(shell: Shell) -> None:
    shell.ok("quota", "set", "--user", "etl", "producer_byte_rate=10MiB", "request_percentage=12.5")
    shell.ok("quota", "set", "--user", "etl", "--default-client-id", "consumer_byte_rate=1MiB")
    shell.ok("quota", "set", "--default-ip", "connection_creation_rate=50")
    assert shell.json("quota", "list", "--user", "etl") == [
        {"entity": {"user": "etl"}, "quotas": {"producer_byte_rate": 10 << 20, "request_percentage": 12.5}},
        {"entity": {"client-id": None, "user": "etl"}, "quotas": {"consumer_byte_rate": 1 << 20}},
    ]
    assert "<default>" in shell.ok("quota", "list", "--default-ip")
    assert "has no quota nothing" in shell.refused("quota", "remove", "nothing", "--user", "etl", "-y")
    shell.ok("quota", "remove", "--user", "etl", "producer_byte_rate", "-y")
    shell.ok("quota", "remove", "--user", "etl", "-y")
    shell.ok("quota", "remove", "--user", "etl", "--default-client-id", "-y")
    shell.ok("quota", "remove", "--default-ip", "-y")
    assert shell.json("quota", "list") == []


def test_a_cluster_without_an_authorizer_is_named_as_the_reason(shell: Shell) -> None:
    assert "no authorizer" in shell.refused("acl", "list").lower()


@pytest.fixture(scope="module")
def guarded_kafka(tools_jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with KafkaBroker(tools_jars, Path(tmp_path_factory.mktemp("guarded")), settings) as kafka:
        yield kafka


@pytest.mark.long
def test_acls(guarded_kafka: KafkaBroker, tmp_path: Path) -> None:
    shell = Shell(guarded_kafka.bootstrap_servers, tmp_path)
    shell.ok("acl", "add", "--allow", "app", "--producer", "-t", "orders", "--transactional-id", "tx")
    shell.ok("acl", "add", "--allow", "app", "--consumer", "-t", "orders-", "-g", "billing-", "--prefix")
    shell.ok("acl", "add", "--deny", "*", "-t", "*", "--host", "10.0.0.7", "-o", "read")
    shell.ok("acl", "add", "--allow", "ops", "--cluster", "-o", "alter_configs")
    assert len(shell.json("acl", "list")) == 10
    applying = [(row["name"], row["operation"]) for row in shell.json("acl", "list", "--topic", "orders-eu")]
    assert applying == [("*", "read"), ("orders-", "describe"), ("orders-", "read")]
    shell.ok("acl", "remove", "--allow", "app", "--producer", "-t", "orders", "--yes")
    shell.ok("acl", "remove", "--allow", "app", "--allow", "ops", "--yes")
    assert [row["principal"] for row in shell.json("acl", "list")] == ["User:*"]
    assert "no such ACLs" in shell.refused("acl", "remove", "--allow", "app", "--yes")
