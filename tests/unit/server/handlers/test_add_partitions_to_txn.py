"""AddPartitionsToTxn, in the versions that are for clients."""

import pytest

from logbrook.protocol.error_codes import ErrorCode
from tests.unit.server.handlers.kit import Peer
from tests.unit.server.handlers.transaction_kit import (
    ADD_PARTITIONS_VERSION,
    FIRST_PROTOCOL_END_VERSION,
    FIRST_PROTOCOL_PRODUCE_VERSION,
    add_partitions,
    end,
    fenced_code,
    init,
    stable_end,
    write,
)

every_client_version = pytest.mark.parametrize("version", range(ADD_PARTITIONS_VERSION + 1))


@every_client_version
def test_added_partitions_may_be_written_to(peer: Peer, version: int) -> None:
    first, second, identity = peer.create(partitions=2), peer.create(), init(peer)
    added = add_partitions(peer, identity, {first: [0], second: [0]}, version)
    assert added == {(first, 0): ErrorCode.NONE, (second, 0): ErrorCode.NONE}
    for topic in (first, second):
        assert write(peer, identity, topic, version=FIRST_PROTOCOL_PRODUCE_VERSION) == ErrorCode.NONE
    code = write(peer, identity, first, version=FIRST_PROTOCOL_PRODUCE_VERSION, partition=1)
    assert code == ErrorCode.TRANSACTION_ABORTABLE
    assert end(peer, identity, FIRST_PROTOCOL_END_VERSION).error_code == ErrorCode.NONE
    assert stable_end(peer, first) == stable_end(peer, second) == 2
    assert peer.offset(first, partition=1) == 0


@every_client_version
def test_adding_again_changes_nothing(peer: Peer, version: int) -> None:
    topic, identity = peer.create(), init(peer)
    for _ in range(3):
        assert add_partitions(peer, identity, {topic: [0, 0]}, version) == {(topic, 0): ErrorCode.NONE}
    assert end(peer, identity, FIRST_PROTOCOL_END_VERSION).error_code == ErrorCode.NONE
    assert peer.offset(topic) == 1, "one marker"


@every_client_version
def test_all_are_added_or_none(peer: Peer, version: int) -> None:
    topic, identity = peer.create(), init(peer)
    assert add_partitions(peer, identity, {topic: [0, 1, -1], "nobody": [0]}, version) == {
        (topic, 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        (topic, 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (topic, -1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nobody", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    code = write(peer, identity, topic, version=FIRST_PROTOCOL_PRODUCE_VERSION)
    assert code == ErrorCode.TRANSACTION_ABORTABLE


@every_client_version
def test_internal_topics_cannot_be_added_to_a_transaction(peer: Peer, version: int) -> None:
    identity = init(peer)
    added = add_partitions(peer, identity, {"__transaction_state": [0]}, version)
    assert added == {("__transaction_state", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED}


@every_client_version
def test_a_producer_that_was_replaced_adds_nothing(peer: Peer, version: int) -> None:
    topic, zombie = peer.create(), init(peer)
    init(peer, zombie.transactional_id)
    assert add_partitions(peer, zombie, {topic: [0]}, version) == {(topic, 0): fenced_code(version)}


@every_client_version
def test_an_unknown_producer_cannot_add_partitions(peer: Peer, version: int) -> None:
    topic, identity = peer.create(), init(peer)
    for stranger, code in (
        (identity._replace(producer_id=identity.producer_id + 1_000_000), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (identity._replace(transactional_id="nobody"), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (identity._replace(transactional_id=""), ErrorCode.INVALID_REQUEST),
    ):
        assert add_partitions(peer, stranger, {topic: [0]}, version) == {(topic, 0): code}


@every_client_version
def test_a_request_without_partitions_is_accepted(peer: Peer, version: int) -> None:
    assert add_partitions(peer, init(peer), {}, version) == {}
