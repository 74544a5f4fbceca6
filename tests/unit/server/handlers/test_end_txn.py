"""EndTxn."""

import pytest

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.end_txn import EndTxnRequest
from tests.unit.server.handlers.kit import Peer, every_version
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
    who = init(peer)
    assert write(peer, who, topic) == ErrorCode.NONE
    assert (stable_end(peer, topic), peer.offset(topic)) == (0, 1)
    return who


@every_version(EndTxnRequest)
@pytest.mark.parametrize("is_commit", [True, False])
def test_an_end_is_a_marker_that_moves_the_last_stable_offset(peer: Peer, version: int, is_commit: bool) -> None:
    topic = peer.create()
    who = begun(peer, topic)
    answer = end(peer, who, version, is_commit=is_commit)
    assert answer.error_code == ErrorCode.NONE
    assert stable_end(peer, topic) == peer.offset(topic) == 2
    if version >= SECOND_PROTOCOL_END_VERSION:
        assert (answer.producer_id, answer.producer_epoch) == (who.producer_id, who.epoch + 1)
    else:
        assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


@every_version(EndTxnRequest)
def test_an_end_that_is_sent_again_has_the_same_answer_and_writes_nothing(peer: Peer, version: int) -> None:
    topic = peer.create()
    who = begun(peer, topic)
    first = end(peer, who, version)
    second = end(peer, who, version)
    assert second.error_code == ErrorCode.NONE
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, first.producer_epoch)
    assert peer.offset(topic) == 2
    assert end(peer, who, version, is_commit=False).error_code == ErrorCode.INVALID_TXN_STATE


@every_version(EndTxnRequest)
def test_a_producer_that_was_replaced_ends_nothing(peer: Peer, version: int) -> None:
    topic = peer.create()
    zombie = init(peer)
    who = init(peer, zombie.transactional_id)
    assert write(peer, who, topic) == ErrorCode.NONE
    for is_commit in (True, False):
        assert end(peer, zombie, version, is_commit=is_commit).error_code == fenced_code(version)
    assert stable_end(peer, topic) == 0


@every_version(EndTxnRequest)
def test_who_is_not_known_ends_nothing(peer: Peer, version: int) -> None:
    who = init(peer)
    stranger = who._replace(producer_id=who.producer_id + 1_000_000)
    assert end(peer, stranger, version).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    nobody = who._replace(transactional_id="nobody")
    assert end(peer, nobody, version).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    unnamed = who._replace(transactional_id="")
    assert end(peer, unnamed, version).error_code == ErrorCode.INVALID_REQUEST


@every_version(EndTxnRequest)
def test_what_has_not_begun_cannot_be_committed(peer: Peer, version: int) -> None:
    assert end(peer, init(peer), version).error_code == ErrorCode.INVALID_TXN_STATE


def test_one_who_does_not_know_whether_it_began_may_abort_and_gets_a_new_epoch(peer: Peer) -> None:
    who = init(peer)
    assert end(peer, who, FIRST_PROTOCOL_END_VERSION, is_commit=False).error_code == ErrorCode.INVALID_TXN_STATE
    answer = end(peer, who, is_commit=False)
    assert (answer.error_code, answer.producer_epoch) == (ErrorCode.NONE, who.epoch + 1)


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("next_is_commit", [True, False])
def test_an_end_that_comes_late_does_not_decide_the_next_transaction(
    peer: Peer, other: Peer, is_commit: bool, next_is_commit: bool
) -> None:
    """KAFKA-17754: the first request is lost on its way, its retry is answered, and then it arrives after all."""
    topic = peer.create()
    who = begun(peer, topic)
    answer = end(peer, who, is_commit=is_commit)
    who_next = who._replace(epoch=answer.producer_epoch)
    assert write(peer, who_next, topic) == ErrorCode.NONE
    for late_is_commit in (True, False):
        assert end(other, who, is_commit=late_is_commit).error_code == ErrorCode.PRODUCER_FENCED
        assert end(other, who, FIRST_PROTOCOL_END_VERSION, is_commit=late_is_commit).error_code != ErrorCode.NONE
    assert (stable_end(peer, topic), peer.offset(topic)) == (2, 3), "the next transaction is open"
    assert end(peer, who_next, is_commit=next_is_commit).error_code == ErrorCode.NONE
    assert stable_end(peer, topic) == 4


def test_a_write_that_comes_late_does_not_belong_to_the_next_transaction(peer: Peer, other: Peer) -> None:
    topic = peer.create()
    who = begun(peer, topic)
    who_next = who._replace(epoch=end(peer, who).producer_epoch)
    assert write(other, who, topic, sequence=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert write(peer, who_next, topic) == ErrorCode.NONE
    assert write(other, who, topic, sequence=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert peer.offset(topic) == 3


def test_a_write_after_the_end_is_not_taken_in_the_first_version_of_the_protocol(peer: Peer) -> None:
    """What would belong to no transaction would hold readers back for ever (KAFKA-14402)."""
    topic, who = peer.create(), init(peer)
    add_partitions(peer, who, {topic: [0]})
    assert write(peer, who, topic, version=FIRST_PROTOCOL_PRODUCE_VERSION) == ErrorCode.NONE
    assert end(peer, who, FIRST_PROTOCOL_END_VERSION).error_code == ErrorCode.NONE
    for version in (FIRST_PROTOCOL_PRODUCE_VERSION - 1, FIRST_PROTOCOL_PRODUCE_VERSION):
        code = write(peer, who, topic, sequence=1, version=version)
        is_newer = version == FIRST_PROTOCOL_PRODUCE_VERSION
        assert code == (ErrorCode.TRANSACTION_ABORTABLE if is_newer else ErrorCode.INVALID_TXN_STATE)
    assert stable_end(peer, topic) == peer.offset(topic) == 2
