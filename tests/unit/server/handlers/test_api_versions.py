"""ApiVersions: the one request that every client can make, whatever versions it knows."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from logbrook.client.connection import Connection
from logbrook.protocol.decoding import decode
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from logbrook.protocol.messages.produce import ProduceRequest
from logbrook.protocol.reader import Reader
from logbrook.server.handlers import all_apis
from tests.unit.server.handlers.kit import every_version
from tests.unit.server.shell_kit import Shell, correlation_id_of, receive_frame


@pytest.fixture(scope="module")
def shell() -> Iterator[Shell]:
    with Shell() as shell:
        yield shell


@pytest.fixture
def client(shell: Shell) -> Iterator[Connection]:
    with closing(shell.client()) as client:
        yield client


def served(response: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    return {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}


@every_version(ApiVersionsRequest)
def test_every_version_tells_what_is_served(client: Connection, version: int) -> None:
    response = client.request(ApiVersionsRequest(), ApiVersionsResponse, version)
    assert response.error_code == ErrorCode.NONE
    told = served(response)
    assert set(told) == {api.key for api in all_apis()}
    for api in all_apis():
        if api.key != ProduceRequest.API_KEY:
            assert told[api.key] == tuple(api.versions)


def test_older_librdkafka_is_told_of_a_produce_version_without_which_it_would_not_compress(client: Connection) -> None:
    """KAFKA-18659."""
    response = client.request(ApiVersionsRequest(), ApiVersionsResponse, 3)
    assert served(response)[ProduceRequest.API_KEY] == (0, ProduceRequest.VERSIONS.last)


@pytest.mark.parametrize("version", [ApiVersionsRequest.VERSIONS.last + 1, 99, 32_767])
def test_a_version_of_the_future_is_answered_in_the_first_one_with_what_is_served(shell: Shell, version: int) -> None:
    """KIP-511. Whatever follows in the request cannot be read, and is not."""
    body = b"\xff" * 40
    head = ApiVersionsRequest.API_KEY.to_bytes(2, "big") + version.to_bytes(2, "big") + (1234).to_bytes(4, "big")
    frame = head + body
    with shell.connect() as connected:
        connected.sendall(len(frame).to_bytes(4, "big") + frame)
        answer = receive_frame(connected)
        assert correlation_id_of(answer) == 1234
        response = decode(ApiVersionsResponse, 0, Reader(memoryview(answer), 4))
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        first, last = served(response)[ApiVersionsRequest.API_KEY]
        assert (first, last) == tuple(ApiVersionsRequest.VERSIONS)
        # And the connection goes on.
        connected.sendall(len(frame).to_bytes(4, "big") + frame)
        assert correlation_id_of(receive_frame(connected)) == 1234
