"""The connection against a scripted broker that misbehaves."""

import socket
import tracemalloc

import pytest

from logbrook.client import (
    BrokerError,
    ConnectFailedError,
    Connection,
    ConnectionClosedError,
    NotKafkaError,
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
from tests.unit.client.scripted_broker import (
    ScriptedBroker,
    answer,
    api_version,
    request_in,
    responds,
    supports,
    supports_only_version_0,
)

HEARTBEAT = HeartbeatRequest(group_id="g", member_id="m")


def connect(peer: ScriptedBroker, *, timeout_s: float = 10.0, frame_bytes_max: int = 1 << 20) -> Connection:
    return Connection(peer.host, peer.port, timeout_s=timeout_s, frame_bytes_max=frame_bytes_max)


def test_the_version_is_the_highest_that_both_sides_support() -> None:
    versions = ApiVersionsResponse(api_keys=[api_version(HeartbeatRequest, 0, 2)])
    with ScriptedBroker(responds(versions), responds(HeartbeatResponse())) as peer, connect(peer) as connection:
        connection.request(HEARTBEAT, HeartbeatResponse)
        assert peer.starts[1].api_version == 2


def test_the_version_is_limited_to_our_highest() -> None:
    versions = ApiVersionsResponse(api_keys=[api_version(HeartbeatRequest, 0, 99)])
    with ScriptedBroker(responds(versions)) as peer, connect(peer) as connection:
        assert connection.version_of(HeartbeatRequest) == HeartbeatRequest.VERSIONS.last


def test_versions_are_requested_once() -> None:
    with ScriptedBroker(supports(HeartbeatRequest), responds(HeartbeatResponse())) as peer, connect(peer) as connection:
        for _ in range(3):
            connection.request(HEARTBEAT, HeartbeatResponse)
        assert [start.api_key for start in peer.starts] == [18, 12, 12, 12]


def test_versions_are_not_requested_when_one_is_given() -> None:
    with ScriptedBroker(responds(HeartbeatResponse())) as peer, connect(peer) as connection:
        connection.request(HEARTBEAT, HeartbeatResponse, 1)
        assert [start[:2] for start in peer.starts] == [(12, 1)]


def test_an_old_broker_is_asked_again_in_a_version_that_it_supports() -> None:
    keys = [api_version(ApiVersionsRequest, 0, 0), api_version(HeartbeatRequest, 0, 1)]
    with ScriptedBroker(supports_only_version_0(keys)) as peer, connect(peer) as connection:
        assert connection.version_of(HeartbeatRequest) == 1
        assert [start.api_version for start in peer.starts] == [ApiVersionsRequest.VERSIONS.last, 0]


def test_an_error_code_of_api_versions_is_an_error() -> None:
    refusal = ApiVersionsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    with ScriptedBroker(responds(refusal)) as peer, connect(peer) as connection, pytest.raises(BrokerError) as raised:
        connection.request(HEARTBEAT, HeartbeatResponse)
    assert raised.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_an_api_that_the_broker_lacks_is_an_error_and_leaves_the_connection_open() -> None:
    with ScriptedBroker(supports(HeartbeatRequest), responds(HeartbeatResponse())) as peer, connect(peer) as connection:
        with pytest.raises(UnsupportedApiError):
            connection.request(MetadataRequest(), MetadataResponse)
        connection.request(HEARTBEAT, HeartbeatResponse)


def test_an_api_without_a_common_version_is_an_error() -> None:
    versions = ApiVersionsResponse(api_keys=[api_version(HeartbeatRequest, 90, 99)])
    with (
        ScriptedBroker(responds(versions)) as peer,
        connect(peer) as connection,
        pytest.raises(UnsupportedVersionError),
    ):
        connection.request(HEARTBEAT, HeartbeatResponse)


@pytest.mark.parametrize("version", range(HeartbeatRequest.VERSIONS.last + 1))
def test_flexible_and_older_versions_have_their_own_headers(version: int) -> None:
    with ScriptedBroker(responds(HeartbeatResponse(error_code=27))) as peer, connect(peer) as connection:
        assert connection.request(HEARTBEAT, HeartbeatResponse, version).error_code == 27
        received = request_in(peer.frames[0], HeartbeatRequest)
        assert (received.group_id, received.member_id) == ("g", "m")


def test_requests_may_be_sent_before_earlier_ones_are_answered() -> None:
    def respond(frame: memoryview) -> bytes:
        return answer(frame, HeartbeatResponse(error_code=len(peer.frames)))

    with ScriptedBroker(respond) as peer, connect(peer) as connection:
        sent = [connection.send(HEARTBEAT, HeartbeatResponse, 4) for _ in range(100)]
        assert [connection.receive(request).error_code for request in sent] == list(range(1, 101))


def test_answers_are_received_in_the_order_of_the_requests() -> None:
    with ScriptedBroker(responds(HeartbeatResponse())) as peer, connect(peer) as connection:
        connection.send(HEARTBEAT, HeartbeatResponse, 4)
        second = connection.send(HEARTBEAT, HeartbeatResponse, 4)
        with pytest.raises(AssertionError):
            connection.receive(second)


def test_a_produce_without_acks_has_no_answer() -> None:
    produced = ProduceRequest(acks=0, topic_data=[TopicProduceData(name="t")])
    with ScriptedBroker(lambda frame: None, responds(HeartbeatResponse())) as peer, connect(peer) as connection:
        connection.send_unanswered(produced, 9)
        connection.request(HEARTBEAT, HeartbeatResponse, 4)
        assert [start.api_key for start in peer.starts] == [0, 12]


def test_records_of_many_pieces_arrive_as_one() -> None:
    pieces = [memoryview(bytes([n % 256]) * (n % 97)) for n in range(5000)]
    partition = PartitionProduceData(records=pieces)
    request = ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=[partition])])
    with ScriptedBroker(responds(ProduceResponse())) as peer, connect(peer) as connection:
        connection.request(request, ProduceResponse, 9)
        received = request_in(peer.frames[0], ProduceRequest)
        assert received.topic_data[0].partition_data[0].records == b"".join(pieces)


def test_a_response_to_another_request_closes_the_connection() -> None:
    with (
        ScriptedBroker(lambda frame: answer(frame, HeartbeatResponse(), correlation_id=77)) as peer,
        connect(peer) as connection,
    ):
        with pytest.raises(UnexpectedAnswerError):
            connection.request(HEARTBEAT, HeartbeatResponse, 4)
        assert connection.is_closed


def test_a_connection_closed_by_the_broker_is_an_error() -> None:
    with ScriptedBroker(lambda frame: b"") as peer, connect(peer) as connection:
        with pytest.raises(ConnectionClosedError):
            connection.request(HEARTBEAT, HeartbeatResponse, 4)
        assert connection.is_closed


@pytest.mark.parametrize("size", [-1, 0, 3])
def test_a_frame_too_short_for_its_header_closes_the_connection(size: int) -> None:
    with ScriptedBroker(lambda frame: size.to_bytes(4, "big", signed=True)) as peer, connect(peer) as connection:
        with pytest.raises(MalformedMessageError):
            connection.request(HEARTBEAT, HeartbeatResponse, 4)
        assert connection.is_closed


def test_a_frame_above_the_limit_is_not_received() -> None:
    with ScriptedBroker(lambda frame: (1 << 20 | 1).to_bytes(4, "big")) as peer, connect(peer) as connection:
        with pytest.raises(FrameTooLargeError):
            connection.request(HEARTBEAT, HeartbeatResponse, 4)
        assert connection.is_closed


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP: this is not a Kafka broker"),
        # An alert, as servers answer what is no handshake: fatal, unexpected message.
        (
            b"\x15\x03\x03\x00\x02\x02\x0a",
            r"TLS: this is not a Kafka broker, or a listener that requires TLS \(security.protocol=SSL or SASL_SSL\)",
        ),
        (b"-ERR unknown command\r\n", "text that begins with '-ERR': this is not a Kafka broker"),
    ],
)
def test_an_answer_in_another_protocol_is_not_taken_for_a_frame(sent: bytes, answer: str) -> None:
    with ScriptedBroker(lambda frame: sent) as peer, connect(peer) as connection:
        with pytest.raises(NotKafkaError, match=f"^{peer.address} answers with {answer}$"):
            connection.version_of(HeartbeatRequest)
        assert connection.is_closed


def test_memory_is_allocated_as_bytes_arrive() -> None:
    announced = (2**31 - 1).to_bytes(4, "big") + b"x" * 100
    with (
        ScriptedBroker(lambda frame: announced) as peer,
        connect(peer, timeout_s=0.2, frame_bytes_max=2**31 - 1) as connection,
    ):
        tracemalloc.start()
        try:
            with pytest.raises(TimedOutError):
                connection.request(HEARTBEAT, HeartbeatResponse, 4)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 2 << 20


@pytest.mark.parametrize("body", [b"", b"\x00", b"\xff" * 50], ids=bytes.hex)
def test_a_malformed_response_closes_the_connection(body: bytes) -> None:
    def respond(frame: memoryview) -> bytes:
        return (4 + len(body)).to_bytes(4, "big") + bytes(frame[4:8]) + body

    with ScriptedBroker(respond) as peer, connect(peer) as connection:
        with pytest.raises(ProtocolError):
            connection.request(HEARTBEAT, HeartbeatResponse, 4)
        assert connection.is_closed


def test_a_malformed_api_versions_response_closes_the_connection() -> None:
    def respond(frame: memoryview) -> bytes:
        return (6).to_bytes(4, "big") + bytes(frame[4:8]) + b"\x00\x00"

    with ScriptedBroker(respond) as peer, connect(peer) as connection:
        with pytest.raises(ProtocolError):
            connection.version_of(HeartbeatRequest)
        assert connection.is_closed


def test_a_response_that_does_not_arrive_times_out() -> None:
    with ScriptedBroker(lambda frame: None) as peer, connect(peer) as connection:
        with pytest.raises(TimedOutError) as raised:
            connection.request(HEARTBEAT, HeartbeatResponse, 4, timeout_s=0.05)
        assert connection.is_closed
    assert raised.value.timeout_s == 0.05


def test_using_a_closed_connection_is_an_error() -> None:
    with ScriptedBroker(responds(HeartbeatResponse())) as peer, connect(peer) as connection:
        connection.close()
        with pytest.raises(ConnectionClosedError):
            connection.request(HEARTBEAT, HeartbeatResponse, 4)


def test_a_port_without_a_listener_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectFailedError) as raised:
        Connection("127.0.0.1", port)
    assert raised.value.port == port
