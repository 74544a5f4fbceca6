"""Every feature declared as lacking is lacking: once a client implements it, its scenarios must run."""

import aiokafka.admin
import aiokafka.coordinator.assignors
import pytest
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.protocol.group import HeartbeatRequest
from aiokafka.protocol.transaction import TxnOffsetCommitRequest
from confluent_kafka.admin import AdminClient

from tests.interop.clients.aiokafka_client import AiokafkaClient
from tests.interop.clients.confluent_client import ConfluentClient
from tests.interop.clients.interface import Client, Feature

_CALLS = {
    Feature.INCREMENTAL_CONFIGS: "incremental",
    Feature.DELETE_GROUPS: "delete_consumer_group",
    Feature.ALTER_GROUP_OFFSETS: "alter_consumer_group",
    Feature.DELETE_GROUP_OFFSETS: "delete_consumer_group_offsets",
    Feature.LIST_OFFSETS: "list_offsets",
    Feature.LOG_DIRS: "log_dirs",
    Feature.DESCRIBE_TRANSACTIONS: "transaction",
}


@pytest.mark.parametrize(
    ("client", "admin"),
    [(ConfluentClient, AdminClient), (AiokafkaClient, aiokafka.admin.AIOKafkaAdminClient)],
    ids=["confluent", "aiokafka"],
)
def test_unsupported_operations_are_missing_from_the_admin_clients(client: type[Client], admin: type) -> None:
    for feature in client.lacks.keys() & _CALLS.keys():
        assert [name for name in dir(admin) if _CALLS[feature] in name] == [], feature


def test_aiokafka_lacks_group_metadata_in_transactions_and_require_stable() -> None:
    assert "member" not in str(vars(TxnOffsetCommitRequest("id", "group", 1, 1, [])))
    assert "stable" not in str(vars(OffsetFetchRequest("group", [])))


def test_aiokafka_sends_no_group_instance_id_in_heartbeats() -> None:
    assert "instance" not in str(vars(HeartbeatRequest("group", 1, "member")))
