"""Dispatch of a frame to its handler: requests that are refused before they are decoded."""

from collections.abc import Iterator

import pytest

from logbrook.config.network import DEFAULT_LISTENER
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.errors import MalformedMessageError, UnsupportedApiError, UnsupportedVersionError
from logbrook.protocol.framing import RequestStart
from logbrook.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from logbrook.protocol.messages.metadata import MetadataRequest
from logbrook.protocol.messages.produce import ProduceRequest
from logbrook.protocol.schema import ApiMessage
from logbrook.server.dispatch import KafkaDispatcher
from logbrook.server.handlers import all_apis
from logbrook.server.session import ConnectionSession
from logbrook.testing.clock import FakeClock
from tests.unit.server.shell_kit import MIB, Shell, batch_of, produce_request, request_frame

PRODUCE, METADATA, API_VERSIONS = 0, 3, 18


@pytest.fixture(scope="module")
def shell() -> Iterator[Shell]:
    with Shell() as shell:
        yield shell


@pytest.fixture
def dispatcher(shell: Shell) -> KafkaDispatcher:
    return shell.broker.dispatchers[DEFAULT_LISTENER]


def frame_of(message: ApiMessage, version: int, correlation_id: int = 7) -> memoryview:
    return memoryview(request_frame(message, version, correlation_id))[4:]


def start(api_key: int, version: int = 0) -> RequestStart:
    return RequestStart(api_key, version, 1)


@pytest.mark.parametrize(
    ("request_bytes_max", "produce", "others"),
    [(100 * MIB, 100 * MIB, 100 * MIB // 16), (8 * MIB, 8 * MIB, MIB), (2_000, 2_000, 2_000)],
)
def test_a_produce_request_may_be_large_and_others_may_not(
    shell: Shell, request_bytes_max: int, produce: int, others: int
) -> None:
    dispatcher = KafkaDispatcher(shell.services, all_apis(), request_bytes_max, lambda: 0.0)
    assert dispatcher.size_max(PRODUCE) == produce
    assert dispatcher.size_max(METADATA) == others


@pytest.mark.parametrize("api_key", [-1, 4, 99, 32_767])
def test_an_api_that_is_not_served_is_refused_before_its_size_is_looked_at(
    dispatcher: KafkaDispatcher, api_key: int
) -> None:
    with pytest.raises(UnsupportedApiError):
        dispatcher.size_max(api_key)
    with pytest.raises(UnsupportedApiError):
        dispatcher.receive(memoryview(api_key.to_bytes(2, "big", signed=True) + bytes(20)), ConnectionSession("host"))


@pytest.mark.parametrize("api", all_apis(), ids=lambda api: api.name)
def test_unsupported_versions_are_refused_except_for_api_versions(
    dispatcher: KafkaDispatcher,
    api: object,
) -> None:
    key, versions = api.key, api.versions  # type: ignore[attr-defined]
    for version in (versions.first - 1, versions.last + 1, -1, 32_767):
        if version in versions:
            continue
        frame = memoryview(
            key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + (9).to_bytes(4, "big") + bytes(20)
        )
        if key == API_VERSIONS:
            received = dispatcher.receive(frame, ConnectionSession("host"))
            assert (received.version, received.context.version, received.correlation_id) == (0, version, 9)
        else:
            with pytest.raises(UnsupportedVersionError):
                dispatcher.receive(frame, ConnectionSession("host"))


def test_a_handler_gets_the_clients_identity(dispatcher: KafkaDispatcher) -> None:
    frame = frame_of(MetadataRequest(topics=None), 12)
    received = dispatcher.receive(frame, ConnectionSession("10.0.0.1"))
    assert (received.context.client_id, received.context.host, received.context.version) == ("test", "10.0.0.1", 12)
    assert (received.size, received.correlation_id) == (len(frame), 7)


@pytest.mark.parametrize("version", [1, 12])
def test_a_client_need_not_have_a_name(dispatcher: KafkaDispatcher, version: int) -> None:
    flexible = b"\x00" if version >= MetadataRequest.FLEXIBLE_SINCE else b""
    body = b"\x00\x01\x00\x00" if flexible else b"\xff\xff\xff\xff"
    head = METADATA.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\xff\xff" + flexible
    assert dispatcher.receive(memoryview(head + body), ConnectionSession("host")).context.client_id == ""


def test_tags_of_a_header_that_are_not_known_are_skipped(dispatcher: KafkaDispatcher) -> None:
    """KIP-482."""
    head = METADATA.to_bytes(2, "big") + (12).to_bytes(2, "big") + bytes(4) + b"\x00\x01c"
    tags = b"\x02" + b"\x05\x03abc" + b"\x09\x00"
    received = dispatcher.receive(memoryview(head + tags + b"\x00\x01\x00\x00"), ConnectionSession("host"))
    assert received.context.client_id == "c"


def test_a_request_that_ends_early_is_refused_wherever_it_ends(dispatcher: KafkaDispatcher) -> None:
    frame = frame_of(ApiVersionsRequest(client_software_name="name", client_software_version="1"), 3)
    dispatcher.receive(frame, ConnectionSession("host"))
    for length in range(8, len(frame)):
        with pytest.raises(MalformedMessageError):
            dispatcher.receive(frame[:length], ConnectionSession("host"))


def test_the_bytes_of_records_are_not_copied(dispatcher: KafkaDispatcher) -> None:
    memory = bytearray(request_frame(produce_request("t", batch_of(5_000)), 12)[4:])
    received = dispatcher.receive(memoryview(memory), ConnectionSession("host"))
    request = received.request
    assert isinstance(request, ProduceRequest)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is memory


def test_answers_are_counted_and_timed(shell: Shell) -> None:
    clock = FakeClock()
    dispatcher = KafkaDispatcher(shell.services, all_apis(), MIB, clock.monotonic_s)
    received = dispatcher.receive(frame_of(ApiVersionsRequest(), 0), ConnectionSession("host"))
    probe = shell.services.probe
    before = probe.latencies["ApiVersions"].sum, probe.bytes_sent
    clock.advance(2_000)
    pieces, size = dispatcher.encode_response(received, ApiVersionsResponse(error_code=ErrorCode.NONE))
    assert size == sum(map(len, pieces))
    assert probe.latencies["ApiVersions"].sum - before[0] == 2.0
    assert probe.bytes_sent - before[1] == size
    assert dispatcher.encode_response(received, None) == ([], 0)
