"""DescribeTransactions."""

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from tests.unit.server.handlers.kit import Peer
from tests.unit.server.handlers.transaction_kit import TIMEOUT_MS, end, init, write


def describe(peer: Peer, *transactional_ids: str) -> list[TransactionState]:
    request = DescribeTransactionsRequest(transactional_ids=transactional_ids)
    return list(peer.ask(request, DescribeTransactionsResponse).transaction_states)


def test_a_transactional_id_is_described_through_its_life(peer: Peer) -> None:
    first, second, who = peer.create(partitions=2), peer.create(), init(peer)
    (found,) = describe(peer, who.transactional_id)
    assert (found.error_code, found.transaction_state, found.topics) == (ErrorCode.NONE, "Empty", [])
    assert (found.producer_id, found.producer_epoch) == (who.producer_id, who.epoch)
    assert (found.transaction_timeout_ms, found.transaction_start_time_ms) == (TIMEOUT_MS, -1)
    for topic, partition in ((first, 1), (second, 0), (first, 0)):
        assert write(peer, who, topic, partition=partition) == ErrorCode.NONE
    (found,) = describe(peer, who.transactional_id)
    assert found.transaction_state == "Ongoing"
    assert found.transaction_start_time_ms > 0
    assert {one.topic: list(one.partitions) for one in found.topics} == {first: [0, 1], second: [0]}
    assert end(peer, who, is_commit=False).error_code == ErrorCode.NONE
    (found,) = describe(peer, who.transactional_id)
    assert (found.transaction_state, found.topics) == ("CompleteAbort", [])
    assert found.producer_epoch == who.epoch + 1


def test_ids_that_nobody_has_are_refused_and_others_are_described_once(peer: Peer) -> None:
    who = init(peer)
    found = describe(peer, "nobody", who.transactional_id, who.transactional_id, "")
    assert [(one.transactional_id, one.error_code) for one in found] == [
        ("nobody", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
        (who.transactional_id, ErrorCode.NONE),
        ("", ErrorCode.INVALID_REQUEST),
    ]


def test_nothing_may_be_asked_about(peer: Peer) -> None:
    assert describe(peer) == []
