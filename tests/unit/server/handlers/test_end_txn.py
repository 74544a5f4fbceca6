"""EndTxn."""

import pytest

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.end_txn import EndTxnRequest
from tests.unit.server.handlers.kit import Peer, distinct_versions
from tests.unit.server.handlers.transaction_kit import (
    FIRST_PROTOCOL_END_VERSION,
    FIRST_PROTOCOL_PRODUCE_VERSION,
    SECOND_PROTOCOL_END_VERSION,
    Identity,
    add_partitions,
    end,
    fenced_code,
    init,
    stable_end,
    write,
)


def begun(peer: Peer, topic: str) -> Identity:
    """A producer whose transaction has a record."""
    identity = init(peer)
    assert write(peer, identity, topic) == ErrorCode.NONE
    assert (stable_end(peer, topic), peer.offset(topic)) == (0, 1)
    return identity


@distinct_versions(EndTxnRequest)
@pytest.mark.parametrize("is_commit", [True, False])
def test_an_end_is_a_marker_that_moves_the_last_stable_offset(peer: Peer, version: int, is_commit: bool) -> None:
    topic = peer.create()
    identity = begun(peer, topic)
    answer = end(peer, identity, version, is_commit=is_commit)
    assert answer.error_code == ErrorCode.NONE
    assert stable_end(peer, topic) == peer.offset(topic) == 2
    if version >= SECOND_PROTOCOL_END_VERSION:
        assert (answer.producer_id, answer.producer_epoch) == (identity.producer_id, identity.epoch + 1)
    else:
        assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


@distinct_versions(EndTxnRequest)
def test_an_end_that_is_sent_again_has_the_same_answer_and_writes_nothing(peer: Peer, version: int) -> None:
    topic = peer.create()
    identity = begun(peer, topic)
    first = end(peer, identity, version)
    second = end(peer, identity, version)
    assert second.error_code == ErrorCode.NONE
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, first.producer_epoch)
    assert peer.offset(topic) == 2
    assert end(peer, identity, version, is_commit=False).error_code == ErrorCode.INVALID_TXN_STATE


@distinct_versions(EndTxnRequest)
def test_a_producer_that_was_replaced_ends_nothing(peer: Peer, version: int) -> None:
    topic = peer.create()
    zombie = init(peer)
    identity = init(peer, zombie.transactional_id)
    assert write(peer, identity, topic) == ErrorCode.NONE
    for is_commit in (True, False):
        assert end(peer, zombie, version, is_commit=is_commit).error_code == fenced_code(version)
    assert stable_end(peer, topic) == 0


@distinct_versions(EndTxnRequest)
def test_an_unknown_producer_cannot_end_a_transaction(peer: Peer, version: int) -> None:
    identity = init(peer)
    stranger = identity._replace(producer_id=identity.producer_id + 1_000_000)
    assert end(peer, stranger, version).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    nobody = identity._replace(transactional_id="nobody")
    assert end(peer, nobody, version).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    unnamed = identity._replace(transactional_id="")
    assert end(peer, unnamed, version).error_code == ErrorCode.INVALID_REQUEST


@distinct_versions(EndTxnRequest)
def test_a_transaction_that_has_not_begun_cannot_end(peer: Peer, version: int) -> None:
    assert end(peer, init(peer), version).error_code == ErrorCode.INVALID_TXN_STATE


def test_an_abort_without_a_transaction_is_accepted_and_bumps_the_epoch(peer: Peer) -> None:
    identity = init(peer)
    assert end(peer, identity, FIRST_PROTOCOL_END_VERSION, is_commit=False).error_code == ErrorCode.INVALID_TXN_STATE
    answer = end(peer, identity, is_commit=False)
    assert (answer.error_code, answer.producer_epoch) == (ErrorCode.NONE, identity.epoch + 1)


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("next_is_commit", [True, False])
def test_a_late_end_has_no_effect_on_the_next_transaction(
    peer: Peer, other: Peer, is_commit: bool, next_is_commit: bool
) -> None:
    """KAFKA-17754: the first request is delayed, its retry is answered, and then the first one arrives."""
    topic = peer.create()
    identity = begun(peer, topic)
    answer = end(peer, identity, is_commit=is_commit)
    who_next = identity._replace(epoch=answer.producer_epoch)
    assert write(peer, who_next, topic) == ErrorCode.NONE
    for late_is_commit in (True, False):
        assert end(other, identity, is_commit=late_is_commit).error_code == ErrorCode.PRODUCER_FENCED
        assert end(other, identity, FIRST_PROTOCOL_END_VERSION, is_commit=late_is_commit).error_code != ErrorCode.NONE
    assert (stable_end(peer, topic), peer.offset(topic)) == (2, 3), "the next transaction is open"
    assert end(peer, who_next, is_commit=next_is_commit).error_code == ErrorCode.NONE
    assert stable_end(peer, topic) == 4


def test_a_late_write_is_not_added_to_the_next_transaction(peer: Peer, other: Peer) -> None:
    topic = peer.create()
    identity = begun(peer, topic)
    who_next = identity._replace(epoch=end(peer, identity).producer_epoch)
    assert write(other, identity, topic, sequence=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert write(peer, who_next, topic) == ErrorCode.NONE
    assert write(other, identity, topic, sequence=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert peer.offset(topic) == 3


def test_a_write_after_the_end_is_not_taken_in_the_first_version_of_the_protocol(peer: Peer) -> None:
    """Records outside any transaction would hold the last stable offset back forever (KAFKA-14402)."""
    topic, identity = peer.create(), init(peer)
    add_partitions(peer, identity, {topic: [0]})
    assert write(peer, identity, topic, version=FIRST_PROTOCOL_PRODUCE_VERSION) == ErrorCode.NONE
    assert end(peer, identity, FIRST_PROTOCOL_END_VERSION).error_code == ErrorCode.NONE
    for version in (FIRST_PROTOCOL_PRODUCE_VERSION - 1, FIRST_PROTOCOL_PRODUCE_VERSION):
        code = write(peer, identity, topic, sequence=1, version=version)
        is_newer = version == FIRST_PROTOCOL_PRODUCE_VERSION
        assert code == (ErrorCode.TRANSACTION_ABORTABLE if is_newer else ErrorCode.INVALID_TXN_STATE)
    assert stable_end(peer, topic) == peer.offset(topic) == 2
