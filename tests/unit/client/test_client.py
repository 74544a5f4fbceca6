"""The client against a real broker, and against a cluster of peers for what one broker cannot show."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pytest
from confluent_kafka.admin import AdminClient

from logbrook import Broker
from logbrook.client import (
    EARLIEST,
    LATEST,
    BrokerError,
    Client,
    ClientError,
    ConnectFailedError,
    ConnectionClosedError,
)
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.framing import read_request_start
from logbrook.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from logbrook.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
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
from logbrook.protocol.schema import ApiMessage
from logbrook.records.batch import HEADER_BYTES, read_header
from logbrook.records.builder import build_batch
from logbrook.records.reader import iter_records
from logbrook.records.record import Record
from tests.unit.client.peer import Peer, answer, api_version


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"words": 3, "times": 1, "large": 1}) as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers) as client:
        yield client


def batch_of(*values: str, timestamp: int = 0) -> bytearray:
    return build_batch([Record(value=value.encode(), timestamp=timestamp) for value in values])


def values_of(batches: list[memoryview]) -> list[str]:
    return [(one.value or b"").decode() for batch in batches for one in iter_records(batch, bytes_max=1 << 20)]


def test_what_is_produced_is_fetched_as_it_was(client: Client) -> None:
    batch = batch_of("a", "b", "c")
    assert client.produce("words", 0, batch) == 0
    assert client.produce("words", 0, memoryview(bytes(batch_of("d")))) == 3
    fetched = client.fetch("words", 0, 0)
    assert values_of(fetched.batches) == ["a", "b", "c", "d"]
    assert fetched.batches[0][16:] == batch[16:], "all but what the leader stamps"
    assert (fetched.high_watermark, fetched.last_stable_offset, fetched.log_start_offset) == (4, 4, 0)
    assert [read_header(one).base_offset for one in client.fetch("words", 0, 3).batches] == [3]


def test_a_fetch_in_the_middle_of_a_batch_gives_the_batch(client: Client) -> None:
    client.produce("words", 1, batch_of("a", "b", "c"))
    assert values_of(client.fetch("words", 1, 2).batches) == ["a", "b", "c"]


def test_an_answer_stands_in_the_memory_that_is_given_if_it_fits_there(client: Client, broker: Broker) -> None:
    broker.create_topic("kept", 1)
    memory = bytearray(10_000)
    for number, size in enumerate((5, 90_000, 7_000)):
        assert client.produce("kept", 0, batch_of("v" * size)) == number
        fetched = client.fetch("kept", 0, number, memory=memory)
        assert values_of(fetched.batches) == ["v" * size]
        assert (fetched.memory is memory) == (size < 10_000)
        assert len(memory) == 10_000, "somebody may look at it"


def test_a_fetch_by_id_is_from_that_topic_and_no_other_of_its_name(broker: Broker, client: Client) -> None:
    broker.create_topic("renewed", 1)
    before = client.topic_id("renewed")
    client.produce("renewed", 0, batch_of("old"))
    assert values_of(client.fetch("renewed", 0, 0, topic_id=before).batches) == ["old"]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics(["renewed"])["renewed"].result(10)
    broker.create_topic("renewed", 1)
    with pytest.raises(BrokerError) as unknown:
        client.fetch("renewed", 0, 0, topic_id=before)
    assert unknown.value.code is ErrorCode.UNKNOWN_TOPIC_ID, "the client has not heard of the new one yet"
    with pytest.raises(BrokerError, match="fetching from renewed-0: INCONSISTENT_TOPIC_ID"):
        client.fetch("renewed", 0, 0, topic_id=before)
    client.produce("renewed", 0, batch_of("new"))
    after = client.topic_id("renewed")
    assert values_of(client.fetch("renewed", 0, 0, topic_id=after).batches) == ["new"]
    assert values_of(client.fetch("renewed", 0, 0).batches) == ["new"]


def test_a_fetch_at_the_end_gives_nothing_when_its_time_is_up(client: Client) -> None:
    fetched = client.fetch("words", 2, 0, max_wait_ms=10)
    assert fetched.batches == []
    assert fetched.high_watermark == 0


def test_a_batch_larger_than_asked_for_is_given_whole(client: Client) -> None:
    batch = batch_of("x" * 50_000)
    client.produce("large", 0, batch)
    client.produce("large", 0, batch)
    fetched = client.fetch("large", 0, 0, bytes_max=1000)
    assert [len(one) for one in fetched.batches] == [len(batch)]


def test_a_partial_batch_at_the_end_is_left_out(client: Client) -> None:
    base = client.list_offset("words", 0)
    batch = batch_of("whole")
    for _ in range(3):
        client.produce("words", 0, batch)
    fetched = client.fetch("words", 0, base, bytes_max=2 * len(batch) + HEADER_BYTES)
    assert values_of(fetched.batches) == ["whole", "whole"]


def test_offsets_are_listed_by_time_and_by_their_ends(client: Client) -> None:
    for timestamp in (100, 200, 300):
        client.produce("times", 0, batch_of("t", timestamp=timestamp))
    assert [client.list_offset("times", 0, at) for at in (EARLIEST, 150, 300, 301, LATEST)] == [0, 1, 2, -1, 3]


def test_a_topic_is_created_with_its_partitions_and_settings(client: Client) -> None:
    client.create_topic("made", 5, {"retention.ms": "1000"})
    assert client.partitions("made") == [0, 1, 2, 3, 4]
    with pytest.raises(BrokerError) as raised:
        client.create_topic("made")
    assert raised.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert not raised.value.is_retriable


def test_a_setting_that_there_is_not_is_refused_with_the_brokers_words(client: Client) -> None:
    with pytest.raises(BrokerError, match=r"no\.such\.setting") as raised:
        client.create_topic("unmade", 1, {"no.such.setting": "1"})
    assert raised.value.code is ErrorCode.INVALID_CONFIG


def test_asking_for_a_topic_does_not_create_it(client: Client) -> None:
    with pytest.raises(BrokerError) as raised:
        client.produce("missing", 0, batch_of("a"))
    assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "missing" not in {one.name for one in client.metadata().topics}


def test_a_partition_that_there_is_not_has_no_leader(client: Client) -> None:
    with pytest.raises(BrokerError) as raised:
        client.fetch("words", 99, 0)
    assert raised.value.code is ErrorCode.LEADER_NOT_AVAILABLE


def test_an_offset_out_of_range_is_an_error_with_its_code(client: Client) -> None:
    with pytest.raises(BrokerError) as raised:
        client.fetch("words", 0, 10**9)
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_corrupt_batch_is_an_error_with_the_brokers_words(client: Client) -> None:
    batch = batch_of("a")
    batch[-1] ^= 1
    with pytest.raises(BrokerError, match="CRC") as raised:
        client.produce("words", 0, batch)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE


def test_any_message_may_be_sent(client: Client) -> None:
    described = client.request(DescribeClusterRequest(), DescribeClusterResponse)
    assert len(described.brokers) == 1


def test_bootstrap_servers_are_tried_in_turn(broker: Broker) -> None:
    with Client(f"127.0.0.1:1,{broker.bootstrap_servers}") as client:
        assert client.partitions("words") == [0, 1, 2]


def test_no_bootstrap_server_is_an_error() -> None:
    with Client(["127.0.0.1:1"]) as client, pytest.raises(ConnectFailedError):
        client.metadata()


@pytest.mark.parametrize("name", ["", "host", "host:", ":x", "host:port"])
def test_an_address_has_a_host_and_a_port(name: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        Client(name)


def test_a_broker_that_restarts_is_found_again(tmp_path: object) -> None:
    broker = Broker(["t"], data=str(tmp_path))
    with broker:
        address = broker.bootstrap_servers
        client = Client(address)
        client.produce("t", 0, batch_of("before"))
    with pytest.raises((ConnectionClosedError, ConnectFailedError)):
        client.produce("t", 0, batch_of("lost"))
    with Broker(data=str(tmp_path), settings={"network": {"listen": address}}), client:
        assert client.produce("t", 0, batch_of("after")) == 1


@dataclass
class Cluster:
    """Two peers, either of which says that `leader` leads the one partition of the topic `t`."""

    leader: int = 1
    # What the leader of each says to ListOffsets, by its number.
    codes: tuple[int, int] = (0, 0)

    def say(self, number: int, frame: memoryview) -> bytes:
        key = read_request_start(frame).api_key
        response: ApiMessage
        if key == ApiVersionsRequest.API_KEY:
            requests: list[type[ApiMessage]] = [ApiVersionsRequest, MetadataRequest, ListOffsetsRequest]
            response = ApiVersionsResponse(api_keys=[api_version(one) for one in requests])
        elif key == MetadataRequest.API_KEY:
            response = self.metadata()
        else:
            partition = ListOffsetsPartitionResponse(error_code=self.codes[number - 1], offset=number)
            response = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[partition])])
        return answer(frame, response)

    def metadata(self) -> MetadataResponse:
        brokers = [MetadataResponseBroker(node_id=n, host=one.host, port=one.port) for n, one in self.peers.items()]
        topic = MetadataResponseTopic(name="t", partitions=[MetadataResponsePartition(leader_id=self.leader)])
        return MetadataResponse(brokers=brokers, topics=[topic])

    def __enter__(self) -> "Cluster":
        self.peers = {n: Peer(partial(self.say, n)) for n in (1, 2)}
        for peer in self.peers.values():
            peer.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        for peer in self.peers.values():
            peer.__exit__(None, None, None)


def test_a_partition_is_asked_of_its_leader_which_is_looked_up_once() -> None:
    with Cluster(leader=2) as cluster, Client(cluster.peers[1].address) as client:
        assert [client.list_offset("t", 0) for _ in range(3)] == [2, 2, 2]
        keys = [start.api_key for start in cluster.peers[1].starts]
        assert keys == [ApiVersionsRequest.API_KEY, MetadataRequest.API_KEY]


def test_a_leader_that_has_moved_is_looked_up_again_by_the_next_call() -> None:
    cluster = Cluster(leader=1, codes=(ErrorCode.NOT_LEADER_OR_FOLLOWER, 0))
    with cluster, Client(cluster.peers[1].address) as client:
        with pytest.raises(BrokerError) as raised:
            client.list_offset("t", 0)
        assert raised.value.is_retriable
        cluster.leader = 2
        assert client.list_offset("t", 0) == 2


def test_a_leader_that_nobody_knows_is_an_error() -> None:
    with Cluster(leader=-1) as cluster, Client(cluster.peers[1].address) as client:
        with pytest.raises(BrokerError) as raised:
            client.list_offset("t", 0)
        assert raised.value.code is ErrorCode.LEADER_NOT_AVAILABLE
        cluster.leader = 2
        assert client.list_offset("t", 0) == 2


def test_an_error_code_from_the_future_is_an_error_still() -> None:
    with Cluster(codes=(4711, 0)) as cluster, Client(cluster.peers[1].address) as client:
        with pytest.raises(BrokerError, match="4711") as raised:
            client.list_offset("t", 0)
        assert raised.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_broker_that_answers_about_something_else_is_an_error() -> None:
    with Cluster() as cluster, Client(cluster.peers[1].address) as client:
        cluster.metadata = MetadataResponse  # type: ignore[method-assign]
        with pytest.raises(ClientError, match="0 answers"):
            client.list_offset("t", 0)
