"""Unknown topics, recreated topics and compacted topics."""

import pytest

from logbrook import Broker
from logbrook.client import Client as RawClient
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tests.interop.clients.interface import Client, Outgoing, ProducerOptions, RefusedError
from tests.interop.conftest import NewTopic


def topics_of(servers: str) -> set[str]:
    with RawClient(servers) as raw:
        return {topic.name for topic in raw.metadata().topics if topic.name is not None}


def test_a_client_lists_the_topics(client: Client, servers: str, new_topic: NewTopic) -> None:
    topics = {new_topic(partitions=3): 3, new_topic(): 1}
    assert topics.items() <= client.topics(servers).items()


def test_a_producer_continues_when_its_topic_is_recreated(client: Client, broker: Broker, new_topic: NewTopic) -> None:
    topic, servers = new_topic(), broker.bootstrap_servers
    with client.producer(servers) as producer, RawClient(servers) as raw:
        producer.deliver(*[Outgoing(topic, b"old") for _ in range(5)])
        answer = raw.request(
            DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=10_000), DeleteTopicsResponse
        )
        assert [topic_result.error_code for topic_result in answer.responses] == [0]
        broker.create_topic(topic)
        producer.deliver(Outgoing(topic, b"new"))
    assert [(record.offset, record.value) for record in client.read_all(servers, topic)] == [(0, b"new")]


def test_producing_to_an_unknown_topic_fails_and_does_not_create_it(client: Client, servers: str) -> None:
    topic = f"not-there-for-{client.name}"
    # Clients report an unknown topic, or a timeout while they wait for it.
    with client.producer(servers, ProducerOptions(patience_ms=400)) as producer:
        with pytest.raises(RefusedError) as refused:
            producer.deliver(Outgoing(topic, b"v"))
        assert refused.value.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REQUEST_TIMED_OUT)
    assert topic not in topics_of(servers)


def test_producing_creates_the_topic_if_auto_creation_is_enabled(client: Client) -> None:
    with Broker(settings={"topics": {"auto_create": True, "partitions": 3}}) as broker:
        servers = broker.bootstrap_servers
        with client.producer(servers) as producer:
            producer.deliver(Outgoing("made-by-writing", b"v", partition=None))
        assert "made-by-writing" in topics_of(servers)
        assert [record.value for record in client.read_all(servers, "made-by-writing", partitions=3)] == [b"v"]


def test_a_compacted_topic_has_the_newest_of_each_key(client: Client) -> None:
    settings = {"cleanup.policy": "compact", "segment.bytes": "2000", "min.cleanable.dirty.ratio": "0"}
    with Broker() as broker:
        broker.create_topic("compacted", 1, settings)
        with client.producer(broker.bootstrap_servers, ProducerOptions(batch_bytes=300)) as producer:
            producer.deliver(*[Outgoing("compacted", b"%d" % n, b"key-%d" % (n % 7)) for n in range(300)])
            producer.deliver(Outgoing("compacted", None, b"key-0"))
            producer.deliver(*[Outgoing("compacted", b"filler %d" % n, b"filler") for n in range(100)])
        before = client.read_all(broker.bootstrap_servers, "compacted")
        assert broker.run_maintenance().logs_compacted == 1
        after = client.read_all(broker.bootstrap_servers, "compacted")
    assert len(before) == 401
    assert len(after) < 200
    assert set(after) <= set(before), "what stays is what it was, at its offset"
    assert [record.offset for record in after] == sorted(record.offset for record in after)
    assert {record.key: record.value for record in after} == {record.key: record.value for record in before}
