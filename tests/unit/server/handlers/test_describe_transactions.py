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


def test_a_transactional_id_is_described_in_every_state(peer: Peer) -> None:
    first, second, identity = peer.create(partitions=2), peer.create(), init(peer)
    (described,) = describe(peer, identity.transactional_id)
    assert (described.error_code, described.transaction_state, described.topics) == (ErrorCode.NONE, "Empty", [])
    assert (described.producer_id, described.producer_epoch) == (identity.producer_id, identity.epoch)
    assert (described.transaction_timeout_ms, described.transaction_start_time_ms) == (TIMEOUT_MS, -1)
    for topic, partition in ((first, 1), (second, 0), (first, 0)):
        assert write(peer, identity, topic, partition=partition) == ErrorCode.NONE
    (described,) = describe(peer, identity.transactional_id)
    assert described.transaction_state == "Ongoing"
    assert described.transaction_start_time_ms > 0
    assert {topic.topic: list(topic.partitions) for topic in described.topics} == {first: [0, 1], second: [0]}
    assert end(peer, identity, is_commit=False).error_code == ErrorCode.NONE
    (described,) = describe(peer, identity.transactional_id)
    assert (described.transaction_state, described.topics) == ("CompleteAbort", [])
    assert described.producer_epoch == identity.epoch + 1


def test_unknown_ids_are_refused_and_others_are_described_once(peer: Peer) -> None:
    identity = init(peer)
    described = describe(peer, "nobody", identity.transactional_id, identity.transactional_id, "")
    assert [(transaction.transactional_id, transaction.error_code) for transaction in described] == [
        ("nobody", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
        (identity.transactional_id, ErrorCode.NONE),
        ("", ErrorCode.INVALID_REQUEST),
    ]


def test_a_request_without_topics_is_answered(peer: Peer) -> None:
    assert describe(peer) == []
