"""WriteTxnMarkers: an operator aborts a hanging transaction in a partition."""

import pytest

from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.unit.server.handler_kit import HandlerShell
from tests.unit.server.handlers.group_kit import commit, committed
from tests.unit.server.handlers.kit import LATEST, Peer, distinct_versions, fresh
from tests.unit.server.handlers.transaction_kit import (
    ADDS_THE_GROUP_SINCE,
    Identity,
    commit_in,
    end,
    init,
    stable_end,
    write,
)

TRANSACTION_STATE = "__transaction_state"
CONSUMER_OFFSETS = "__consumer_offsets"
COORDINATOR_EPOCH = 1_000


def mark(
    peer: Peer,
    identity: Identity,
    *topics: tuple[str, list[int]],
    is_commit: bool = False,
    coordinator_epoch: int = COORDINATOR_EPOCH,
    version: int | None = None,
) -> list[ErrorCode]:
    marker = WritableTxnMarker(
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        transaction_result=is_commit,
        coordinator_epoch=coordinator_epoch,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=numbers) for name, numbers in topics],
    )
    (result,) = peer.ask(WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse, version).markers
    assert result.producer_id == identity.producer_id
    assert [(topic.name, [part.partition_index for part in topic.partitions]) for topic in result.topics] == [*topics]
    return [ErrorCode(partition.error_code) for topic in result.topics for partition in topic.partitions]


@distinct_versions(WriteTxnMarkersRequest)
def test_an_open_transaction_is_aborted_in_its_partition(broker: HandlerShell, peer: Peer, version: int) -> None:
    topic, identity = peer.create(partitions=2), init(peer)
    assert write(peer, identity, topic, partition=0) == ErrorCode.NONE
    assert write(peer, identity, topic, partition=1) == ErrorCode.NONE
    assert stable_end(peer, topic) == 0
    assert mark(peer, identity, (topic, [0]), version=version) == [ErrorCode.NONE]
    # The record and its marker are decided, and readers of committed records skip the record.
    assert (stable_end(peer, topic), peer.offset(topic, LATEST)) == (2, 2)
    log = broker.services.topics.log(TopicPartition(topic, 0))
    assert [
        (aborted.producer_id, aborted.first_offset)
        for aborted in log.producers.aborted.overlapping(Offset(0), Offset(2))
    ] == [(identity.producer_id, 0)]
    assert stable_end(peer, topic, partition=1) == 0
    assert end(peer, identity).error_code == ErrorCode.NONE
    assert stable_end(peer, topic, partition=1) == 2


def test_offsets_of_the_transaction_are_dropped_with_it(peer: Peer) -> None:
    topic, group, identity = peer.create(), fresh("group"), init(peer)
    commit(peer, group, topic, 5)
    assert commit_in(peer, identity, group, {topic: {0: 7}}, ADDS_THE_GROUP_SINCE) == [[ErrorCode.NONE]]
    assert mark(peer, identity, (CONSUMER_OFFSETS, [0])) == [ErrorCode.NONE]
    assert end(peer, identity).error_code == ErrorCode.NONE
    assert committed(peer, group, topic) == 5


def test_only_the_coordinator_commits(peer: Peer) -> None:
    topic, identity = peer.create(), init(peer)
    assert write(peer, identity, topic) == ErrorCode.NONE
    assert mark(peer, identity, (topic, [0]), is_commit=True) == [ErrorCode.INVALID_TXN_STATE]
    assert stable_end(peer, topic) == 0
    assert end(peer, identity, is_commit=False).error_code == ErrorCode.NONE


def test_a_marker_of_an_older_epoch_is_refused(peer: Peer) -> None:
    topic, identity = peer.create(), init(peer)
    assert write(peer, identity, topic) == ErrorCode.NONE
    following = end(peer, identity)
    assert mark(peer, identity, (topic, [0])) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    identity = identity._replace(epoch=following.producer_epoch)
    assert write(peer, identity, topic) == ErrorCode.NONE
    assert mark(peer, identity, (topic, [0]), coordinator_epoch=-1) == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    assert stable_end(peer, topic) == 2
    assert end(peer, identity).error_code == ErrorCode.NONE


def test_markers_are_refused_for_unknown_partitions_and_internal_topics(peer: Peer) -> None:
    topic, identity = peer.create(), init(peer)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert mark(peer, identity, (topic, [7, 0]), ("nobody", [0])) == [unknown, ErrorCode.NONE, unknown]
    assert mark(peer, identity, (TRANSACTION_STATE, [0])) == [ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (5, -1)])
def test_a_marker_has_a_producer(peer: Peer, producer_id: int, epoch: int) -> None:
    topic = peer.create()
    assert mark(peer, Identity("", producer_id, epoch), (topic, [0])) == [ErrorCode.INVALID_REQUEST]
    assert peer.offset(topic, LATEST) == 0
