"""Kafka's tools for topics, settings and the cluster, against a real broker."""

import json
import re

from logbrook import Broker
from tests.interop.java.kafka_tools import KafkaTools


def test_kafka_topics_creates_describes_grows_and_deletes(tools: KafkaTools) -> None:
    created = tools.run(
        "kafka-topics", "--create", "--topic", "grown", "--partitions", "2", "--config", "segment.ms=60000"
    )
    assert created.lines == ["Created topic grown."]
    tools.run("kafka-topics", "--alter", "--topic", "grown", "--partitions", "3")
    described = tools.run("kafka-topics", "--describe", "--topic", "grown")
    assert re.search(r"PartitionCount: 3\s+ReplicationFactor: 1\s+Configs: segment.ms=60000$", described.lines[0])
    assert [re.sub(r"\s+", " ", line).strip() for line in described.lines[1:]] == [
        f"Topic: grown Partition: {i} Leader: 1 Replicas: 1 Isr: 1 Elr: LastKnownElr:" for i in range(3)
    ]
    assert tools.run("kafka-topics", "--describe", "--unavailable-partitions").lines == []
    assert tools.run("kafka-topics", "--describe", "--under-replicated-partitions").lines == []
    assert "grown" in tools.run("kafka-topics", "--list").lines
    tools.run("kafka-topics", "--delete", "--topic", "grown")
    assert "grown" not in tools.run("kafka-topics", "--list").lines


def test_kafka_topics_prints_the_brokers_error(tools: KafkaTools, broker: Broker) -> None:
    broker.create_topic("there", 2)
    wrong = {
        ("--create", "--topic", "there"): "TopicExistsException",
        ("--create", "--topic", "bad name"): "InvalidTopicException",
        ("--create", "--topic", "copies", "--replication-factor", "3"): "InvalidReplicationFactorException",
        # A setting that the tool knows and the broker does not support.
        ("--create", "--topic", "setting", "--config", "remote.storage.enable=true"): "InvalidConfigurationException",
        ("--alter", "--topic", "there", "--partitions", "1"): "InvalidPartitionsException",
    }
    for arguments, error in wrong.items():
        run = tools.run("kafka-topics", *arguments, code=1, allowed=f"{error}|^Error while executing topic command")
        assert error in run.errors, str(run)
    tools.run("kafka-topics", "--create", "--topic", "there", "--if-not-exists")


def test_kafka_configs_changes_and_describes_settings(tools: KafkaTools, broker: Broker) -> None:
    broker.create_topic("set")
    topic = ("--entity-type", "topics", "--entity-name", "set")
    tools.run("kafka-configs", "--alter", *topic, "--add-config", "retention.ms=1000,cleanup.policy=[compact,delete]")
    described = tools.run("kafka-configs", "--describe", *topic).output
    assert "retention.ms=1000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=1000" in described
    assert "cleanup.policy=compact,delete" in described
    tools.run("kafka-configs", "--alter", *topic, "--delete-config", "retention.ms")
    assert "retention.ms" not in tools.run("kafka-configs", "--describe", *topic).output
    assert "retention.ms=604800000" in tools.run("kafka-configs", "--describe", *topic, "--all").output
    refused = "InvalidConfigurationException"
    run = tools.run("kafka-configs", "--alter", *topic, "--add-config", "no.such=1", code=1, allowed=refused)
    assert "no.such" in run.errors
    assert (
        "Dynamic configs for topic set are:"
        in tools.run("kafka-configs", "--describe", "--entity-type", "topics").lines
    )


def test_kafka_configs_describes_the_broker(tools: KafkaTools) -> None:
    described = tools.run("kafka-configs", "--describe", "--entity-type", "brokers", "--entity-name", "1", "--all")
    assert "log.retention.ms=604800000" in described.output
    every = tools.run("kafka-configs", "--describe", "--entity-type", "brokers")
    assert every.lines == ["Dynamic configs for broker 1 are:", "Default configs for brokers in the cluster are:"]


def test_kafka_configs_keeps_settings_of_all_brokers_apart(tools: KafkaTools) -> None:
    every = ("--entity-type", "brokers", "--entity-default")
    this = ("--entity-type", "brokers", "--entity-name", "1")
    tools.run("kafka-configs", "--alter", *every, "--add-config", "log.cleaner.threads=2")
    tools.run("kafka-configs", "--alter", *this, "--add-config", "log.cleaner.threads=3")
    (_, entry) = tools.run("kafka-configs", "--describe", *every).lines
    assert (
        "log.cleaner.threads=2 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.threads=2}" in entry
    )
    (_, entry) = tools.run("kafka-configs", "--describe", *this).lines
    assert (
        "log.cleaner.threads=3 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.cleaner.threads=3, DYNAMIC_" in entry
    )
    for entity in (every, this):
        tools.run("kafka-configs", "--alter", *entity, "--delete-config", "log.cleaner.threads")


def test_kafka_configs_changes_groups_and_loggers(tools: KafkaTools) -> None:
    group = ("--entity-type", "groups", "--entity-name", "configured-by-a-tool")
    tools.run("kafka-configs", "--alter", *group, "--add-config", "consumer.session.timeout.ms=50000")
    assert "consumer.session.timeout.ms=50000" in tools.run("kafka-configs", "--describe", *group).output
    loggers = ("--entity-type", "broker-loggers", "--entity-name", "1")
    tools.run("kafka-configs", "--alter", *loggers, "--add-config", "logbrook.server.topics=DEBUG")
    described = tools.run("kafka-configs", "--describe", *loggers, allowed="=(WARN|ERROR) ").output
    assert "logbrook.server.topics=DEBUG" in described
    assert re.search(r"^ *logbrook=", described, re.MULTILINE)
    tools.run("kafka-configs", "--alter", *loggers, "--delete-config", "logbrook.server.topics")


def test_every_api_is_used_in_the_newest_version_of_the_tool(tools: KafkaTools) -> None:
    run = tools.run("kafka-broker-api-versions")
    served = re.findall(r"^\s(\w+)\(\d+\): \d+(?: to )?(\d*) \[usable: (\d+)\]", run.output, re.MULTILINE)
    assert len(served) > 25, str(run)
    assert [api for api in served if api[1] and api[1] != api[2]] == []
    used = {name for name, _, _ in served}
    assert {"Produce", "Fetch", "JoinGroup", "OffsetCommit", "InitProducerId", "DescribeTopicPartitions"} <= used


def test_kafka_cluster_prints_the_id_and_the_broker(tools: KafkaTools) -> None:
    assert re.fullmatch(r"Cluster ID: [\w-]{22}", tools.run("kafka-cluster", "cluster-id").lines[0])
    (node,) = tools.run("kafka-cluster", "list-endpoints").table
    assert node["STATE"] == "unfenced"


def test_kafka_log_dirs_prints_the_size_of_the_log(tools: KafkaTools, broker: Broker) -> None:
    broker.create_topic("sized")
    tools.run("kafka-console-producer", "--topic", "sized", stdin="value\n")
    run = tools.run("kafka-log-dirs", "--describe", "--topic-list", "sized")
    (directory,) = json.loads(run.lines[-1])["brokers"][0]["logDirs"]
    assert directory["logDir"] == broker.data
    assert directory["error"] is None
    (partition,) = directory["partitions"]
    # The header of a batch has 61 bytes, a record of 5 has 12.
    assert (partition["partition"], partition["size"], partition["offsetLag"]) == ("sized-0", 73, 0)


def test_kafka_features_prints_the_transaction_version(tools: KafkaTools) -> None:
    (line,) = tools.run("kafka-features", "describe").lines
    assert line.split()[:2] == ["Feature:", "transaction.version"]
    assert "FinalizedVersionLevel: 2" in line
