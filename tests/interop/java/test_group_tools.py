"""Kafka's tools for groups; and our internal topic, read by Kafka's own formatters."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, TopicPartition

from logbrook import Broker
from tests.interop.java.kafka_tools import KafkaTools
from tests.interop.waiting import Deadline, wait_until

FORMATTERS = "org.apache.kafka.tools.consumer"


@contextmanager
def a_member(broker: Broker, group: str, topic: str) -> Iterator[Consumer]:
    """A consumer that has all partitions of the topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "client.id": f"{group}-client",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])

        def has_partitions() -> bool:
            consumer.poll(0.02)
            return len(consumer.assignment()) > 0

        wait_until(has_partitions, f"{group} has its partitions")
        yield consumer
    finally:
        consumer.close()


@pytest.fixture
def group(tools: KafkaTools, broker: Broker, request: pytest.FixtureRequest) -> str:
    """A group without members that has committed 4 of the 10 records of the topic with its name."""
    name: str = request.node.name
    broker.create_topic(name)
    tools.run("kafka-console-producer", "--topic", name, stdin="".join(f"{i}\n" for i in range(10)))
    with a_member(broker, name, name) as consumer:
        consumer.commit(offsets=[TopicPartition(name, 0, 4)], asynchronous=False)
    return name


def offset_of(tools: KafkaTools, group: str) -> tuple[str, str]:
    """Return the committed offset and the lag, as printed."""
    run = tools.run("kafka-consumer-groups", "--describe", "--group", group)
    (row,) = run.table
    return row["CURRENT-OFFSET"], row["LAG"]


def test_kafka_consumer_groups_prints_states_members_and_lags(tools: KafkaTools, broker: Broker, group: str) -> None:
    listed = tools.run("kafka-consumer-groups", "--list", "--state")
    assert [group, "Empty"] in [line.split() for line in listed.lines]
    assert offset_of(tools, group) == ("4", "6")
    with a_member(broker, group, group):
        (row,) = tools.run("kafka-consumer-groups", "--describe", "--group", group).table
        assert (row["CLIENT-ID"], row["LAG"]) == (f"{group}-client", "6")
        member = tools.run("kafka-consumer-groups", "--describe", "--group", group, "--members", "--verbose").output
        assert f"{group}:0" in member, member
        state = tools.run("kafka-consumer-groups", "--describe", "--group", group, "--state").output
        assert "Stable" in state
        assert "range" in state
    assert [group, "Classic", "consumer"] in [line.split() for line in tools.run("kafka-groups", "--list").lines]


def test_kafka_consumer_groups_resets_offsets_in_every_way(tools: KafkaTools, group: str) -> None:
    def reset(*how: str) -> str:
        options = ("--reset-offsets", "--group", group, "--topic", group, *how, "--execute")
        (row,) = tools.run("kafka-consumer-groups", *options).table
        assert offset_of(tools, group)[0] == row["NEW-OFFSET"]
        return row["NEW-OFFSET"]

    assert reset("--to-earliest") == "0"
    assert reset("--to-latest") == "10"
    assert reset("--to-offset", "5") == "5"
    assert reset("--shift-by", "-2") == "3"
    assert reset("--to-datetime", "2020-01-01T00:00:00.000") == "0"
    assert reset("--by-duration", "P1D") == "0"


def test_kafka_consumer_groups_deletes_offsets_and_groups(tools: KafkaTools, broker: Broker, group: str) -> None:
    with a_member(broker, group, group):
        refused = "GroupNotEmptyException"
        run = tools.run("kafka-consumer-groups", "--delete", "--group", group, allowed=refused)
        assert refused in run.output
    deleted = tools.run("kafka-consumer-groups", "--delete-offsets", "--group", group, "--topic", group)
    assert deleted.lines[-1].split() == [group, "0", "Successful"]
    tools.run("kafka-consumer-groups", "--delete", "--group", group)
    assert group not in tools.run("kafka-consumer-groups", "--list").lines


def test_kafka_streams_application_reset_moves_a_group_to_the_beginning(tools: KafkaTools, group: str) -> None:
    tools.run("kafka-streams-application-reset", "--application-id", group, "--input-topics", group)
    assert offset_of(tools, group) == ("0", "10")


TIME_IS_UP = "terminating consumer process|TimeoutException"


def test_kafkas_formatters_read_our_offsets_and_groups(tools: KafkaTools, group: str) -> None:
    def decoded(formatter: str, count: int) -> list[tuple[dict[str, object], dict[str, object] | None]]:
        """Read the topic until the tool prints so many records of the group before it times out."""
        deadline = Deadline()
        while len(records := decoded_at_once(formatter)) < count:
            deadline.check(f"the formatter printed {records}")
        return records

    def decoded_at_once(formatter: str) -> list[tuple[dict[str, object], dict[str, object] | None]]:
        # The number of messages to read is not known: markers of transactions have offsets too.
        place = ("--topic", "__consumer_offsets", "--partition", "0", "--offset", "earliest", "--timeout-ms", "400")
        run = tools.run(
            "kafka-console-consumer", *place, "--formatter", f"{FORMATTERS}.{formatter}", allowed=TIME_IS_UP
        )
        # One JSON object follows the other, without a line end.
        decoder = json.JSONDecoder()
        position, records = 0, []
        while position < len(run.output.rstrip()):
            record, position = decoder.raw_decode(run.output, position)
            if record["key"]["data"]["group"] == group:
                records.append((record["key"]["data"], record["value"] and record["value"]["data"]))
        return records

    ((key, value),) = decoded("OffsetsMessageFormatter", 1)
    assert key == {"group": group, "topic": group, "partition": 0}
    assert value is not None
    assert value["offset"] == 4
    (_, joined), (_, left) = decoded("GroupMetadataMessageFormatter", 2)
    assert joined is not None
    assert left is not None
    assert (joined["protocolType"], joined["generation"], joined["protocol"]) == ("consumer", 1, "range")
    assert isinstance(joined["members"], list)
    assert joined["members"][0]["clientId"] == f"{group}-client"
    assert (left["generation"], left["members"]) == (2, [])


def test_kafka_dump_log_decodes_our_offsets_topic(tools: KafkaTools, group: str) -> None:
    dumped = tools.dump("__consumer_offsets", "--offsets-decoder").output
    key = f'key: {{"type":"1","data":{{"group":"{group}","topic":"{group}","partition":0}}}}'
    value = 'payload: {"version":"3","data":{"offset":4,"leaderEpoch":-1,"metadata":"",'
    assert f"{key} {value}" in dumped
    # The subscription and the assignment are decoded too.
    assert f'"subscription":{{"topics":["{group}"]' in dumped
    assert f'"assignment":{{"assignedPartitions":[{{"topic":"{group}","partitions":[0]}}]' in dumped
