"""Our transactional producer, and the parts of micro-batches that it writes, on a real Apache Kafka."""

from collections.abc import Iterator
from itertools import count

import pyarrow as pa
import pytest

from logbrook.client import Client, ProducerFencedError, TransactionalProducer, TransactionTimedOutError
from logbrook.client.client import LATEST
from logbrook.client.partition_requests import PartitionRequests
from logbrook.model import TopicPartition
from logbrook.protocol.messages.api_versions import ApiVersionsRequest
from logbrook.protocol.schema import Versions
from logbrook.spark.exactly_once import ReplayError, TaskBatch, close_clients, send_once
from logbrook.spark.write_options import WriteOptions
from tests.interop.java.kafka_broker import KafkaBroker
from tests.interop.waiting import wait_until
from tests.unit.client.test_transactional import committed, produce

_numbers = count(1)


@pytest.fixture(params=["first-version", "second-version"])
def is_second(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run the test with both versions of the transaction protocol; True for the second."""
    if request.param == "first-version":
        monkeypatch.setattr(ApiVersionsRequest, "VERSIONS", Versions(0, 2))
    return bool(request.param == "second-version")


@pytest.fixture
def client(kafka: KafkaBroker) -> Iterator[Client]:
    with Client(kafka.bootstrap_servers) as client:
        yield client
    close_clients()


@pytest.fixture
def topic(client: Client) -> str:
    """A topic with one partition. Its name serves as transactional id and as app id too."""
    name = f"topic-{next(_numbers)}"
    client.create_topic(name)
    wait_until(lambda: bool(PartitionRequests(client).topics([name])), f"the creation of {name}")
    return name


def test_transactions_are_committed_aborted_and_fenced(
    kafka: KafkaBroker, client: Client, topic: str, is_second: bool
) -> None:
    with TransactionalProducer(client, topic) as producer:
        assert producer.uses_second_version is is_second
        for number in range(5):
            with producer.transaction():
                produce(producer, topic, 0, b"%d" % number)
            producer.begin()
            produce(producer, topic, 0, b"aborted")
            producer.flush()
            produce(producer, topic, 0, b"not even sent")
            producer.abort()
        producer.begin()
        produce(producer, topic, 0, b"of a zombie")
        producer.flush()
        with (
            Client(kafka.bootstrap_servers) as second_client,
            TransactionalProducer(second_client, topic),
            pytest.raises(ProducerFencedError),
        ):
            producer.commit()
    assert committed(kafka.bootstrap_servers, topic) == [b"%d" % number for number in range(5)]


def test_a_transaction_that_takes_too_long_is_named(
    kafka: KafkaBroker, client: Client, topic: str, is_second: bool
) -> None:
    partition = TopicPartition(topic, 0)

    def commit_late(producer: TransactionalProducer) -> None:
        # The broker may already refuse the record, if the machine is busy.
        producer.flush()
        wait_until(
            lambda: PartitionRequests(client).list_offsets({partition: LATEST}, committed_only=True)[partition] == 2,
            "that the broker aborts the transaction",
        )
        producer.commit()

    with TransactionalProducer(client, topic, transaction_timeout_ms=100) as producer:
        producer.begin()
        produce(producer, topic, 0, b"too late")
        with pytest.raises(TransactionTimedOutError):
            commit_late(producer)
    assert committed(kafka.bootstrap_servers, topic) == []


@pytest.mark.usefixtures("is_second")
def test_a_repeated_part_is_written_once(kafka: KafkaBroker, client: Client, topic: str) -> None:
    options = WriteOptions(kafka.bootstrap_servers, topic=topic, is_exactly_once=True)
    part = TaskBatch(topic, "query", 0, 0)

    def write(batch_id: int, rows: int = 10) -> int:
        numbers = [b"%d" % number for number in range(batch_id * 10, batch_id * 10 + rows)]
        batch = pa.RecordBatch.from_pydict({"value": numbers})
        return send_once(options, part._replace(batch_id=batch_id), iter([batch]))

    for batch_id in range(4):
        assert [write(batch_id) for _ in range(3)] == [10] * 3
    with pytest.raises(ReplayError, match="was written with 10 rows and has 9 now"):
        write(3, 9)
    with pytest.raises(ReplayError, match="cannot be written after batch 3"):
        write(2)
    assert committed(kafka.bootstrap_servers, topic) == [b"%d" % number for number in range(40)]
