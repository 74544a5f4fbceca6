"""Large records: refused above the limit, accepted once it is raised, and readable with any fetch size."""

import os

import pytest

from logbrook.protocol.error_codes import ErrorCode
from tests.interop.clients.interface import Client, Feature, Outgoing, ProducerOptions, ReaderOptions, RefusedError
from tests.interop.conftest import NewTopic

MIB = 1 << 20


def test_a_client_rejects_a_record_above_its_own_limit(client: Client, servers: str, new_topic: NewTopic) -> None:
    client.needs(Feature.CLIENT_SIDE_LIMIT)
    topic = new_topic()
    with client.producer(servers) as producer:
        with pytest.raises(RefusedError) as refused:
            producer.deliver(Outgoing(topic, bytes(2 * MIB)))
        assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert client.ends(servers, topic, [0]) == {0: (0, 0)}


def test_the_broker_rejects_a_record_above_the_limit_of_the_topic(
    client: Client, servers: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    with client.producer(servers, ProducerOptions(request_bytes_max=4 * MIB)) as producer:
        with pytest.raises(RefusedError) as refused:
            producer.deliver(Outgoing(topic, bytes(2 * MIB)))
        assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE
        producer.deliver(Outgoing(topic, b"small"))
    assert [record.value for record in client.read_all(servers, topic)] == [b"small"]


def test_a_reader_with_small_fetches_gets_past_large_records(client: Client, servers: str, new_topic: NewTopic) -> None:
    topic = new_topic(settings={"max.message.bytes": str(4 * MIB)})
    large = os.urandom(3 * MIB).replace(b"<|", b"..")
    values = [b"before", large, b"after", large[: 2 * MIB], b"last"]
    with client.producer(servers, ProducerOptions(request_bytes_max=5 * MIB)) as producer:
        for value in values:
            producer.deliver(Outgoing(topic, value))
    received = client.read_all(servers, topic, options=ReaderOptions(fetch_bytes_max=10_000))
    assert [record.value == value for record, value in zip(received, values, strict=True)] == [True] * 5
