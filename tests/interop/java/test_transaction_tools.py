"""Kafka's tools for transactions; and our markers and our internal topic, read by Kafka's own decoders."""

import json
import re
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from logbrook import Broker
from tests.interop.java.kafka_tools import KafkaTools

# Numeric state in the transaction log.
_ONGOING = 1


@pytest.fixture
def open_transaction(broker: Broker, request: pytest.FixtureRequest) -> Iterator[str]:
    """Begin a transaction with one record. Returns its transactional id, which is also the name of its topic."""
    name: str = request.node.name
    broker.create_topic(name)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(name, b"value", partition=0)
    producer.flush(20)
    yield name
    producer.abort_transaction(20)
    producer.close()


def test_kafka_transactions_lists_and_describes(tools: KafkaTools, open_transaction: str) -> None:
    listed = {row["TransactionalId"]: row["TransactionState"] for row in tools.run("kafka-transactions", "list").table}
    assert listed[open_transaction] == "Ongoing"
    (transaction,) = tools.run("kafka-transactions", "describe", "--transactional-id", open_transaction).table
    assert (transaction["TransactionState"], transaction["TopicPartitions"]) == ("Ongoing", f"{open_transaction}-0")
    place = ("--topic", open_transaction, "--partition", "0")
    (producer,) = tools.run("kafka-transactions", "describe-producers", *place).table
    assert (producer["ProducerId"], producer["CurrentTransactionStartOffset"]) == (transaction["ProducerId"], "0")


def test_kafka_transactions_finds_no_hanging_transaction(tools: KafkaTools, open_transaction: str) -> None:
    """A transaction is open, and its coordinator knows it."""
    place = ("--topic", open_transaction, "--partition", "0", "--max-transaction-timeout", "0")
    assert tools.run("kafka-transactions", "find-hanging", *place).lines[1:] == []


def test_kafka_transactions_aborts_in_a_partition(tools: KafkaTools, open_transaction: str) -> None:
    place = ("--topic", open_transaction, "--partition", "0")
    tools.run("kafka-transactions", "abort", *place, "--start-offset", "0")
    (producer,) = tools.run("kafka-transactions", "describe-producers", *place).table
    assert producer["CurrentTransactionStartOffset"] == "None"
    assert re.findall(r"endTxnMarker: (\w+)", tools.dump(open_transaction).output) == ["ABORT"]


def test_kafka_producer_perf_test_writes_transactions(tools: KafkaTools, broker: Broker) -> None:
    broker.create_topic("transactional-perf")
    size = ("--num-records", "2000", "--record-size", "100", "--throughput", "-1")
    options = ("--transaction-duration-ms", "20", "--transactional-id", "perf")
    run = tools.run("kafka-producer-perf-test", "--topic", "transactional-perf", *size, *options)
    assert run.lines[-1].startswith("2000 records sent")
    place = ("--topic", "transactional-perf", "--partition", "0", "--offset", "earliest", "--max-messages", "2000")
    read = tools.run("kafka-console-consumer", *place, "--isolation-level", "read_committed")
    assert len(read.lines) == 2000
    (state,) = [row for row in tools.run("kafka-transactions", "list").table if row["TransactionalId"] == "perf"]
    assert state["TransactionState"] == "CompleteCommit"


def test_kafka_dump_log_decodes_our_log_of_transactions(tools: KafkaTools, open_transaction: str) -> None:
    dumped = tools.dump("__transaction_state", "--transaction-log-decoder").output
    (*_, newest) = [line for line in dumped.splitlines() if f'"transactionalId":"{open_transaction}"' in line]
    value = json.loads(newest.rpartition("payload: ")[2])["data"]
    assert value["transactionStatus"] == _ONGOING
    assert value["transactionPartitions"] == [{"topic": open_transaction, "partitionIds": [0]}]


def test_kafka_dump_log_reads_our_markers(tools: KafkaTools, broker: Broker) -> None:
    broker.create_topic("marked")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "marked"})
    producer.init_transactions(20)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce("marked", b"value", partition=0)
        producer.flush(20)
        end(20)
    producer.close()
    dumped = tools.dump("marked").output
    assert re.findall(r"endTxnMarker: (\w+)", dumped) == ["COMMIT", "ABORT"]
    assert re.findall(r"isTransactional: (\w+) isControl: (\w+)", dumped) == [("true", "false"), ("true", "true")] * 2
