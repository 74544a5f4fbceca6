"""kafka-acls creates, lists and removes ACLs, and clients that are connected notice it with their next request."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from logbrook import Broker
from tests.interop.java.kafka_tools import KafkaTools

_WAIT_S = 20.0


@pytest.fixture
def secured() -> Iterator[Broker]:
    """A broker that allows everything on resources without ACLs."""
    settings = {"security.authorization": True, "security.allow_everyone_if_no_acl": True}
    with Broker({"orders": 1}, settings=settings) as broker:
        yield broker


def test_kafka_acls_revokes_and_restores_a_right_of_a_connected_consumer(tools: KafkaTools, secured: Broker) -> None:
    tools = tools.of(secured)
    producer = Producer({"bootstrap.servers": secured.bootstrap_servers})
    producer.produce("orders", b"before")
    assert producer.flush(_WAIT_S) == 0
    consumer = Consumer({"bootstrap.servers": secured.bootstrap_servers, "group.id": "readers"})
    consumer.assign([TopicPartition("orders", 0, 0)])
    first = consumer.poll(_WAIT_S)
    assert first is not None
    assert first.value() == b"before"

    acl = ("--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders")
    tools.run("kafka-acls", "--add", *acl)
    assert (
        "principal=User:alice, host=*, operation=READ, permissionType=ALLOW" in tools.run("kafka-acls", "--list").output
    )
    refused = consumer.poll(_WAIT_S)
    assert refused is not None
    error = refused.error()
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED

    tools.run("kafka-acls", "--remove", "--force", *acl)
    assert "alice" not in tools.run("kafka-acls", "--list").output
    producer.produce("orders", b"after")
    assert producer.flush(_WAIT_S) == 0
    consumer.assign([TopicPartition("orders", 0, 1)])
    last = consumer.poll(_WAIT_S)
    assert last is not None
    assert last.value() == b"after"
    consumer.close()
