"""ApiVersions: the request that every client can send, whatever versions it knows."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from logbrook.protocol.decoding import decode
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from logbrook.protocol.messages.produce import ProduceRequest
from logbrook.protocol.reader import Reader
from logbrook.server.handlers import all_apis
from tests.unit.server.handler_kit import HandlerClient, HandlerShell
from tests.unit.server.handlers.kit import distinct_versions
from tests.unit.server.shell_kit import Shell, correlation_id_of, receive_frame


@pytest.fixture(scope="module")
def shell() -> Iterator[HandlerShell]:
    with HandlerShell() as shell:
        yield shell


@pytest.fixture
def client(shell: HandlerShell) -> Iterator[HandlerClient]:
    with closing(shell.client()) as client:
        yield client


def served(response: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}


@distinct_versions(ApiVersionsRequest)
def test_every_version_lists_the_supported_apis(client: HandlerClient, version: int) -> None:
    response = client.request(ApiVersionsRequest(), ApiVersionsResponse, version)
    assert response.error_code == ErrorCode.NONE
    result = served(response)
    advertised = [api for api in all_apis() if api.is_advertised]
    assert set(result) == {api.key for api in advertised}
    for api in advertised:
        if api.key != ProduceRequest.API_KEY:
            assert result[api.key] == tuple(api.versions)


def test_java_clients_before_3_8_get_no_feature_whose_minimum_version_is_0(client: HandlerClient) -> None:
    """KAFKA-17011: they close the connection."""
    response = client.request(ApiVersionsRequest(), ApiVersionsResponse, 3)
    assert not response.supported_features
    assert [feature.name for feature in response.finalized_features] == ["transaction.version"]
    response = client.request(ApiVersionsRequest(), ApiVersionsResponse, 4)
    assert [(feature.name, feature.min_version) for feature in response.supported_features] == [
        ("transaction.version", 0)
    ]


def test_older_librdkafka_gets_a_produce_version_without_which_it_would_not_compress(
    client: HandlerClient,
) -> None:
    """KAFKA-18659."""
    response = client.request(ApiVersionsRequest(), ApiVersionsResponse, 3)
    assert served(response)[ProduceRequest.API_KEY] == (0, ProduceRequest.VERSIONS.last)


@pytest.mark.parametrize("version", [ApiVersionsRequest.VERSIONS.last + 1, 99, 32_767])
def test_an_unsupported_version_is_answered_in_version_0_with_the_supported_apis(version: int) -> None:
    """KIP-511. The rest of the request cannot be decoded, and is ignored."""
    body = b"\xff" * 40
    head = ApiVersionsRequest.API_KEY.to_bytes(2, "big") + version.to_bytes(2, "big") + (1234).to_bytes(4, "big")
    frame = head + body
    with Shell() as shell, shell.connect() as connected:
        connected.sendall(len(frame).to_bytes(4, "big") + frame)
        answer = receive_frame(connected)
        assert correlation_id_of(answer) == 1234
        response = decode(ApiVersionsResponse, 0, Reader(memoryview(answer), 4))
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        first, last = served(response)[ApiVersionsRequest.API_KEY]
        assert (first, last) == tuple(ApiVersionsRequest.VERSIONS)
        # The connection stays open.
        connected.sendall(len(frame).to_bytes(4, "big") + frame)
        assert correlation_id_of(receive_frame(connected)) == 1234
