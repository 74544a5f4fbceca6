"""InitProducerId: producer ids are unique, and a transactional id has one producer at a time."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from logbrook.testing import FaultyFiles, MemoryFiles
from tests.unit.server.handler_kit import HandlerClient, HandlerShell
from tests.unit.server.handlers.kit import distinct_versions

LAST = InitProducerIdRequest.VERSIONS.last


@pytest.fixture(scope="module")
def shell() -> Iterator[HandlerShell]:
    with HandlerShell() as shell:
        yield shell


@pytest.fixture
def client(shell: HandlerShell) -> Iterator[HandlerClient]:
    with closing(shell.client()) as client:
        yield client


def ask(client: HandlerClient, version: int = LAST, transactional_id: str | None = None) -> InitProducerIdResponse:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1_000)
    return client.request(request, InitProducerIdResponse, version)


def new_id(client: HandlerClient, version: int = LAST) -> int:
    response = ask(client, version)
    assert (response.error_code, response.producer_epoch) == (ErrorCode.NONE, 0)
    return response.producer_id


@distinct_versions(InitProducerIdRequest)
def test_every_version_gets_a_new_id(client: HandlerClient, version: int) -> None:
    first, second = new_id(client, version), new_id(client, version)
    assert second > first >= 0


@distinct_versions(InitProducerIdRequest)
def test_a_transactional_id_keeps_its_producer_id_and_gets_a_new_epoch(client: HandlerClient, version: int) -> None:
    first, second = (ask(client, version, f"transactional-{version}") for _ in range(2))
    assert (first.error_code, first.producer_epoch) == (ErrorCode.NONE, 0)
    assert (second.error_code, second.producer_id) == (ErrorCode.NONE, first.producer_id)
    assert second.producer_epoch == 1


@distinct_versions(InitProducerIdRequest)
@pytest.mark.parametrize("timeout_ms", [0, -1, 15 * 60_000 + 1])
def test_a_timeout_that_is_no_timeout_is_refused(client: HandlerClient, version: int, timeout_ms: int) -> None:
    request = InitProducerIdRequest(transactional_id="hasty", transaction_timeout_ms=timeout_ms)
    response = client.request(request, InitProducerIdResponse, version)
    assert (response.error_code, response.producer_id) == (ErrorCode.INVALID_TRANSACTION_TIMEOUT, -1)


@distinct_versions(InitProducerIdRequest)
def test_a_transactional_id_is_not_empty(client: HandlerClient, version: int) -> None:
    assert ask(client, version, "").error_code == ErrorCode.INVALID_REQUEST


@distinct_versions(InitProducerIdRequest, first=3)
def test_a_producer_that_continues_after_an_error_is_fenced_if_another_took_over(
    client: HandlerClient, version: int
) -> None:
    name = f"goes-on-{version}"
    first = ask(client, version, name)

    def go_on(epoch: int) -> InitProducerIdResponse:
        request = InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=1_000, producer_id=first.producer_id, producer_epoch=epoch
        )
        return client.request(request, InitProducerIdResponse, version)

    assert (go_on(0).error_code, go_on(0).producer_epoch) == (ErrorCode.NONE, 1)
    ask(client, version, name)
    fenced = ErrorCode.PRODUCER_FENCED if version >= 4 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert go_on(1).error_code == fenced


@pytest.mark.parametrize("given", [{"producer_id": 1}, {"producer_epoch": 1}])
def test_an_epoch_bump_needs_both_producer_id_and_epoch(client: HandlerClient, given: dict[str, Any]) -> None:
    request = InitProducerIdRequest(transactional_id="half", transaction_timeout_ms=1_000, **given)
    assert client.request(request, InitProducerIdResponse, LAST).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("field", ["enable2_pc", "keep_prepared_txn"])
def test_transactions_that_others_prepare_are_refused(client: HandlerClient, field: str) -> None:
    request = InitProducerIdRequest(transactional_id="two-phases", transaction_timeout_ms=1_000, **{field: True})
    response = client.request(request, InitProducerIdResponse, LAST)
    assert response.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_ids_are_never_given_out_twice_however_many_ask_at_once(shell: HandlerShell) -> None:
    clients = [shell.client() for _ in range(10)]
    request = InitProducerIdRequest(transactional_id=None)
    ids = []
    for _ in range(3):
        sent = [(client, client.send(request, InitProducerIdResponse, LAST)) for client in clients for _ in range(100)]
        ids += [client.receive(ticket).producer_id for client, ticket in sent]
    for client in clients:
        client.close()
    assert len(set(ids)) == 3_000
    assert min(ids) >= 0


def test_ids_are_never_given_out_twice_over_restarts() -> None:
    files = MemoryFiles()
    ids: list[int] = []
    for _ in range(4):
        with HandlerShell(files=files) as shell, closing(shell.client()) as client:
            ids += [new_id(client) for _ in range(3)]
            # After a crash the start finds the current state of the disk.
            with HandlerShell(files=MemoryFiles(files)) as after_crash, closing(after_crash.client()) as another:
                assert new_id(another) > max(ids)
    assert len(set(ids)) == 12


def test_no_id_is_given_out_that_is_not_durable() -> None:
    files = FaultyFiles(MemoryFiles(), only={"fsync"}, matching=lambda path: path.startswith("wal/"))
    with HandlerShell(files=files) as shell, closing(shell.client()) as client:
        files.fail_at = files.calls + 1
        for _ in range(2):
            response = ask(client)
            assert (response.error_code, response.producer_id) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
