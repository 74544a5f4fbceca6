"""The connection against a peer that misbehaves in the ways a broker may."""

import socket
import tracemalloc

import pytest

from logbrook.client import (
    BrokerError,
    ConnectFailedError,
    Connection,
    ConnectionClosedError,
    TimedOutError,
    UnexpectedAnswerError,
)
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.errors import (
    FrameTooLargeError,
    MalformedMessageError,
    ProtocolError,
    UnsupportedApiError,
    UnsupportedVersionError,
)
from logbrook.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from logbrook.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from logbrook.protocol.messages.metadata import MetadataRequest, MetadataResponse
from logbrook.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tests.unit.client.peer import Peer, answer, api_version, knows_only_version_0, request_in, says, serves

HEARTBEAT = HeartbeatRequest(group_id="g", member_id="m")


def connect(peer: Peer, *, timeout_s: float = 10.0, frame_bytes_max: int = 1 << 20) -> Connection:
    return Connection(peer.host, peer.port, timeout_s=timeout_s, frame_bytes_max=frame_bytes_max)


def test_the_version_is_the_highest_that_both_sides_know() -> None:
    versions = ApiVersionsResponse(api_keys=[api_version(HeartbeatRequest, 0, 2)])
    with Peer(says(versions), says(HeartbeatResponse())) as peer, connect(peer) as connection:
        connection.request(HEARTBEAT, HeartbeatResponse)
        assert peer.starts[1].api_version == 2


def test_a_newer_broker_is_spoken_to_in_our_highest_version() -> None:
    versions = ApiVersionsResponse(api_keys=[api_version(HeartbeatRequest, 0, 99)])
    with Peer(says(versions)) as peer, connect(peer) as connection:
        assert connection.version_of(HeartbeatRequest) == HeartbeatRequest.VERSIONS.last


def test_versions_are_asked_for_once() -> None:
    with Peer(serves(HeartbeatRequest), says(HeartbeatResponse())) as peer, connect(peer) as connection:
        for _ in range(3):
            connection.request(HEARTBEAT, HeartbeatResponse)
        assert [start.api_key for start in peer.starts] == [18, 12, 12, 12]


def test_versions_are_not_asked_for_when_they_are_given() -> None:
    with Peer(says(HeartbeatResponse())) as peer, connect(peer) as connection:
        connection.request(HEARTBEAT, HeartbeatResponse, 1)
        assert [start[:2] for start in peer.starts] == [(12, 1)]


def test_an_old_broker_is_asked_again_in_the_version_it_knows() -> None:
    keys = [api_version(ApiVersionsRequest, 0, 0), api_version(HeartbeatRequest, 0, 1)]
    with Peer(knows_only_version_0(keys)) as peer, connect(peer) as connection:
        assert connection.version_of(HeartbeatRequest) == 1
        assert [start.api_version for start in peer.starts] == [ApiVersionsRequest.VERSIONS.last, 0]


def test_a_broker_that_refuses_to_tell_its_versions_is_an_error() -> None:
    refusal = ApiVersionsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    with Peer(says(refusal)) as peer, connect(peer) as connection, pytest.raises(BrokerError) as raised:
        connection.request(HEARTBEAT, HeartbeatResponse)
    assert raised.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_an_api_that_the_broker_lacks_is_an_error_and_the_connection_lives() -> None:
    with Peer(serves(HeartbeatRequest), says(HeartbeatResponse())) as peer, connect(peer) as connection:
        with pytest.raises(UnsupportedApiError):
            connection.request(MetadataRequest(), MetadataResponse)
        connection.request(HEARTBEAT, HeartbeatResponse)


def test_an_api_without_a_common_version_is_an_error() -> None:
    versions = ApiVersionsResponse(api_keys=[api_version(HeartbeatRequest, 90, 99)])
    with Peer(says(versions)) as peer, connect(peer) as connection, pytest.raises(UnsupportedVersionError):
        connection.request(HEARTBEAT, HeartbeatResponse)


@pytest.mark.parametrize("version", range(HeartbeatRequest.VERSIONS.last + 1))
def test_flexible_and_older_versions_have_their_own_headers(version: int) -> None:
    with Peer(says(HeartbeatResponse(error_code=27))) as peer, connect(peer) as connection:
        assert connection.request(HEARTBEAT, HeartbeatResponse, version).error_code == 27
        received = request_in(peer.frames[0], HeartbeatRequest)
        assert (received.group_id, received.member_id) == ("g", "m")


def test_requests_may_be_sent_before_earlier_ones_are_answered() -> None:
    def say(frame: memoryview) -> bytes:
        return answer(frame, HeartbeatResponse(error_code=len(peer.frames)))

    with Peer(say) as peer, connect(peer) as connection:
        sent = [connection.send(HEARTBEAT, HeartbeatResponse, 4) for _ in range(100)]
        assert [connection.receive(one).error_code for one in sent] == list(range(1, 101))


def test_answers_are_received_in_the_order_of_the_requests() -> None:
    with Peer(says(HeartbeatResponse())) as peer, connect(peer) as connection:
        connection.send(HEARTBEAT, HeartbeatResponse, 4)
        second = connection.send(HEARTBEAT, HeartbeatResponse, 4)
        with pytest.raises(AssertionError):
            connection.receive(second)


def test_a_produce_without_acks_has_no_answer() -> None:
    produced = ProduceRequest(acks=0, topic_data=[TopicProduceData(name="t")])
    with Peer(lambda frame: None, says(HeartbeatResponse())) as peer, connect(peer) as connection:
        connection.send_unanswered(produced, 9)
        connection.request(HEARTBEAT, HeartbeatResponse, 4)
        assert [start.api_key for start in peer.starts] == [0, 12]


def test_records_of_many_pieces_arrive_as_one() -> None:
    pieces = [memoryview(bytes([n % 256]) * (n % 97)) for n in range(5000)]
    partition = PartitionProduceData(records=pieces)
    request = ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=[partition])])
    with Peer(says(ProduceResponse())) as peer, connect(peer) as connection:
        connection.request(request, ProduceResponse, 9)
        received = request_in(peer.frames[0], ProduceRequest)
        assert received.topic_data[0].partition_data[0].records == b"".join(pieces)


def test_an_answer_to_another_request_closes_the_connection() -> None:
    with Peer(lambda frame: answer(frame, HeartbeatResponse(), correlation_id=77)) as peer, connect(peer) as connection:
        with pytest.raises(UnexpectedAnswerError):
            connection.request(HEARTBEAT, HeartbeatResponse, 4)
        assert connection.is_closed


def test_a_broker_that_hangs_up_is_an_error() -> None:
    with Peer(lambda frame: b"") as peer, connect(peer) as connection:
        with pytest.raises(ConnectionClosedError):
            connection.request(HEARTBEAT, HeartbeatResponse, 4)
        assert connection.is_closed


@pytest.mark.parametrize("size", [-1, 0, 3])
def test_a_frame_too_short_for_its_header_closes_the_connection(size: int) -> None:
    with Peer(lambda frame: size.to_bytes(4, "big", signed=True)) as peer, connect(peer) as connection:
        with pytest.raises(MalformedMessageError):
            connection.request(HEARTBEAT, HeartbeatResponse, 4)
        assert connection.is_closed


def test_a_frame_above_the_limit_is_not_received() -> None:
    with Peer(lambda frame: (1 << 20 | 1).to_bytes(4, "big")) as peer, connect(peer) as connection:
        with pytest.raises(FrameTooLargeError):
            connection.request(HEARTBEAT, HeartbeatResponse, 4)
        assert connection.is_closed


def test_a_frame_that_is_merely_announced_takes_no_memory() -> None:
    announced = (2**31 - 1).to_bytes(4, "big") + b"x" * 100
    with Peer(lambda frame: announced) as peer, connect(peer, timeout_s=0.2, frame_bytes_max=2**31 - 1) as connection:
        tracemalloc.start()
        try:
            with pytest.raises(TimedOutError):
                connection.request(HEARTBEAT, HeartbeatResponse, 4)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 2 << 20


@pytest.mark.parametrize("body", [b"", b"\x00", b"\xff" * 50], ids=bytes.hex)
def test_an_answer_that_is_not_the_message_closes_the_connection(body: bytes) -> None:
    def say(frame: memoryview) -> bytes:
        return (4 + len(body)).to_bytes(4, "big") + bytes(frame[4:8]) + body

    with Peer(say) as peer, connect(peer) as connection:
        with pytest.raises(ProtocolError):
            connection.request(HEARTBEAT, HeartbeatResponse, 4)
        assert connection.is_closed


def test_a_version_answer_that_makes_no_sense_closes_the_connection() -> None:
    def say(frame: memoryview) -> bytes:
        return (6).to_bytes(4, "big") + bytes(frame[4:8]) + b"\x00\x00"

    with Peer(say) as peer, connect(peer) as connection:
        with pytest.raises(ProtocolError):
            connection.version_of(HeartbeatRequest)
        assert connection.is_closed


def test_a_broker_that_says_nothing_times_out() -> None:
    with Peer(lambda frame: None) as peer, connect(peer) as connection:
        with pytest.raises(TimedOutError) as raised:
            connection.request(HEARTBEAT, HeartbeatResponse, 4, timeout_s=0.05)
        assert connection.is_closed
    assert raised.value.timeout_s == 0.05


def test_a_closed_connection_says_so() -> None:
    with Peer(says(HeartbeatResponse())) as peer, connect(peer) as connection:
        connection.close()
        with pytest.raises(ConnectionClosedError):
            connection.request(HEARTBEAT, HeartbeatResponse, 4)


def test_nobody_there_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectFailedError) as raised:
        Connection("127.0.0.1", port)
    assert raised.value.port == port
