"""OffsetDelete."""

import pytest

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tests.unit.server.handlers.group_kit import commit, committed, stable_member, subscription
from tests.unit.server.handlers.kit import Peer, fresh


def delete(peer: Peer, group: str, topics: dict[str, list[int]]) -> tuple[ErrorCode, dict[str, dict[int, int]]]:
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=number) for number in numbers]
            )
            for name, numbers in topics.items()
        ],
    )
    answer = peer.ask(request, OffsetDeleteResponse)
    codes = {
        topic.name: {partition.partition_index: partition.error_code for partition in topic.partitions}
        for topic in answer.topics
    }
    return ErrorCode(answer.error_code), codes


def test_an_offset_is_removed_and_others_stay(peer: Peer) -> None:
    group, name = fresh("group"), peer.create(partitions=2)
    commit(peer, group, name, 5)
    commit(peer, group, name, 6, partition=1)
    assert delete(peer, group, {name: [0]}) == (ErrorCode.NONE, {name: {0: ErrorCode.NONE}})
    assert (committed(peer, group, name), committed(peer, group, name, 1)) == (-1, 6)


def test_unknown_partitions_are_refused_and_the_others_are_deleted(peer: Peer) -> None:
    group, name = fresh("group"), peer.create()
    commit(peer, group, name, 5)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert delete(peer, group, {"nobody": [0], name: [0, 1]}) == (
        ErrorCode.NONE,
        {"nobody": {0: unknown}, name: {0: ErrorCode.NONE, 1: unknown}},
    )
    assert committed(peer, group, name) == -1


def test_a_group_that_does_not_exist_has_no_offsets_to_delete(peer: Peer) -> None:
    name = peer.create()
    assert delete(peer, fresh("group"), {name: [0]}) == (ErrorCode.GROUP_ID_NOT_FOUND, {})
    assert delete(peer, "", {name: [0]}) == (ErrorCode.INVALID_GROUP_ID, {})


def test_offsets_of_subscribed_topics_are_not_deleted(peer: Peer) -> None:
    group, read, unread = fresh("group"), peer.create(), peer.create()
    commit(peer, group, read, 5)
    commit(peer, group, unread, 6)
    stable_member(peer, group, metadata=subscription(read))
    assert delete(peer, group, {read: [0], unread: [0]}) == (
        ErrorCode.NONE,
        {read: {0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}, unread: {0: ErrorCode.NONE}},
    )
    assert (committed(peer, group, read), committed(peer, group, unread)) == (5, -1)


@pytest.mark.parametrize("protocol_type", ["connect"])
def test_offsets_of_a_group_with_an_unknown_protocol_type_are_not_deleted(peer: Peer, protocol_type: str) -> None:
    group, name = fresh("group"), peer.create()
    commit(peer, group, name, 5)
    stable_member(peer, group, protocol_type=protocol_type)
    assert delete(peer, group, {name: [0]}) == (ErrorCode.NON_EMPTY_GROUP, {})
    assert committed(peer, group, name) == 5
