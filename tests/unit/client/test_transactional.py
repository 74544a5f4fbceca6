"""Transactions in both versions of the protocol, on a real broker, librdkafka's mock cluster and scripted brokers."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from logbrook import Broker
from logbrook.client import (
    BrokerError,
    Client,
    ClientError,
    Connection,
    Coordinators,
    OffsetAndMetadata,
    ProducerFencedError,
    TransactionalProducer,
    TransactionTimedOutError,
)
from logbrook.client.client import LATEST
from logbrook.client.partition_requests import PartitionRequests
from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset, ProducerEpoch
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.errors import UnsupportedVersionError
from logbrook.protocol.framing import read_request_start
from logbrook.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from logbrook.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from logbrook.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from logbrook.protocol.messages.offset_fetch import OffsetFetchRequest
from logbrook.protocol.schema import ApiMessage, Versions
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.testing.processes import free_port
from tests.interop.java.cutting_proxy import CuttingProxy as RandomlyCuttingProxy
from tests.interop.proxy import CuttingProxy
from tests.interop.waiting import wait_until
from tests.unit.client.scripted_broker import ScriptedBroker, answer, api_version, request_in

_numbers = count(1)
# Versions of ApiVersions without features, so that the first version of the protocol is used.
WITHOUT_FEATURES = Versions(0, 2)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers) as client:
        yield client


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic of two partitions, whose name is also used as transactional id and as group id."""
    name = f"topic-{next(_numbers)}"
    broker.create_topic(name, 2)
    return name


@pytest.fixture(params=["first-version", "second-version"])
def is_second(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run the test with both versions of the protocol; True for the second."""
    if request.param == "first-version":
        monkeypatch.setattr(ApiVersionsRequest, "VERSIONS", WITHOUT_FEATURES)
    return bool(request.param == "second-version")


def produce(producer: TransactionalProducer, topic: str, partition: int, *values: bytes) -> None:
    producer.send(topic, partition, batch_for(producer, topic, partition, *values))


def batch_for(producer: TransactionalProducer, topic: str, partition: int, *values: bytes) -> bytearray:
    return build_batch(
        [Record(value=value, timestamp=0) for value in values],
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=producer.next_sequence(topic, partition),
        transactional=True,
    )


def committed(servers: str, topic: str, partition: int = 0) -> list[bytes]:
    """Return the values that librdkafka's consumer reads with read_committed."""
    settings: dict[str, Any] = {
        "bootstrap.servers": servers,
        "group.id": "nobody",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": 10,
        "log_level": 0,
    }
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
    values: list[bytes] = []
    while True:
        message = consumer.poll(10)
        assert message is not None
        if message.error():
            consumer.close()
            return values
        values.append(message.value() or b"")


def last_stable_offset(client: Client, topic: str) -> int:
    partition = TopicPartition(topic, 0)
    return PartitionRequests(client).list_offsets({partition: LATEST}, committed_only=True)[partition]


def test_a_transaction_is_visible_once_it_is_committed(
    broker: Broker, client: Client, topic: str, is_second: bool
) -> None:
    with TransactionalProducer(client, topic) as producer:
        assert producer.uses_second_version is is_second
        for number in range(3):
            producer.begin()
            for partition in (0, 1):
                produce(producer, topic, partition, b"a%d" % number, b"b%d" % number)
            producer.flush()
            assert len(committed(broker.bootstrap_servers, topic)) == number * 2, "not yet"
            producer.commit()
            expected = [letter + b"%d" % transaction for transaction in range(number + 1) for letter in (b"a", b"b")]
            assert [committed(broker.bootstrap_servers, topic, partition) for partition in (0, 1)] == [expected] * 2


def test_an_aborted_transaction_is_not_visible(broker: Broker, client: Client, topic: str, is_second: bool) -> None:
    with TransactionalProducer(client, topic) as producer:
        for number in range(3):
            producer.begin()
            produce(producer, topic, 0, b"aborted")
            produce(producer, topic, 1, b"aborted")
            producer.flush()
            produce(producer, topic, 0, b"not even sent")
            producer.abort()
            with producer.transaction():
                produce(producer, topic, 0, b"%d" % number)
    assert committed(broker.bootstrap_servers, topic) == [b"0", b"1", b"2"]
    assert committed(broker.bootstrap_servers, topic, 1) == []


def test_an_abort_before_anything_was_sent_leaves_no_gap_in_the_sequences(
    broker: Broker, client: Client, topic: str, is_second: bool
) -> None:
    with TransactionalProducer(client, topic) as producer:
        for number in range(3):
            with producer.transaction():
                produce(producer, topic, 0, b"%d" % number)
            producer.begin()
            produce(producer, topic, 0, b"not sent")
            producer.abort()
    assert committed(broker.bootstrap_servers, topic) == [b"0", b"1", b"2"]


def test_an_exception_in_the_block_aborts(broker: Broker, client: Client, topic: str, is_second: bool) -> None:
    with TransactionalProducer(client, topic) as producer:
        with suppress(KeyError), producer.transaction():
            produce(producer, topic, 0, b"aborted")
            producer.flush()
            raise KeyError
        assert last_stable_offset(client, topic) == client.list_offset(topic, 0)
    assert committed(broker.bootstrap_servers, topic) == []


def test_a_producer_continues_after_aborting_a_refused_batch(
    broker: Broker, client: Client, topic: str, is_second: bool
) -> None:
    broker.create_topic(f"{topic}-small", 1, {"max.message.bytes": "1000"})
    with TransactionalProducer(client, topic) as producer:
        producer.begin()
        produce(producer, topic, 0, b"aborted")
        produce(producer, f"{topic}-small", 0, bytes(2000))
        with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"):
            producer.commit()
        producer.abort()
        with producer.transaction():
            produce(producer, topic, 0, b"a")
    assert committed(broker.bootstrap_servers, topic) == [b"a"]


def test_leaving_the_block_of_the_producer_aborts(broker: Broker, client: Client, topic: str, is_second: bool) -> None:
    with TransactionalProducer(client, topic) as producer:
        producer.begin()
        produce(producer, topic, 0, b"aborted")
        producer.flush()
    assert last_stable_offset(client, topic) == client.list_offset(topic, 0), "the transaction is completed"
    assert committed(broker.bootstrap_servers, topic) == []


def test_a_zombie_is_fenced_and_its_open_transaction_aborted(
    broker: Broker, client: Client, topic: str, is_second: bool
) -> None:
    with Client(broker.bootstrap_servers) as second_client, TransactionalProducer(client, topic) as zombie:
        zombie.begin()
        produce(zombie, topic, 0, b"of the zombie")
        zombie.flush()
        with TransactionalProducer(second_client, topic) as producer:
            producer.begin()
            produce(producer, topic, 0, b"a")
            producer.flush()
            produce(zombie, topic, 0, b"of the zombie")
            with pytest.raises(ProducerFencedError, match=f"another producer has taken over .*'{topic}'"):
                zombie.flush()
            with pytest.raises(ProducerFencedError):
                zombie.commit()
            zombie.abort()
            with pytest.raises(ProducerFencedError):
                zombie.begin()
            producer.commit()
    assert committed(broker.bootstrap_servers, topic) == [b"a"]


def test_the_commit_of_a_zombie_is_fenced(broker: Broker, client: Client, topic: str, is_second: bool) -> None:
    with Client(broker.bootstrap_servers) as second_client, TransactionalProducer(client, topic) as zombie:
        zombie.begin()
        produce(zombie, topic, 0, b"of the zombie")
        zombie.flush()
        with TransactionalProducer(second_client, topic), pytest.raises(ProducerFencedError, match="committing"):
            zombie.commit()
    assert committed(broker.bootstrap_servers, topic) == []


def test_a_zombie_that_begins_after_an_abort_is_fenced(
    broker: Broker, client: Client, topic: str, is_second: bool
) -> None:
    with Client(broker.bootstrap_servers) as second_client, TransactionalProducer(client, topic) as zombie:
        zombie.begin()
        produce(zombie, topic, 0, b"aborted")
        zombie.abort()
        with TransactionalProducer(second_client, topic) as producer, producer.transaction():
            produce(producer, topic, 0, b"a")
            with pytest.raises(ProducerFencedError), zombie.transaction():
                produce(zombie, topic, 0, b"of the zombie")
    assert committed(broker.bootstrap_servers, topic) == [b"a"]


def test_a_transaction_timeout_is_distinguished_from_fencing(
    broker: Broker, client: Client, topic: str, is_second: bool
) -> None:
    with TransactionalProducer(client, topic, transaction_timeout_ms=50) as producer:
        producer.begin()
        produce(producer, topic, 0, b"too late")
        producer.flush()
        wait_until(lambda: last_stable_offset(client, topic) == 2, "that the broker aborts the transaction")
        with pytest.raises(TransactionTimedOutError, match=r"longer than its timeout of 0\.05 s"):
            producer.commit()
    with TransactionalProducer(client, topic, transaction_timeout_ms=50) as producer:
        producer.begin()
        produce(producer, topic, 0, b"too late")
        producer.flush()
        wait_until(lambda: last_stable_offset(client, topic) == 4, "that the broker aborts the transaction")
        produce(producer, topic, 0, b"too late")
        with pytest.raises(TransactionTimedOutError, match=f"producing to {topic}-0"):
            producer.commit()
    assert committed(broker.bootstrap_servers, topic) == []


def test_a_transaction_timeout_above_the_brokers_maximum_is_refused(client: Client, topic: str) -> None:
    with pytest.raises(BrokerError, match=f"taking over transactional id '{topic}': INVALID_TRANSACTION_TIMEOUT"):
        TransactionalProducer(client, topic, transaction_timeout_ms=2**31 - 1)


def test_offsets_are_committed_with_the_transaction(
    broker: Broker, client: Client, topic: str, is_second: bool
) -> None:
    partition = TopicPartition(topic, 1)
    with TransactionalProducer(client, topic) as producer:
        assert producer.committed(topic) == {}
        with producer.transaction():
            produce(producer, topic, 0, b"a")
            producer.send_offsets(topic, {partition: OffsetAndMetadata(Offset(7), "seven")})
        assert producer.committed(topic) == {partition: OffsetAndMetadata(Offset(7), "seven")}
        producer.begin()
        producer.send_offsets(
            topic, {partition: OffsetAndMetadata(Offset(8)), TopicPartition(topic, 0): OffsetAndMetadata(Offset(9))}
        )
        with pytest.raises(BrokerError, match="UNSTABLE_OFFSET_COMMIT"):
            Coordinators(client).committed(topic)
        producer.abort()
        assert producer.committed(topic) == {partition: OffsetAndMetadata(Offset(7), "seven")}


def test_partitions_are_those_of_the_open_transaction(client: Client, topic: str) -> None:
    with TransactionalProducer(client, topic) as producer:
        with producer.transaction():
            assert producer.partitions == set()
            produce(producer, topic, 1, b"a")
            assert producer.partitions == {TopicPartition(topic, 1)}
            producer.flush()
            produce(producer, topic, 0, b"a")
            assert producer.partitions == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
        assert producer.partitions == set()


def test_calls_in_the_wrong_order_are_refused(client: Client, topic: str) -> None:
    with TransactionalProducer(client, topic) as producer:
        for call in (producer.commit, producer.abort, lambda: produce(producer, topic, 0, b"a")):
            with pytest.raises(RuntimeError, match="no transaction is open"):
                call()
        producer.begin()
        with pytest.raises(RuntimeError, match="open already"):
            producer.begin()
        plain = build_batch(
            [Record(value=b"a")], producer_id=producer.producer_id, producer_epoch=ProducerEpoch(0), base_sequence=0
        )
        with pytest.raises(ValueError, match="not transactional"):
            producer.send(topic, 0, plain)
        producer.close()
        producer.abort()
        with pytest.raises(ClientError, match="closed"):
            producer.begin()


@pytest.fixture
def sent_requests(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The API name and version of every request that is sent."""
    sent_requests: list[tuple[str, int]] = []
    send = Connection._send

    def record(self: Connection, message: ApiMessage, version: int) -> int:
        sent_requests.append((message.API_NAME, version))
        return send(self, message, version)

    monkeypatch.setattr(Connection, "_send", record)
    return sent_requests


def test_each_version_of_the_protocol_sends_its_requests(
    client: Client, topic: str, is_second: bool, sent_requests: list[tuple[str, int]]
) -> None:
    with TransactionalProducer(client, topic) as producer:
        del sent_requests[:]
        with producer.transaction():
            pass
        assert sent_requests == [], "an empty transaction sends nothing"
        with producer.transaction():
            produce(producer, topic, 0, b"a")
            producer.send_offsets(topic, {TopicPartition(topic, 0): OffsetAndMetadata(Offset(1))})
    transactional = [
        request for request in sent_requests if request[0] not in ("ApiVersions", "Metadata", "FindCoordinator")
    ]
    if is_second:
        assert transactional == [("TxnOffsetCommit", 5), ("Produce", 13), ("EndTxn", 5)]
    else:
        assert transactional == [
            ("AddOffsetsToTxn", 4),
            ("TxnOffsetCommit", 4),
            ("AddPartitionsToTxn", 3),
            ("Produce", 11),
            ("EndTxn", 4),
        ]


def test_every_transaction_is_written_once_after_cuts_at_random_bytes(is_second: bool) -> None:
    proxy = RandomlyCuttingProxy(cuts=6, every_bytes=6_000)
    with proxy, Broker({"t": 2}, settings={"network": {"advertise": proxy.address}}) as broker:
        proxy.target = broker.bootstrap_servers
        with Client(proxy.address, timeout_s=5) as client, TransactionalProducer(client, "cut") as producer:
            for number in range(30):
                with producer.transaction():
                    produce(producer, "t", 0, b"%d" % number + bytes(300))
                    produce(producer, "t", 1, b"%d" % number + bytes(300))
                    producer.send_offsets("g", {TopicPartition("t", 0): OffsetAndMetadata(Offset(number))})
            assert producer.committed("g")[TopicPartition("t", 0)].offset == 29
        assert proxy.cuts_done == 6
        expected = [b"%d" % number + bytes(300) for number in range(30)]
        assert [committed(proxy.address, "t", partition) for partition in (0, 1)] == [expected] * 2


def test_a_transaction_survives_a_restart_of_the_broker(tmp_path: Path, is_second: bool) -> None:
    with CuttingProxy() as proxy:
        proxy.upstream = f"127.0.0.1:{free_port()}"
        network = {"listen": proxy.upstream, "advertise": proxy.address, "stop_ms": 100}
        with (
            Broker({"t": 1}, data=str(tmp_path), settings={"network": network}) as broker,
            Client(proxy.address) as client,
            TransactionalProducer(client, "restarted") as producer,
        ):
            for number in range(2):
                with producer.transaction():
                    produce(producer, "t", 0, b"%da" % number)
                    producer.flush()
                    broker.stop()
                    broker.start()
                    produce(producer, "t", 0, b"%db" % number)
            assert committed(proxy.address, "t") == [
                b"%d%c" % (number, letter) for number in range(2) for letter in b"ab"
            ]


def test_it_works_with_librdkafkas_mock_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three brokers, where coordinators and leaders differ."""
    monkeypatch.setattr(ApiVersionsRequest, "VERSIONS", WITHOUT_FEATURES)
    settings: dict[str, Any] = {"test.mock.num.brokers": 3, "bootstrap.servers": "mock", "log_level": 0}
    cluster = confluent_kafka.Producer(settings)
    servers = ",".join(f"{broker.host}:{broker.port}" for broker in cluster.list_topics(timeout=10).brokers.values())
    assert len(cluster.list_topics("t", timeout=10).topics["t"].partitions) > 1
    with Client(servers) as client, TransactionalProducer(client, "mocked") as producer:
        assert not producer.uses_second_version
        for number in range(5):
            with producer.transaction():
                for partition in (0, 1):
                    produce(producer, "t", partition, b"%d" % number)
                producer.send_offsets("g", {TopicPartition("t", 0): OffsetAndMetadata(Offset(number))})
        with pytest.raises(UnsupportedVersionError, match="OffsetFetch"):
            producer.committed("g")
    assert [committed(servers, "t", partition) for partition in (0, 1)] == [[b"%d" % number for number in range(5)]] * 2


class Scripted:
    """A broker that is its own coordinator and answers InitProducerId with these codes in turn."""

    def __init__(self, *codes: ErrorCode) -> None:
        self._codes = list(codes)
        self.broker = ScriptedBroker(self._respond)
        self.asked: list[str] = []

    def _respond(self, frame: memoryview) -> bytes:
        key = read_request_start(frame).api_key
        response: ApiMessage
        if key == ApiVersionsRequest.API_KEY:
            requests: list[type[ApiMessage]] = [ApiVersionsRequest, FindCoordinatorRequest, InitProducerIdRequest]
            response = ApiVersionsResponse(api_keys=[*map(api_version, requests), api_version(OffsetFetchRequest)])
        elif key == FindCoordinatorRequest.API_KEY:
            self.asked.append(f"{request_in(frame, FindCoordinatorRequest).key_type}")
            response = FindCoordinatorResponse(host=self.broker.host, port=self.broker.port)
        else:
            self.asked.append("init")
            response = InitProducerIdResponse(error_code=self._codes.pop(0), producer_id=7, producer_epoch=3)
        return answer(frame, response)


MOVED = [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE]
BUSY = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]


def test_init_producer_id_is_retried_and_a_moved_coordinator_looked_up_again() -> None:
    scripted = Scripted(*MOVED, *BUSY, ErrorCode.NONE)
    with scripted.broker, Client(scripted.broker.address) as client, TransactionalProducer(client, "t") as producer:
        assert (producer.producer_id, producer.producer_epoch) == (7, 3)
        assert not producer.uses_second_version
    # Only the codes of a moved coordinator cause another FindCoordinator.
    assert scripted.asked == ["1", "init", "1", "init", "1", "init", "init", "init"]


@pytest.mark.parametrize(
    ("codes", "timeout_s"),
    [
        ([ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED], 30.0),
        ([ErrorCode.CONCURRENT_TRANSACTIONS] * 1000, 0.2),
    ],
)
def test_init_producer_id_fails_at_once_or_after_the_timeout(codes: list[ErrorCode], timeout_s: float) -> None:
    scripted = Scripted(*codes)
    with (
        scripted.broker,
        Client(scripted.broker.address, timeout_s=timeout_s) as client,
        pytest.raises(BrokerError, match=f"taking over transactional id 't': {codes[0].name}"),
    ):
        TransactionalProducer(client, "t")
