"""The producer against a real broker, directly and through a proxy that cuts connections, and against scripted ones."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import confluent_kafka
import pytest

from logbrook import Broker
from logbrook.client import (
    BrokerError,
    Client,
    ClientError,
    ConnectFailedError,
    DeliveryTimedOutError,
    Producer,
    ProducerStateError,
)
from logbrook.model.identifiers import Offset
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.errors import ProtocolError
from logbrook.protocol.framing import read_request_start
from logbrook.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from logbrook.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from logbrook.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from logbrook.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from logbrook.protocol.schema import ApiMessage, Versions
from logbrook.records.batch import NO_PRODUCER_ID, SEQUENCE_MAX, read_header
from logbrook.records.builder import build_batch
from logbrook.records.reader import iter_records
from logbrook.records.record import Record
from logbrook.testing.processes import free_port
from tests.interop.java.cutting_proxy import CuttingProxy as RandomlyCuttingProxy
from tests.interop.proxy import CuttingProxy, Moment
from tests.unit.client.scripted_broker import ScriptedBroker, answer, api_version, request_in

COUNT = 60


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers) as client:
        yield client


def produce(producer: Producer, topic: str, partition: int, *values: bytes) -> None:
    producer.send(topic, partition, batch_for(producer, topic, partition, *values))


def batch_for(producer: Producer, topic: str, partition: int, *values: bytes) -> bytearray:
    return build_batch(
        [Record(value=value, timestamp=0) for value in values],
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=producer.next_sequence(topic, partition),
    )


def read_all(client: Client, topic: str, partition: int = 0) -> list[bytes]:
    values: list[bytes] = []
    end = client.list_offset(topic, partition)
    while len(values) < end:
        for batch in client.fetch(topic, partition, Offset(len(values))).batches:
            values += [record.value or b"" for record in iter_records(batch, bytes_max=1 << 24)]
    return values


def numbered(count: int = COUNT, padding: int = 150) -> list[bytes]:
    return [b"%05d" % number + bytes(padding) for number in range(count)]


def test_all_batches_are_written_in_order_after_a_flush(broker: Broker, client: Client) -> None:
    broker.create_topic("ordered", 3)
    with Producer(client, request_bytes_max=500) as producer:
        for value in numbered():
            for partition in range(3):
                produce(producer, "ordered", partition, value, value)
        producer.flush()
        assert producer.in_flight_bytes == 0
        for partition in range(3):
            assert read_all(client, "ordered", partition) == [value for value in numbered() for _ in range(2)]


def test_leaving_the_block_flushes(broker: Broker, client: Client) -> None:
    broker.create_topic("left")
    with Producer(client) as producer:
        produce(producer, "left", 0, b"a")
    assert read_all(client, "left") == [b"a"]


def test_leaving_the_block_by_an_exception_does_not_flush(broker: Broker, client: Client) -> None:
    broker.create_topic("given-up")
    with suppress(KeyError), Producer(client) as producer:
        produce(producer, "given-up", 0, b"a")
        raise KeyError
    assert read_all(client, "given-up") == []
    with pytest.raises(ClientError, match="closed"):
        producer.flush()


def test_batches_carry_the_producer_id_and_consecutive_sequences(broker: Broker, client: Client) -> None:
    broker.create_topic("counted")
    with Producer(client) as producer:
        assert producer.producer_id != NO_PRODUCER_ID
        for size in (1, 3, 2):
            produce(producer, "counted", 0, *[b"x"] * size)
        assert producer.next_sequence("counted", 0) == 6
        producer.flush()
        headers = [read_header(batch) for batch in client.fetch("counted", 0, Offset(0)).batches]
    assert [(header.producer_id, header.base_sequence) for header in headers] == [
        (producer.producer_id, sequence) for sequence in (0, 1, 4)
    ]


def test_a_batch_of_another_sequence_or_producer_is_refused(broker: Broker, client: Client) -> None:
    broker.create_topic("strange")
    with Producer(client) as producer, Producer(client) as other_producer:
        batch = batch_for(producer, "strange", 0, b"a")
        producer.send("strange", 0, batch)
        for wrong in (batch, build_batch([Record(value=b"b")]), batch_for(other_producer, "strange", 0, b"c")):
            with pytest.raises(ValueError, match="strange-0"):
                producer.send("strange", 0, wrong)
    assert read_all(client, "strange") == [b"a"]


def test_bytes_in_flight_are_bounded(broker: Broker, client: Client) -> None:
    broker.create_topic("bounded", 2)
    with Producer(client, in_flight_bytes_max=10_000) as producer:
        for value in numbered(padding=1000):
            produce(producer, "bounded", 0, value)
            assert producer.in_flight_bytes <= 10_000
        produce(producer, "bounded", 1, bytes(50_000))
        assert producer.in_flight_bytes >= 50_000, "a batch larger than the bound is sent alone"
    assert read_all(client, "bounded", 0) == numbered(padding=1000)
    assert read_all(client, "bounded", 1) == [bytes(50_000)]


def test_a_refused_batch_fails_the_producer_for_good(broker: Broker, client: Client) -> None:
    broker.create_topic("small", 2, {"max.message.bytes": "1000"})
    producer = Producer(client)
    produce(producer, "small", 1, bytes(2000))
    with pytest.raises(BrokerError, match=r"small-1.*MESSAGE_TOO_LARGE") as raised:
        producer.flush()
    assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(BrokerError, match="small-1"):
        produce(producer, "small", 0, b"a")
    producer.close()


def test_the_partition_count_of_an_unknown_topic_is_an_error(client: Client) -> None:
    with Producer(client) as producer, pytest.raises(BrokerError) as raised:
        producer.partition_count("missing")
    assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_unknown_topic_is_retried_until_the_delivery_timeout(broker: Broker, client: Client) -> None:
    producer = Producer(client, delivery_timeout_s=0.3)
    produce(producer, "missing", 0, b"a")
    with pytest.raises(DeliveryTimedOutError, match=r"missing-0.*0\.3 s.*UNKNOWN_TOPIC_OR_PARTITION"):
        producer.flush()
    producer.close()


def test_getting_a_producer_id_is_retried_until_the_request_timeout() -> None:
    with Client(f"127.0.0.1:{free_port()}", timeout_s=0.3) as client, pytest.raises(ConnectFailedError):
        Producer(client)


@pytest.fixture
def proxy() -> Iterator[CuttingProxy]:
    """A proxy that cuts the connection at a chosen Produce request."""
    with CuttingProxy() as proxy:
        proxy.upstream = f"127.0.0.1:{free_port()}"
        yield proxy


@pytest.fixture
def cut_off(proxy: CuttingProxy, tmp_path: Path) -> Iterator[Broker]:
    """A broker that is reachable only through the proxy, with a topic `t` of two partitions."""
    network = {"listen": proxy.upstream, "advertise": proxy.address, "stop_ms": 100}
    with Broker({"t": 2}, data=str(tmp_path), settings={"network": network}) as broker:
        yield broker


@pytest.mark.parametrize("moment", Moment, ids=lambda moment: moment.value)
def test_each_record_is_written_once_after_a_cut(proxy: CuttingProxy, cut_off: Broker, moment: Moment) -> None:
    proxy.cut(moment, 1, 4, 7)
    with Client(proxy.address) as client:
        with Producer(client, request_bytes_max=1) as producer:
            for value in numbered():
                produce(producer, "t", 0, value)
                produce(producer, "t", 1, value)
        assert proxy.has_cut.is_set()
        assert [read_all(client, "t", partition) for partition in (0, 1)] == [numbered(), numbered()]


def test_each_record_is_written_once_after_a_restart(proxy: CuttingProxy, cut_off: Broker) -> None:
    proxy.cut(Moment.BEFORE_THE_ANSWER, 3)
    with Client(proxy.address) as client:
        with Producer(client, request_bytes_max=1) as producer:
            for number, value in enumerate(numbered()):
                produce(producer, "t", 0, value)
                if number == 30:
                    cut_off.stop()
                    cut_off.start()
        assert proxy.has_cut.is_set()
        assert read_all(client, "t") == numbered()


def test_each_record_is_written_once_after_cuts_at_random_bytes() -> None:
    proxy = RandomlyCuttingProxy(cuts=6, every_bytes=70_000)
    with proxy, Broker({"t": 3}, settings={"network": {"advertise": proxy.address}}) as broker:
        proxy.target = broker.bootstrap_servers
        with Client(proxy.address, timeout_s=5) as client, Producer(client, request_bytes_max=4000) as producer:
            for value in numbered(150, padding=1500):
                for partition in range(3):
                    produce(producer, "t", partition, value)
            producer.flush()
        assert proxy.cuts_done == 6
        with Client(proxy.address) as client:
            assert all(read_all(client, "t", partition) == numbered(150, 1500) for partition in range(3))


def test_a_stalled_connection_is_replaced() -> None:
    proxy = RandomlyCuttingProxy(stall_at_bytes=20_000, stall_s=0.8)
    with proxy, Broker(["t"], settings={"network": {"advertise": proxy.address}}) as broker:
        proxy.target = broker.bootstrap_servers
        with Client(proxy.address, timeout_s=0.3) as client, Producer(client, request_bytes_max=1) as producer:
            for value in numbered(padding=1500):
                produce(producer, "t", 0, value)
            producer.flush()
            assert read_all(client, "t") == numbered(padding=1500)


def test_without_sequences_the_same_cut_duplicates_a_record(proxy: CuttingProxy, cut_off: Broker) -> None:
    """Shows that the cuts of the tests above do lose acknowledgements."""
    proxy.cut(Moment.BEFORE_THE_ANSWER, 1)
    with Client(proxy.address) as client:
        batch = build_batch([Record(value=b"a")])
        with pytest.raises(ClientError):
            client.produce("t", 0, batch)
        client.produce("t", 0, batch)
        assert read_all(client, "t") == [b"a", b"a"]


def test_it_works_with_librdkafkas_mock_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three brokers; librdkafka's consumer reads what they have received."""
    # It answers unsupported versions of ApiVersions in a form of its own.
    monkeypatch.setattr(ApiVersionsRequest, "VERSIONS", Versions(0, 2))
    settings: dict[str, Any] = {"test.mock.num.brokers": 3, "bootstrap.servers": "mock", "log_level": 0}
    cluster = confluent_kafka.Producer(settings)
    servers = [f"{broker.host}:{broker.port}" for broker in cluster.list_topics(timeout=10).brokers.values()]
    # Asking for the topic creates it.
    partitions = list(cluster.list_topics("t", timeout=10).topics["t"].partitions)
    with Client(servers) as client, Producer(client, request_bytes_max=2000) as producer:
        assert producer.partition_count("t") == len(partitions) > 1
        for value in numbered(200):
            for partition in partitions:
                produce(producer, "t", partition, value)
    settings = {"bootstrap.servers": ",".join(servers), "group.id": "g", "enable.partition.eof": True}
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition("t", partition, 0) for partition in partitions])
    values: dict[int | None, list[bytes]] = {partition: [] for partition in partitions}
    ended = 0
    while ended < len(partitions):
        message = consumer.poll(10)
        assert message is not None
        if message.error():
            ended += 1
        else:
            values[message.partition()].append(message.value() or b"")
    consumer.close()
    assert values == dict.fromkeys(partitions, numbered(200))


Code = Callable[[int, int], int | None]


@dataclass
class Cluster:
    """Three scripted brokers: the first serves metadata, the others are the leaders of the partitions of `t`.

    `code(broker, base sequence)` is the error code for a batch, None for no response. `seen` has (broker, partition,
    base sequence) of every batch received, `written` of those that were acknowledged.
    """

    leaders: list[int]
    code: Code = lambda peer, sequence: 0
    throttle_time_ms: int = 0
    seen: list[tuple[int, int, int]] = field(default_factory=list)
    written: list[tuple[int, int, int]] = field(default_factory=list)

    def respond(self, number: int, frame: memoryview) -> bytes | None:
        key = read_request_start(frame).api_key
        response: ApiMessage | None
        if key == ApiVersionsRequest.API_KEY:
            requests: list[type[ApiMessage]] = [ApiVersionsRequest, MetadataRequest, InitProducerIdRequest]
            # The last version with topic names.
            versions = [*map(api_version, requests), api_version(ProduceRequest, last=12)]
            response = ApiVersionsResponse(api_keys=versions)
        elif key == MetadataRequest.API_KEY:
            response = self.metadata()
        elif key == InitProducerIdRequest.API_KEY:
            response = InitProducerIdResponse(producer_id=7, producer_epoch=1)
        else:
            response = self.produced(number, request_in(frame, ProduceRequest))
        return None if response is None else answer(frame, response)

    def metadata(self) -> MetadataResponse:
        brokers = [MetadataResponseBroker(node_id=n, host=peer.host, port=peer.port) for n, peer in self.peers.items()]
        partitions = [
            MetadataResponsePartition(partition_index=index, leader_id=leader)
            for index, leader in enumerate(self.leaders)
        ]
        return MetadataResponse(brokers=brokers, topics=[MetadataResponseTopic(name="t", partitions=partitions)])

    def produced(self, number: int, request: ProduceRequest) -> ProduceResponse | None:
        assert request.acks == -1
        answers = []
        for data in request.topic_data[0].partition_data:
            assert isinstance(data.records, memoryview)
            sequence = read_header(data.records).base_sequence
            self.seen.append((number, data.index, sequence))
            code = self.code(number, sequence)
            if code is None:
                return None
            if code == 0:
                self.written.append((number, data.index, sequence))
            answers.append(PartitionProduceResponse(index=data.index, error_code=code))
        topics = [TopicProduceResponse(name="t", partition_responses=answers)]
        return ProduceResponse(responses=topics, throttle_time_ms=self.throttle_time_ms)

    def deliver(self, count: int = 8, delivery_timeout_s: float = 20.0) -> None:
        """Send `count` batches of one record to each partition."""
        with (
            Client(self.peers[0].address) as client,
            Producer(client, delivery_timeout_s=delivery_timeout_s) as producer,
        ):
            for _ in range(count):
                for partition in range(len(self.leaders)):
                    produce(producer, "t", partition, b"x")

    def __enter__(self) -> "Cluster":
        self.peers = {number: ScriptedBroker(partial(self.respond, number)) for number in range(3)}
        for peer in self.peers.values():
            peer.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        for peer in self.peers.values():
            peer.__exit__(None, None, None)


def test_each_partition_is_written_to_its_leader() -> None:
    with Cluster([1, 2, 1]) as cluster:
        cluster.deliver(3)
        assert sorted(cluster.written) == [
            (leader, index, n) for leader, index in [(1, 0), (1, 2), (2, 1)] for n in range(3)
        ]


def test_a_request_has_a_batch_of_each_partition() -> None:
    with Cluster([1, 1, 1]) as cluster:
        cluster.deliver(3)
        requests = [start for start in cluster.peers[1].starts if start.api_key == ProduceRequest.API_KEY]
        assert len(requests) == 3


def test_a_leader_that_has_moved_is_followed_in_order() -> None:
    cluster = Cluster([1])

    def code(peer: int, sequence: int) -> int:
        if peer == 1 and sequence >= 3:
            cluster.leaders = [2]
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return 0

    cluster.code = code
    with cluster:
        cluster.deliver()
        assert cluster.written == [(1 if sequence < 3 else 2, 0, sequence) for sequence in range(8)]


class Strict:
    """The codes of a broker that accepts only the next sequence, and fails once at `fails_at` with `code`."""

    def __init__(self, fails_at: int, code: int) -> None:
        self._fails_at: int | None = fails_at
        self._code = code
        self._expected = 0

    def __call__(self, peer: int, sequence: int) -> int:
        if sequence == self._fails_at:
            self._fails_at = None
            return self._code
        if sequence != self._expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self._expected += 1
        return ErrorCode.NONE


@pytest.mark.parametrize("fails_at", [0, 1, 2, 7])
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
    ids=lambda code: code.name,
)
def test_a_failed_batch_and_the_batches_after_it_are_sent_again(fails_at: int, code: ErrorCode) -> None:
    with Cluster([1], Strict(fails_at, code)) as cluster:
        cluster.deliver()
        assert cluster.written == [(1, 0, sequence) for sequence in range(8)]


def test_a_retry_that_becomes_due_while_others_are_sent_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    send_pending = Producer._send_pending

    def send_slowly(producer: Producer) -> None:
        send_pending(producer)
        until_s = max((queue.retry_at_s for queue in producer._pending.values()), default=0.0)
        while monotonic() < until_s:
            pass

    monkeypatch.setattr(Producer, "_send_pending", send_slowly)
    with Cluster([1], Strict(0, ErrorCode.NOT_ENOUGH_REPLICAS)) as cluster:
        cluster.deliver(1, delivery_timeout_s=3.0)
        assert cluster.written == [(1, 0, 0)]


def test_the_first_batch_of_a_partition_is_sent_alone() -> None:
    with Cluster([1], Strict(0, ErrorCode.NOT_ENOUGH_REPLICAS)) as cluster:
        cluster.deliver(3)
        assert cluster.seen == [(1, 0, sequence) for sequence in (0, 0, 1, 2)]


def test_at_most_five_requests_are_in_flight() -> None:
    cluster = Cluster([1], lambda peer, sequence: 0 if sequence == 0 else None)
    with cluster, pytest.raises(DeliveryTimedOutError, match=r"t-0.*0\.5 s"):
        cluster.deliver(delivery_timeout_s=0.5)
    assert cluster.seen == [(1, 0, sequence) for sequence in range(6)]


def test_nothing_is_sent_during_the_throttle_time() -> None:
    with Cluster([1], throttle_time_ms=150) as cluster:
        began_s = monotonic()
        cluster.deliver(3)
        # The first batch is sent alone, the others together after the throttle time.
        assert 0.15 <= monotonic() - began_s < 10
        assert cluster.seen == [(1, 0, sequence) for sequence in range(3)]


def test_the_error_of_a_malformed_response_names_the_partition() -> None:
    with Cluster([1]) as cluster:
        produced = partial(cluster.respond, 1)

        def respond(frame: memoryview) -> bytes | None:
            if read_request_start(frame).api_key != ProduceRequest.API_KEY:
                return produced(frame)
            return (6).to_bytes(4, "big") + bytes(frame[4:8]) + b"\xff\xff"

        cluster.peers[1].responses = (respond,)
        with pytest.raises(ProtocolError) as raised:
            cluster.deliver()
        assert raised.value.__notes__ == ["while producing to t-0"]


def test_a_duplicate_sequence_counts_as_written() -> None:
    with Cluster([1], lambda peer, sequence: ErrorCode.DUPLICATE_SEQUENCE_NUMBER if sequence == 2 else 0) as cluster:
        cluster.deliver()
        assert cluster.seen == [(1, 0, sequence) for sequence in range(8)]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
    ],
    ids=lambda code: code.name,
)
def test_a_lost_sequence_fails_the_producer(code: ErrorCode) -> None:
    with Cluster([1], lambda peer, sequence: code if sequence == 2 else 0) as cluster:
        with pytest.raises(ProducerStateError, match=f"t-0: {code.name}") as raised:
            cluster.deliver()
        assert raised.value.code is code


def test_any_other_error_is_raised_at_once() -> None:
    with Cluster([1], lambda peer, sequence: ErrorCode.TOPIC_AUTHORIZATION_FAILED) as cluster:
        with pytest.raises(BrokerError, match="t-0: TOPIC_AUTHORIZATION_FAILED"):
            cluster.deliver()
        assert len(cluster.seen) == 1


def test_a_delivery_timeout_names_the_last_error() -> None:
    cluster = Cluster([1], lambda peer, sequence: ErrorCode.NOT_ENOUGH_REPLICAS)
    with cluster, pytest.raises(DeliveryTimedOutError, match=r"t-0.*0\.4 s.*NOT_ENOUGH_REPLICAS") as raised:
        cluster.deliver(delivery_timeout_s=0.4)
    assert isinstance(raised.value.last_error, BrokerError)
    assert set(cluster.seen) == {(1, 0, 0)}


def test_a_response_without_a_partition_is_an_error() -> None:
    cluster = Cluster([1])
    with cluster:
        cluster.produced = lambda number, request: ProduceResponse()  # type: ignore[method-assign]
        with pytest.raises(ClientError, match="t-0: the response has no entry"):
            cluster.deliver()


def test_sequences_wrap_around(broker: Broker, client: Client) -> None:
    broker.create_topic("wrapped")
    with Producer(client) as producer:
        producer._queue("wrapped", 0).next_sequence = SEQUENCE_MAX
        for value in (b"a", b"b", b"c"):
            produce(producer, "wrapped", 0, value, value)
        assert producer.next_sequence("wrapped", 0) == 5
    assert read_all(client, "wrapped") == [b"a", b"a", b"b", b"b", b"c", b"c"]
