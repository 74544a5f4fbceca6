"""`logbrook transaction`, against a real broker."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from logbrook import Broker
from logbrook.client import Client, ProducerFencedError, TransactionalProducer
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from tests.unit.cli.shell import Shell


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"payments": 2}) as broker:
        yield broker


@pytest.fixture
def shell(broker: Broker, tmp_path: Path) -> Shell:
    return Shell(broker.bootstrap_servers, tmp_path)


@pytest.fixture
def producer(broker: Broker, request: pytest.FixtureRequest) -> Iterator[TransactionalProducer]:
    """A producer with an open transaction in partition 1; its id is the name of the test."""
    with (
        Client(broker.bootstrap_servers) as client,
        TransactionalProducer(client, request.node.name, transaction_timeout_ms=300_000) as producer,
    ):
        producer.begin()
        batch = build_batch(
            [Record(None, request.node.name.encode(), (), 1_900_000_000_000)],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=producer.next_sequence("payments", 1),
            transactional=True,
        )
        producer.send("payments", 1, batch)
        producer.flush()
        yield producer


def test_transactions_are_listed_and_described(
    shell: Shell, producer: TransactionalProducer, request: pytest.FixtureRequest
) -> None:
    name = request.node.name
    listed = {row["transactional_id"]: row for row in shell.json("transaction", "list")}
    row = listed[name]
    assert row.pop("started_ms") > 0
    assert row == {
        "transactional_id": name,
        "state": "Ongoing",
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "coordinator": 1,
        "timeout_ms": 300_000,
        "partitions": [{"topic": "payments", "partition": 1}],
    }
    described = shell.json("transaction", "describe", name)
    assert described.pop("started_ms") > 0
    assert described == row
    assert name in shell.ok("transaction", "list", "--open")
    text = shell.ok("transaction", "describe", name)
    assert "state             Ongoing\n" in text
    assert text.endswith("Partitions\nTOPIC     PARTITION\npayments          1\n")
    producer.commit()
    assert name not in [row["transactional_id"] for row in shell.json("transaction", "list", "--open")]


def test_aborting_lets_consumers_of_committed_records_continue(
    shell: Shell, producer: TransactionalProducer, request: pytest.FixtureRequest
) -> None:
    name = request.node.name
    assert "give --yes" in shell.refused("transaction", "abort", name, code=2)
    done = shell.ok("transaction", "abort", name, "--yes")
    assert done == f"aborted the transaction of {name}; its producer is fenced\n"
    assert shell.json("transaction", "describe", name)["partitions"] == []
    assert name not in shell.ok("consume", "payments")
    assert name in shell.ok("consume", "payments", "--isolation", "read_uncommitted")
    with pytest.raises(ProducerFencedError):
        producer.commit()
    message = shell.refused("transaction", "abort", name, "--yes")
    assert message.startswith(f"{name} has no open transaction: its state is ")


def test_without_transactions_the_list_reports_it(tmp_path: Path) -> None:
    with Broker() as broker:
        shell = Shell(broker.bootstrap_servers, tmp_path)
        assert shell.json("transaction", "list") == []
        assert shell.run("transaction", "list", "--open").err == "there are no transactional ids\n"


def test_an_unknown_id_is_reported(shell: Shell) -> None:
    advice = "it does not exist; `logbrook transaction list` shows the transactional ids"
    for command in ("describe", "abort"):
        assert shell.refused("transaction", command, "nope") == f"looking up transactional id nope: {advice}"
