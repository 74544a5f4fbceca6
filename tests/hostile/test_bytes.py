"""Invalid and incomplete requests. Most of them close the connection."""

import socket
from random import Random

import pytest

from logbrook.protocol.decoding import decode
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from logbrook.protocol.messages.metadata import MetadataRequest
from logbrook.protocol.messages.produce import ProduceRequest
from logbrook.protocol.reader import Reader
from logbrook.server.handlers import all_apis
from tests.hostile.victim import MIB, Victim
from tests.hostile.wire import all_answers, is_hung_up_on, raw_frame, receive_frame, request_frame

REQUESTS = [api.request for api in all_apis()]
API_KEYS = sorted(request.API_KEY for request in REQUESTS)
VERSIONS = request_frame(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)

CLIENT_HELLO = bytes.fromhex(
    "16030100c8010000c403035f2b1e0ab94d9f4d2b79a8f2a4a1b4b7e5d0c4b30f1a2b3c4d5e6f708192a3b420"
    "e0e1e2e3e4e5e6e7e8e9eaebecedeeeff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff0008130213031301c02f0100"
)
STRANGERS = {
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: curl/8\r\nAccept: */*\r\n\r\n",
    "http2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "tls": CLIENT_HELLO + bytes(117),
    "ssh": b"SSH-2.0-OpenSSH_9.6\r\n",
    "redis": b"*1\r\n$4\r\nPING\r\n",
    "json": b'{"type": "produce", "topic": "t"}\n' * 4,
    "zeros": bytes(64),
    "ones": b"\xff" * 64,
}


def test_a_whole_request_one_byte_at_a_time_is_answered(victim: Victim) -> None:
    with victim.connect() as connected:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in VERSIONS:
            connected.sendall(bytes([byte]))
        assert receive_frame(connected) is not None


def test_a_request_cut_off_anywhere_is_not_answered(victim: Victim) -> None:
    for end in range(len(VERSIONS)):
        with victim.connect() as connected:
            connected.sendall(VERSIONS[:end])
            assert all_answers(connected) == []


def test_complete_requests_before_a_partial_one_are_answered(victim: Victim) -> None:
    with victim.connect() as connected:
        connected.sendall(VERSIONS * 3 + VERSIONS[:-1])
        assert [receive_frame(connected) is not None for _ in range(3)] == [True] * 3


def test_a_reset_in_the_middle_of_a_request_affects_no_other_connection(victim: Victim) -> None:
    for size in (1, 4, 11, 12, 13, 1000):
        with victim.connect() as connected:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            connected.sendall(raw_frame(0, 9, bytes(2000), size=3000)[:size])


@pytest.mark.parametrize("name", STRANGERS)
def test_other_protocols_are_disconnected(victim: Victim, name: str) -> None:
    with victim.connect() as connected:
        connected.sendall(STRANGERS[name])
        assert is_hung_up_on(connected)


def test_garbage_closes_the_connection_or_is_an_incomplete_frame(victim: Victim) -> None:
    random = Random("garbage")
    for _ in range(150):
        with victim.connect() as connected:
            connected.sendall(random.randbytes(random.choice((1, 11, 12, 50, 500, 5000))))
            assert all_answers(connected) == []


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 7])
def test_an_impossible_size_closes_the_connection(victim: Victim, size: int) -> None:
    with victim.connect() as connected:
        connected.sendall(raw_frame(18, 0, bytes(20), size=size))
        assert is_hung_up_on(connected)


@pytest.mark.parametrize(
    ("api_key", "size"), [(ProduceRequest.API_KEY, 100 * MIB + 1), (MetadataRequest.API_KEY, 7 * MIB), (18, 2**31 - 1)]
)
def test_a_request_above_the_limit_of_its_api_is_rejected_before_it_is_received(
    victim: Victim, api_key: int, size: int
) -> None:
    with victim.connect() as connected:
        connected.sendall(raw_frame(api_key, 3, size=size))
        assert is_hung_up_on(connected)


def test_an_unknown_api_closes_the_connection_before_its_body_is_received(victim: Victim) -> None:
    for api_key in {-(2**15), -1, *range(100), 1000, 2**15 - 1}.difference(API_KEYS):
        with victim.connect() as connected:
            connected.sendall(raw_frame(api_key, 0, size=1000))
            assert is_hung_up_on(connected), api_key


@pytest.mark.parametrize("request_class", [api for api in REQUESTS if api is not ApiVersionsRequest])
def test_an_unsupported_version_closes_the_connection(victim: Victim, request_class: type[MetadataRequest]) -> None:
    first, last = request_class.VERSIONS
    for version in {-1, -(2**15), first - 1, last + 1, 2**15 - 1}:
        with victim.connect() as connected:
            connected.sendall(raw_frame(request_class.API_KEY, version, b"\xff\xff" + bytes(20)))
            assert is_hung_up_on(connected)


@pytest.mark.parametrize("version", [-1, ApiVersionsRequest.VERSIONS.last + 1, 99, 2**15 - 1])
def test_a_newer_api_versions_request_is_answered_with_the_supported_versions(victim: Victim, version: int) -> None:
    """KIP-511: in version 0, which every client can read, and the connection stays open."""
    with victim.connect() as connected:
        connected.sendall(raw_frame(ApiVersionsRequest.API_KEY, version, b"whatever this may be") + VERSIONS)
        frame = receive_frame(connected)
        assert frame is not None
        answer = decode(ApiVersionsResponse, 0, Reader(memoryview(frame), 4))
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        served = {
            version_range.api_key: (version_range.min_version, version_range.max_version)
            for version_range in answer.api_keys
        }
        assert served[ApiVersionsRequest.API_KEY] == ApiVersionsRequest.VERSIONS
        assert sorted(served) == sorted(api.key for api in all_apis() if api.is_advertised)
        assert receive_frame(connected) is not None


def test_a_client_id_that_is_not_utf8_closes_the_connection(victim: Victim) -> None:
    for client_id in (b"\x00\x02\xc3\x28", b"\x7f\xff", b"\x80\x00", b"\xff\xfe"):
        with victim.connect() as connected:
            connected.sendall(raw_frame(18, 0, client_id))
            assert is_hung_up_on(connected)


def test_good_requests_and_a_bad_one_at_once_end_the_connection_and_nothing_else(victim: Victim) -> None:
    with victim.connect() as connected:
        connected.sendall(VERSIONS * 10 + raw_frame(9999, 0, bytes(100)) + VERSIONS)
        answers = all_answers(connected)
        assert len(answers) <= 10
