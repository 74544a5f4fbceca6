"""Kafka's tools for what a single node without an authorizer does not have: answers, not broken connections."""

import json
from pathlib import Path

from logbrook import Broker
from tests.interop.java.kafka_tools import KafkaTools


def test_kafka_acls_names_the_missing_authorizer(tools: KafkaTools) -> None:
    run = tools.run(
        "kafka-acls", "--list", code=1, allowed="SecurityDisabledException|Error while executing ACL command"
    )
    assert "No Authorizer is configured" in run.output + run.errors


def test_kafka_leader_election_reports_that_no_election_is_needed(tools: KafkaTools, broker: Broker) -> None:
    broker.create_topic("led")
    place = ("--topic", "led", "--partition", "0")
    run = tools.run("kafka-leader-election", "--election-type", "preferred", *place)
    assert "Valid replica already elected for partitions led-0" in run.output
    tools.run("kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions")


def test_kafka_reassign_partitions_moves_nothing(tools: KafkaTools, broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("assigned")
    assert "No partition reassignments found." in tools.run("kafka-reassign-partitions", "--list").output
    plan = tmp_path / "plan.json"
    partition = {"topic": "assigned", "partition": 0, "replicas": [1], "log_dirs": [broker.data]}
    plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    run = tools.run("kafka-reassign-partitions", "--execute", "--reassignment-json-file", str(plan))
    assert "Successfully started" in run.output
    run = tools.run("kafka-reassign-partitions", "--verify", "--reassignment-json-file", str(plan))
    assert "Reassignment of partition assigned-0 is completed." in run.output


def test_kafka_metadata_quorum_shows_one_voter(tools: KafkaTools) -> None:
    run = tools.run("kafka-metadata-quorum", "describe", "--status")
    facts = dict(line.split(":", 1) for line in run.lines)
    assert (facts["LeaderId"].strip(), facts["MaxFollowerLag"].strip()) == ("1", "0")
    (voter,) = tools.run("kafka-metadata-quorum", "describe", "--replication").table
    assert (voter["NodeId"], voter["Lag"], voter["Status"]) == ("1", "0", "Leader")


def test_kafka_features_stay_at_their_level(tools: KafkaTools) -> None:
    tools.run("kafka-features", "upgrade", "--feature", "transaction.version=2")
    run = tools.run("kafka-features", "downgrade", "--feature", "transaction.version=1", code=1, allowed="Exception")
    assert "transaction.version" in run.output + run.errors


def test_kafka_configs_sets_lists_and_removes_quotas(tools: KafkaTools) -> None:
    user = ("--entity-type", "users", "--entity-name", "alice")
    assert tools.run("kafka-configs", "--describe", "--entity-type", "users").lines == []
    assert tools.run("kafka-configs", "--describe", "--entity-type", "clients").lines == []
    tools.run("kafka-configs", "--alter", *user, "--add-config", "producer_byte_rate=1048576")
    assert "producer_byte_rate=1048576.0" in tools.run("kafka-configs", "--describe", *user).output
    tools.run("kafka-configs", "--alter", *user, "--delete-config", "producer_byte_rate")
    assert tools.run("kafka-configs", "--describe", *user).lines == []


def test_kafka_client_metrics_lists_no_subscriptions(tools: KafkaTools) -> None:
    assert tools.run("kafka-client-metrics", "--list").lines == []
