"""Large records: refused above the limit, accepted once it is raised, and never in a reader's way."""

import os

import pytest

from logbrook.protocol.error_codes import ErrorCode
from tests.interop.clients.interface import Client, Feature, Outgoing, ProducerOptions, ReaderOptions, RefusedError
from tests.interop.conftest import NewTopic

MIB = 1 << 20


def test_a_client_refuses_by_itself_what_is_above_its_limit(client: Client, servers: str, new_topic: NewTopic) -> None:
    client.needs(Feature.CLIENT_SIDE_LIMIT)
    topic = new_topic()
    with client.producer(servers) as producer:
        with pytest.raises(RefusedError) as refused:
            producer.deliver(Outgoing(topic, bytes(2 * MIB)))
        assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert client.ends(servers, topic, [0]) == {0: (0, 0)}


def test_the_broker_refuses_what_is_above_the_topics_limit(client: Client, servers: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with client.producer(servers, ProducerOptions(request_bytes_max=4 * MIB)) as producer:
        with pytest.raises(RefusedError) as refused:
            producer.deliver(Outgoing(topic, bytes(2 * MIB)))
        assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE
        producer.deliver(Outgoing(topic, b"small"))
    assert [one.value for one in client.read_all(servers, topic)] == [b"small"]


def test_a_reader_with_small_fetches_gets_past_large_records(client: Client, servers: str, new_topic: NewTopic) -> None:
    topic = new_topic(settings={"max.message.bytes": str(9 * MIB)})
    large = os.urandom(8 * MIB).replace(b"<|", b"..")
    values = [b"before", large, b"after", large[: 2 * MIB], b"last"]
    with client.producer(servers, ProducerOptions(request_bytes_max=10 * MIB)) as producer:
        for value in values:
            producer.deliver(Outgoing(topic, value))
    received = client.read_all(servers, topic, options=ReaderOptions(fetch_bytes_max=10_000))
    assert [one.value == value for one, value in zip(received, values, strict=True)] == [True] * 5
