"""Requests about many partitions at once, to a real broker and to a scripted one."""

from collections.abc import Iterator
from itertools import count

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient

from logbrook import Broker
from logbrook.client import EARLIEST, LATEST, BrokerError, Client, ConnectFailedError
from logbrook.client.partition_requests import PartitionRequests
from logbrook.model import TopicPartition
from logbrook.protocol.framing import read_request_start
from logbrook.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from logbrook.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from logbrook.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from tests.unit.client.scripted_broker import ScriptedBroker, answer, api_version, request_in

_numbers = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"words": 2, "times": 1, "empty": 1}) as broker:
        yield broker


@pytest.fixture
def cluster(broker: Broker) -> Iterator[PartitionRequests]:
    with Client(broker.bootstrap_servers) as client:
        yield PartitionRequests(client)


@pytest.fixture
def group_id() -> str:
    return f"group-{next(_numbers)}"


def produce(cluster: PartitionRequests, topic: str, partition: int, *times_ms: int, size: int = 1) -> None:
    for time_ms in times_ms:
        cluster.client.produce(topic, partition, build_batch([Record(value=b"x" * size, timestamp=time_ms)]))


def test_existing_topics_are_returned_by_name(cluster: PartitionRequests) -> None:
    topics = cluster.topics(["words", "none", "empty"])
    assert {name: info.partitions for name, info in topics.items()} == {"words": (0, 1), "empty": (0,)}
    assert topics["words"].id != topics["empty"].id
    assert not topics["words"].is_internal


def test_all_topics_are_returned_with_internal_ones_marked(cluster: PartitionRequests, group_id: str) -> None:
    cluster.coordinators.commit(group_id, {TopicPartition("words", 0): 0})
    topics = cluster.topics()
    assert {"words", "times", "empty"} <= topics.keys()
    assert topics["__consumer_offsets"].is_internal


def test_an_empty_list_of_names_returns_no_topics(cluster: PartitionRequests) -> None:
    assert cluster.topics([]) == {}


def test_topics_are_not_auto_created(cluster: PartitionRequests) -> None:
    assert cluster.topics(["later"]) == {}
    assert "later" not in cluster.topics()


def test_a_name_that_no_topic_can_have_is_an_error(cluster: PartitionRequests) -> None:
    with pytest.raises(BrokerError, match="looking up topic no/name: INVALID_TOPIC_EXCEPTION"):
        cluster.topics(["no/name"])


def test_a_topic_that_is_created_again_has_another_id(broker: Broker, cluster: PartitionRequests) -> None:
    broker.create_topic("again")
    before = cluster.topics(["again"])["again"].id
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics(["again"])["again"].result(10)
    broker.create_topic("again")
    assert cluster.topics(["again"])["again"].id != before


def test_offsets_are_listed_for_many_partitions_and_times(cluster: PartitionRequests) -> None:
    produce(cluster, "times", 0, 100, 300, 200)
    produce(cluster, "words", 1, 5)
    words, times, empty = TopicPartition("words", 1), TopicPartition("times", 0), TopicPartition("empty", 0)
    asked = [
        ({words: LATEST, times: LATEST, empty: LATEST}, {words: 1, times: 3, empty: 0}),
        ({words: EARLIEST, times: EARLIEST, empty: EARLIEST}, {words: 0, times: 0, empty: 0}),
        ({words: 6, times: 150, empty: 0}, {words: -1, times: 1, empty: -1}),
    ]
    for wanted, expected in asked:
        assert cluster.list_offsets(wanted) == expected
        assert cluster.list_offsets(wanted, committed_only=True) == expected
    assert cluster.list_offsets({}) == {}


def test_a_partition_that_does_not_exist_is_an_error(cluster: PartitionRequests) -> None:
    with pytest.raises(BrokerError, match="finding the leader of words-9: LEADER_NOT_AVAILABLE"):
        cluster.list_offsets({TopicPartition("words", 9): LATEST})
    with pytest.raises(BrokerError, match="looking up topic none: UNKNOWN_TOPIC_OR_PARTITION"):
        cluster.sizes([TopicPartition("none", 0)])


def test_sizes_are_those_on_the_disk(broker: Broker, cluster: PartitionRequests) -> None:
    broker.create_topic("sized", 2)
    produce(cluster, "sized", 0, *range(5), size=1000)
    sizes = cluster.sizes([TopicPartition("sized", 0), TopicPartition("sized", 1)])
    assert 5000 < sizes[TopicPartition("sized", 0)] < 6000
    assert sizes[TopicPartition("sized", 1)] < 1000
    assert cluster.sizes([]) == {}


def test_committed_offsets_are_listed_by_librdkafka(broker: Broker, cluster: PartitionRequests, group_id: str) -> None:
    cluster.coordinators.commit(group_id, {TopicPartition("words", 0): 7, TopicPartition("times", 0): 2})
    cluster.coordinators.commit(group_id, {TopicPartition("words", 0): 8, TopicPartition("words", 1): 0})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    listed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id)])[group_id].result(10)
    assert {(committed.topic, committed.partition): committed.offset for committed in listed.topic_partitions} == {
        ("words", 0): 8,
        ("words", 1): 0,
        ("times", 0): 2,
    }


def test_a_commit_for_a_group_with_members_is_refused(
    broker: Broker, cluster: PartitionRequests, group_id: str
) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group_id})
    try:
        consumer.subscribe(["words"])
        while not consumer.assignment():
            consumer.poll(0.1)
        with pytest.raises(BrokerError, match=f"committing for group {group_id} to words-0: UNKNOWN_MEMBER_ID"):
            cluster.coordinators.commit(group_id, {TopicPartition("words", 0): 1})
        assert consumer.committed([ConfluentPartition("words", 0)], 10)[0].offset < 0
    finally:
        consumer.close()


def test_a_commit_to_a_topic_that_does_not_exist_is_an_error(cluster: PartitionRequests, group_id: str) -> None:
    with pytest.raises(BrokerError, match=f"committing for group {group_id} to none-0: UNKNOWN_TOPIC_OR_PARTITION"):
        cluster.coordinators.commit(group_id, {TopicPartition("none", 0): 1})


class Leader:
    """Responds that the leader of partition 0 of every topic is at `leads_at`, and that each log ends at offset 5."""

    def __init__(self) -> None:
        self.leads_at = ("127.0.0.1", 1)

    def __call__(self, frame: memoryview) -> bytes:
        api_key = read_request_start(frame).api_key
        if api_key == ApiVersionsRequest.API_KEY:
            apis = [ApiVersionsRequest, MetadataRequest, ListOffsetsRequest]
            return answer(frame, ApiVersionsResponse(api_keys=[api_version(api) for api in apis]))
        if api_key == MetadataRequest.API_KEY:
            host, port = self.leads_at
            names = [topic.name for topic in request_in(frame, MetadataRequest).topics or ()]
            led = MetadataResponsePartition(partition_index=0, leader_id=1)
            topics = [MetadataResponseTopic(name=name, partitions=[led]) for name in names]
            brokers = [MetadataResponseBroker(node_id=1, host=host, port=port)]
            return answer(frame, MetadataResponse(brokers=brokers, topics=topics))
        ends = [
            ListOffsetsTopicResponse(
                name=topic.name, partitions=[ListOffsetsPartitionResponse(partition_index=0, offset=5)]
            )
            for topic in request_in(frame, ListOffsetsRequest).topics
        ]
        return answer(frame, ListOffsetsResponse(topics=ends))


def test_a_leader_gets_one_request_for_all_its_partitions() -> None:
    leader = Leader()
    wanted = {TopicPartition(f"t{number}", 0): LATEST for number in range(10)}
    with ScriptedBroker(leader) as peer, Client(peer.address) as client:
        leader.leads_at = (peer.host, peer.port)
        assert PartitionRequests(client).list_offsets(wanted) == dict.fromkeys(wanted, 5)
        asked = [start.api_key for start in peer.starts].count(ListOffsetsRequest.API_KEY)
        assert asked == 1


def test_a_leader_that_cannot_be_connected_to_is_looked_up_again() -> None:
    leader = Leader()
    with ScriptedBroker(leader) as peer, Client(peer.address) as client:
        cluster = PartitionRequests(client)
        with pytest.raises(ConnectFailedError, match=r"cannot connect to 127.0.0.1:1"):
            cluster.list_offsets({TopicPartition("t", 0): LATEST})
        leader.leads_at = (peer.host, peer.port)
        assert cluster.list_offsets({TopicPartition("t", 0): LATEST}) == {TopicPartition("t", 0): 5}
