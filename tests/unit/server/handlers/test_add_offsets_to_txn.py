"""AddOffsetsToTxn."""

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tests.unit.server.handlers.kit import Peer, distinct_versions, fresh
from tests.unit.server.handlers.transaction_kit import FIRST_PROTOCOL_END_VERSION, add_offsets, end, fenced_code, init


@distinct_versions(AddOffsetsToTxnRequest)
def test_a_group_is_added_to_the_transaction(peer: Peer, version: int) -> None:
    identity, group = init(peer), fresh("group")
    for _ in range(2):
        assert add_offsets(peer, identity, group, version) == ErrorCode.NONE
    assert end(peer, identity, FIRST_PROTOCOL_END_VERSION).error_code == ErrorCode.NONE, "it had begun"


@distinct_versions(AddOffsetsToTxnRequest)
def test_a_group_has_a_name(peer: Peer, version: int) -> None:
    assert add_offsets(peer, init(peer), "", version) == ErrorCode.INVALID_GROUP_ID


@distinct_versions(AddOffsetsToTxnRequest)
def test_a_producer_that_was_replaced_adds_no_group(peer: Peer, version: int) -> None:
    zombie = init(peer)
    init(peer, zombie.transactional_id)
    assert add_offsets(peer, zombie, fresh("group"), version) == fenced_code(version)


@distinct_versions(AddOffsetsToTxnRequest)
def test_an_unknown_producer_cannot_add_a_group(peer: Peer, version: int) -> None:
    identity, group = init(peer), fresh("group")
    for stranger, code in (
        (identity._replace(producer_id=identity.producer_id + 1_000_000), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (identity._replace(transactional_id="nobody"), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (identity._replace(transactional_id=""), ErrorCode.INVALID_REQUEST),
    ):
        assert add_offsets(peer, stranger, group, version) == code
