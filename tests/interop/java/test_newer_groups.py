"""Groups of Kafka's newer protocol (KIP-848), which Logbrook does not serve, described in a real Kafka."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer

from logbrook.client import Client
from logbrook.client.partition_requests import PartitionRequests
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from tests.interop.java.kafka_broker import KafkaBroker
from tests.interop.waiting import wait_until
from tests.unit.cli.shell import Shell


@pytest.fixture
def shell(kafka: KafkaBroker, tmp_path: Path) -> Shell:
    return Shell(kafka.bootstrap_servers, tmp_path)


@pytest.fixture
def topic(kafka: KafkaBroker) -> str:
    """A topic with two partitions and ten records in the first."""
    with Client(kafka.bootstrap_servers) as client:
        client.create_topic("orders", 2)
        wait_until(lambda: bool(PartitionRequests(client).topics(["orders"])), "the creation of orders")
        client.produce("orders", 0, build_batch([Record(value=b"v")] * 10))
    return "orders"


def test_a_group_of_the_newer_protocol_is_described_with_its_members(
    kafka: KafkaBroker, shell: Shell, topic: str
) -> None:
    settings = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": "newer",
        "group.protocol": "consumer",
        "client.id": "reader",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    try:
        consumer.subscribe([topic])
        assert len(consumer.consume(10, timeout=60)) == 10
        consumer.commit(asynchronous=False)
        description = shell.json("group", "describe", "newer")
        assert (description["type"], description["state"], description["lag"]) == ("consumer", "Stable", 0)
        (member,) = description["members"]
        assert member["client"] == "reader"
        assert member["partitions"] == [{"topic": topic, "partition": number} for number in range(2)]
        assert description["partitions"][0]["member"] == member["member"]
        table = shell.ok("group", "describe", "newer").splitlines()
        assert table[1].split() == ["type", "consumer"]
        assert "active members" in shell.refused("group", "reset", "newer", "--to", "start", "--execute")
    finally:
        consumer.close()
    left = shell.json("group", "describe", "newer")
    assert (left["type"], left["state"], left["members"], left["lag"]) == ("consumer", "Empty", [], 0)
    (summary,) = [group for group in shell.json("group", "list") if group["group"] == "newer"]
    assert summary["type"].lower() == "consumer"
    assert "it does not exist" in shell.refused("group", "describe", "nobody")
