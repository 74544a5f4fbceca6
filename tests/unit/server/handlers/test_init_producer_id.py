"""InitProducerId: ids that are never given out twice."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from logbrook.client.connection import Connection
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from logbrook.testing import FaultyFiles, MemoryFiles
from tests.unit.server.handlers.kit import every_version
from tests.unit.server.shell_kit import Shell

LAST = InitProducerIdRequest.VERSIONS.last


@pytest.fixture(scope="module")
def shell() -> Iterator[Shell]:
    with Shell() as shell:
        yield shell


@pytest.fixture
def client(shell: Shell) -> Iterator[Connection]:
    with closing(shell.client()) as client:
        yield client


def ask(client: Connection, version: int = LAST, transactional_id: str | None = None) -> InitProducerIdResponse:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1_000)
    return client.request(request, InitProducerIdResponse, version)


def new_id(client: Connection, version: int = LAST) -> int:
    response = ask(client, version)
    assert (response.error_code, response.producer_epoch) == (ErrorCode.NONE, 0)
    return response.producer_id


@every_version(InitProducerIdRequest)
def test_every_version_gets_a_new_id(client: Connection, version: int) -> None:
    first, second = new_id(client, version), new_id(client, version)
    assert second > first >= 0


@every_version(InitProducerIdRequest)
def test_a_transactional_producer_is_told_for_good_that_there_are_no_transactions(
    client: Connection, version: int
) -> None:
    response = ask(client, version, "tx")
    assert (response.error_code, response.producer_id) == (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)


def test_ids_are_never_given_out_twice_however_many_ask_at_once(shell: Shell) -> None:
    clients = [shell.client() for _ in range(10)]
    request = InitProducerIdRequest(transactional_id=None)
    ids = []
    for _ in range(3):
        sent = [(one, one.send(request, InitProducerIdResponse, LAST)) for one in clients for _ in range(100)]
        ids += [one.receive(each).producer_id for one, each in sent]
    for one in clients:
        one.close()
    assert len(set(ids)) == 3_000
    assert min(ids) >= 0


def test_ids_are_never_given_out_twice_over_restarts() -> None:
    files = MemoryFiles()
    ids: list[int] = []
    for _ in range(4):
        with Shell(files=files) as shell, closing(shell.client()) as client:
            ids += [new_id(client) for _ in range(3)]
            # And a crash, whose start finds the disk as it is now.
            with Shell(files=MemoryFiles(files)) as after_crash, closing(after_crash.client()) as another:
                assert new_id(another) > max(ids)
    assert len(set(ids)) == 12


def test_no_id_is_given_out_that_is_not_durable() -> None:
    files = FaultyFiles(MemoryFiles(), only={"fsync"}, matching=lambda path: path.startswith("wal/"))
    with Shell(files=files) as shell, closing(shell.client()) as client:
        files.fail_at = files.calls + 1
        for _ in range(2):
            response = ask(client)
            assert (response.error_code, response.producer_id) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
