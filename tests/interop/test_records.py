"""Records are read back as they were sent: keys, values, headers, tombstones, timestamps and order."""

from time import time

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.interop.clients.interface import (
    BEGINNING,
    END,
    Client,
    Feature,
    Outgoing,
    ProducerOptions,
    ReaderOptions,
    Received,
    Stored,
)
from tests.interop.conftest import KEPT_FOREVER, NewTopic
from tests.interop.waiting import Deadline


def test_keys_values_and_headers_come_back(client: Client, servers: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    records = [
        Outgoing(topic, b"value"),
        Outgoing(topic, b"value", b"key"),
        Outgoing(topic, bytes(range(256)), b"\x00\xff binary"),
        Outgoing(topic, b"", b"empty value"),
        Outgoing(topic, b"with headers", b"k", headers=(("one", b"1"), ("two", b"\xff\x01"), ("one", b"again"))),
    ]
    with client.producer(servers) as producer:
        stored = producer.deliver(*records)
    assert stored == [Stored(0, offset) for offset in range(5)]
    received = client.read_all(servers, topic)
    assert [(record.key, record.value, record.headers) for record in received] == [
        (record.key, record.value, record.headers) for record in records
    ]
    assert [record.offset for record in received] == [0, 1, 2, 3, 4]


def test_a_header_may_have_no_value(client: Client, servers: str, new_topic: NewTopic) -> None:
    client.needs(Feature.NULL_HEADERS)
    topic = new_topic()
    with client.producer(servers) as producer:
        producer.deliver(Outgoing(topic, b"v", headers=(("nothing", None),)))
    assert client.read_all(servers, topic)[0].headers == (("nothing", None),)


def test_a_tombstone_has_a_key_and_no_value(client: Client, servers: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with client.producer(servers) as producer:
        producer.deliver(Outgoing(topic, b"there", b"key"), Outgoing(topic, None, b"key"))
    assert [(record.key, record.value) for record in client.read_all(servers, topic)] == [
        (b"key", b"there"),
        (b"key", None),
    ]


def test_a_compacted_topic_refuses_records_without_a_key_and_the_others_of_their_batch(
    servers: str, new_topic: NewTopic
) -> None:
    topic = new_topic(settings={"cleanup.policy": "compact"})
    errors: dict[bytes, int] = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        errors[message.value() or b""] = error.code() if error is not None else KafkaError.NO_ERROR

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 60_000})
    for value, key in ((b"first", b"k"), (b"second", None), (b"third", b"k"), (b"fourth", None)):
        producer.produce(topic, value, key, on_delivery=delivered)
    producer.flush()
    # librdkafka's error for the good records of a batch with several bad ones (KIP-467).
    good, bad = KafkaError._INVALID_DIFFERENT_RECORD, KafkaError.INVALID_RECORD
    assert errors == {b"first": good, b"second": bad, b"third": good, b"fourth": bad}


def test_a_producer_chooses_the_timestamps(client: Client, servers: str, new_topic: NewTopic) -> None:
    client.needs(Feature.TIMESTAMPS)
    topic = new_topic(settings=KEPT_FOREVER)
    times = [1_000_000_000_000, 1_600_000_000_123, 1_500_000_000_000]
    with client.producer(servers) as producer:
        producer.deliver(*[Outgoing(topic, b"v", timestamp_ms=timestamp_ms) for timestamp_ms in times])
    received = client.read_all(servers, topic)
    assert [record.timestamp_ms for record in received] == times
    assert [record.is_log_append_time for record in received] == [False] * 3


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_log_append_time_is_the_brokers(client: Client, servers: str, new_topic: NewTopic, codec: str) -> None:
    topic = new_topic(settings={"message.timestamp.type": "LogAppendTime"})
    long_ago_ms = None if Feature.TIMESTAMPS in client.lacks else 1_000_000_000_000
    before_ms = int(time() * 1000)
    with client.producer(servers, ProducerOptions(codec=codec)) as producer:
        producer.deliver(Outgoing(topic, b"v", timestamp_ms=long_ago_ms))
    (received,) = client.read_all(servers, topic)
    assert before_ms <= received.timestamp_ms <= time() * 1000
    assert received.is_log_append_time in (True, None), "kcat does not say"


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_records_arrive_with_any_acks(client: Client, servers: str, new_topic: NewTopic, acks: int) -> None:
    topic = new_topic()
    with client.producer(servers, ProducerOptions(acks=acks)) as producer:
        producer.deliver(*[Outgoing(topic, str(number).encode()) for number in range(20)])
        with client.reader(servers, topic, {0: BEGINNING}) as reader:
            received = reader.read(20)
    assert [record.value for record in received] == [str(number).encode() for number in range(20)]


def test_one_producer_fills_several_partitions(client: Client, servers: str, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=4)
    with client.producer(servers, ProducerOptions(linger_ms=20)) as producer:
        stored = producer.deliver(*[Outgoing(topic, b"%d" % number, partition=number % 4) for number in range(40)])
    assert sorted(stored) == [Stored(partition, offset) for partition in range(4) for offset in range(10)]
    received = client.read_all(servers, topic, partitions=4)
    for partition in range(4):
        values = [int(record.value or b"") for record in received if record.partition == partition]
        assert values == list(range(partition, 40, 4))


def test_a_key_always_goes_to_the_same_partition(client: Client, servers: str, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=4)
    keys = [b"key-%d" % number for number in range(20)]
    with client.producer(servers) as producer:
        producer.deliver(*[Outgoing(topic, b"v", key, partition=None) for key in keys * 3])
    received = client.read_all(servers, topic, partitions=4)
    assert len(received) == 60
    assert len({(record.key, record.partition) for record in received}) == 20


def test_a_reader_starts_at_the_given_offset(client: Client, servers: str, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    with client.producer(servers) as producer:
        producer.deliver(*[Outgoing(topic, b"%d" % number, partition=number % 2) for number in range(20)])
    with client.reader(servers, topic, {0: 7, 1: 9}) as reader:
        received = reader.read(4)
    assert sorted((record.partition, record.offset, record.value) for record in received) == [
        (0, 7, b"14"),
        (0, 8, b"16"),
        (0, 9, b"18"),
        (1, 9, b"19"),
    ]


def test_a_reader_seeks_back_and_forth(client: Client, servers: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with client.producer(servers) as producer:
        producer.deliver(*[Outgoing(topic, b"%d" % number) for number in range(10)])
    with client.reader(servers, topic, {0: BEGINNING}) as reader:
        reader.read(10)
        reader.seek(0, 8)
        assert [record.offset for record in reader.read(2)] == [8, 9]
        reader.seek(0, 2)
        assert [record.offset for record in reader.read(8)] == list(range(2, 10))


def test_an_empty_topic_returns_nothing_until_a_record_is_produced(
    client: Client, servers: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    assert client.ends(servers, topic, [0]) == {0: (0, 0)}
    with client.reader(servers, topic, {0: BEGINNING}) as reader, client.producer(servers) as producer:
        assert reader.poll(0.1) == []
        producer.deliver(Outgoing(topic, b"first"))
        assert [record.value for record in reader.read(1)] == [b"first"]


def test_a_reader_at_the_end_sees_only_later_records(client: Client, servers: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with client.producer(servers) as producer:
        producer.deliver(Outgoing(topic, b"earlier"))
        with client.reader(servers, topic, {0: END}) as reader:
            # Some clients look up the end in the background, so records are sent until they receive one.
            received: list[Received] = []
            deadline = Deadline()
            while not received:
                deadline.check("nothing came")
                producer.deliver(Outgoing(topic, b"later"))
                received = reader.poll(0.1)
    assert {record.value for record in received} == {b"later"}


def test_read_committed_returns_records_without_a_transaction(
    client: Client, servers: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    with client.producer(servers) as producer:
        producer.deliver(*[Outgoing(topic, b"%d" % number) for number in range(10)])
    received = client.read_all(servers, topic, options=ReaderOptions(read_committed=True))
    assert [record.value for record in received] == [b"%d" % number for number in range(10)]
