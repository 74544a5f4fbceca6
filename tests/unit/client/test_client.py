"""The client against a real broker, and against two scripted ones where leaders move."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

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
from logbrook.model.identifiers import Offset
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
from tests.unit.client.scripted_broker import ScriptedBroker, answer, api_version


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
    return [(record.value or b"").decode() for batch in batches for record in iter_records(batch, bytes_max=1 << 20)]


def test_fetched_batches_are_those_that_were_produced(client: Client) -> None:
    batch = batch_of("a", "b", "c")
    assert client.produce("words", 0, batch) == 0
    assert client.produce("words", 0, memoryview(bytes(batch_of("d")))) == 3
    fetched = client.fetch("words", 0, Offset(0))
    assert values_of(fetched.batches) == ["a", "b", "c", "d"]
    assert fetched.batches[0][16:] == batch[16:], "all but the fields that the leader sets"
    assert (fetched.high_watermark, fetched.last_stable_offset, fetched.log_start_offset) == (4, 4, 0)
    assert [
        read_header(fetched_batch).base_offset for fetched_batch in client.fetch("words", 0, Offset(3)).batches
    ] == [3]


def test_a_fetch_in_the_middle_of_a_batch_gives_the_batch(client: Client) -> None:
    client.produce("words", 1, batch_of("a", "b", "c"))
    assert values_of(client.fetch("words", 1, Offset(2)).batches) == ["a", "b", "c"]


def test_a_response_is_read_into_the_given_memory_if_it_fits(client: Client, broker: Broker) -> None:
    broker.create_topic("kept", 1)
    memory = bytearray(10_000)
    for number, size in enumerate((5, 90_000, 7_000)):
        assert client.produce("kept", 0, batch_of("v" * size)) == number
        fetched = client.fetch("kept", 0, Offset(number), memory=memory)
        assert values_of(fetched.batches) == ["v" * size]
        assert (fetched.memory is memory) == (size < 10_000)
        assert len(memory) == 10_000, "a view of it must stay valid"


def test_a_fetch_by_id_fails_if_the_topic_was_recreated(broker: Broker, client: Client) -> None:
    broker.create_topic("renewed", 1)
    before = client.topic_id("renewed")
    client.produce("renewed", 0, batch_of("old"))
    assert values_of(client.fetch("renewed", 0, Offset(0), topic_id=before).batches) == ["old"]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics(["renewed"])["renewed"].result(10)
    broker.create_topic("renewed", 1)
    with pytest.raises(BrokerError) as unknown:
        client.fetch("renewed", 0, Offset(0), topic_id=before)
    assert unknown.value.code is ErrorCode.UNKNOWN_TOPIC_ID, "the client has cached the old id"
    with pytest.raises(BrokerError, match="fetching from renewed-0: INCONSISTENT_TOPIC_ID"):
        client.fetch("renewed", 0, Offset(0), topic_id=before)
    client.produce("renewed", 0, batch_of("new"))
    after = client.topic_id("renewed")
    assert values_of(client.fetch("renewed", 0, Offset(0), topic_id=after).batches) == ["new"]
    assert values_of(client.fetch("renewed", 0, Offset(0)).batches) == ["new"]


def test_a_fetch_at_the_end_returns_nothing_after_its_max_wait(client: Client) -> None:
    fetched = client.fetch("words", 2, Offset(0), max_wait_ms=10)
    assert fetched.batches == []
    assert fetched.high_watermark == 0


def test_a_batch_larger_than_asked_for_is_given_whole(client: Client) -> None:
    batch = batch_of("x" * 50_000)
    client.produce("large", 0, batch)
    client.produce("large", 0, batch)
    fetched = client.fetch("large", 0, Offset(0), bytes_max=1000)
    assert [len(fetched_batch) for fetched_batch in fetched.batches] == [len(batch)]


def test_a_partial_batch_at_the_end_is_left_out(client: Client) -> None:
    base = client.list_offset("words", 0)
    batch = batch_of("whole")
    for _ in range(3):
        client.produce("words", 0, batch)
    fetched = client.fetch("words", 0, Offset(base), bytes_max=2 * len(batch) + HEADER_BYTES)
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


def test_an_unknown_setting_is_refused_with_the_brokers_message(client: Client) -> None:
    with pytest.raises(BrokerError, match=r"no\.such\.setting") as raised:
        client.create_topic("unmade", 1, {"no.such.setting": "1"})
    assert raised.value.code is ErrorCode.INVALID_CONFIG


def test_topics_are_not_auto_created(client: Client) -> None:
    with pytest.raises(BrokerError) as raised:
        client.produce("missing", 0, batch_of("a"))
    assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "missing" not in {topic.name for topic in client.metadata().topics}


def test_a_partition_that_does_not_exist_has_no_leader(client: Client) -> None:
    with pytest.raises(BrokerError) as raised:
        client.fetch("words", 99, Offset(0))
    assert raised.value.code is ErrorCode.LEADER_NOT_AVAILABLE


def test_an_offset_out_of_range_is_an_error_with_its_code(client: Client) -> None:
    with pytest.raises(BrokerError) as raised:
        client.fetch("words", 0, Offset(10**9))
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_corrupt_batch_is_an_error_with_the_brokers_message(client: Client) -> None:
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


def test_no_reachable_bootstrap_server_is_an_error() -> None:
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


def test_a_restart_of_the_broker_between_two_requests_is_no_error(tmp_path: Path) -> None:
    with Broker(["t"], data=str(tmp_path)) as broker, Client(broker.bootstrap_servers) as client:
        client.produce("t", 0, batch_of("before"))
        broker.restart()
        assert client.produce("t", 0, batch_of("after")) == 1


@dataclass
class Cluster:
    """Two scripted brokers. Both name `leader` as the leader of the only partition of topic `t`."""

    leader: int = 1
    # The error codes of the two brokers' ListOffsets responses.
    codes: tuple[int, int] = (0, 0)

    def respond(self, number: int, frame: memoryview) -> bytes:
        key = read_request_start(frame).api_key
        response: ApiMessage
        if key == ApiVersionsRequest.API_KEY:
            requests: list[type[ApiMessage]] = [ApiVersionsRequest, MetadataRequest, ListOffsetsRequest]
            response = ApiVersionsResponse(api_keys=[api_version(request) for request in requests])
        elif key == MetadataRequest.API_KEY:
            response = self.metadata()
        else:
            partition = ListOffsetsPartitionResponse(error_code=self.codes[number - 1], offset=number)
            response = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[partition])])
        return answer(frame, response)

    def metadata(self) -> MetadataResponse:
        brokers = [MetadataResponseBroker(node_id=n, host=peer.host, port=peer.port) for n, peer in self.peers.items()]
        topic = MetadataResponseTopic(name="t", partitions=[MetadataResponsePartition(leader_id=self.leader)])
        return MetadataResponse(brokers=brokers, topics=[topic])

    def __enter__(self) -> "Cluster":
        self.peers = {n: ScriptedBroker(partial(self.respond, n)) for n in (1, 2)}
        for peer in self.peers.values():
            peer.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        for peer in self.peers.values():
            peer.__exit__(None, None, None)


def test_requests_go_to_the_leader_which_is_looked_up_once() -> None:
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


def test_a_partition_without_a_leader_is_an_error() -> None:
    with Cluster(leader=-1) as cluster, Client(cluster.peers[1].address) as client:
        with pytest.raises(BrokerError) as raised:
            client.list_offset("t", 0)
        assert raised.value.code is ErrorCode.LEADER_NOT_AVAILABLE
        cluster.leader = 2
        assert client.list_offset("t", 0) == 2


def test_an_unknown_error_code_is_an_unknown_server_error() -> None:
    with Cluster(codes=(4711, 0)) as cluster, Client(cluster.peers[1].address) as client:
        with pytest.raises(BrokerError, match="4711") as raised:
            client.list_offset("t", 0)
        assert raised.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_metadata_response_without_the_topic_is_an_error() -> None:
    with Cluster() as cluster, Client(cluster.peers[1].address) as client:
        cluster.metadata = MetadataResponse  # type: ignore[method-assign]
        with pytest.raises(ClientError, match="has 0 entries"):
            client.list_offset("t", 0)
