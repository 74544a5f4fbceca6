"""OffsetCommit."""

import pytest

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.join_group import JoinGroupResponse
from logbrook.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from logbrook.testing import MemoryFiles
from tests.unit.server.handler_kit import HandlerShell
from tests.unit.server.handlers.group_kit import Member, commit, committed, join_request, stable_member
from tests.unit.server.handlers.kit import Peer, distinct_versions, fresh

INSTANCES_SINCE = 7
IDS_SINCE = 10
NOBODY = bytes([7]) * 16
SIMPLE = Member("", -1)
METADATA_BYTES_MAX = 4096


def commit_all(
    peer: Peer,
    group: str,
    topics: dict[str, dict[int, int]],
    version: int,
    *,
    member: Member = SIMPLE,
    instance_id: str | None = None,
    metadata: str | None = "",
) -> list[list[int]]:
    """Return the error codes of each partition of each topic. Topics that do not exist have an unknown id."""
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=member.generation,
        member_id=member.id,
        group_instance_id=instance_id,
        retention_time_ms=1,
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                topic_id=peer.topic_id(name) if peer.metadata(name).error_code == ErrorCode.NONE else NOBODY,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=number, committed_offset=offset, committed_metadata=metadata
                    )
                    for number, offset in offsets.items()
                ],
            )
            for name, offsets in topics.items()
        ],
    )
    answer = peer.ask(request, OffsetCommitResponse, version)
    for asked, answered in zip(request.topics, answer.topics, strict=True):
        assert (answered.topic_id == asked.topic_id) == (version >= IDS_SINCE)
        assert answered.name == ("" if version >= IDS_SINCE else asked.name)
        assert [partition.partition_index for partition in answered.partitions] == [
            partition.partition_index for partition in asked.partitions
        ]
    return [[partition.error_code for partition in topic.partitions] for topic in answer.topics]


@distinct_versions(OffsetCommitRequest)
def test_offsets_of_a_consumer_without_membership_are_committed(peer: Peer, version: int) -> None:
    group, name = fresh("group"), peer.create(partitions=2)
    assert commit_all(peer, group, {name: {0: 5, 1: 7}}, version) == [[0, 0]]
    assert (committed(peer, group, name), committed(peer, group, name, 1)) == (5, 7)


@distinct_versions(OffsetCommitRequest)
def test_offsets_of_a_member_are_kept(peer: Peer, version: int) -> None:
    group, name = fresh("group"), peer.create()
    member = stable_member(peer, group)
    assert commit_all(peer, group, {name: {0: 5}}, version, member=member) == [[0]]
    assert committed(peer, group, name) == 5


@distinct_versions(OffsetCommitRequest)
def test_unknown_partitions_are_refused_and_the_others_are_committed(peer: Peer, version: int) -> None:
    group, name = fresh("group"), peer.create()
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= IDS_SINCE else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    codes = commit_all(peer, group, {"nobody": {0: 1, 1: 2}, name: {0: 5, 1: 6, -1: 7}}, version)
    assert codes == [
        [unknown] * 2,
        [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
    ]
    assert committed(peer, group, name) == 5


@distinct_versions(OffsetCommitRequest)
def test_an_error_of_the_coordinator_is_returned_for_every_known_partition(peer: Peer, version: int) -> None:
    group, name = fresh("group"), peer.create(partitions=2)
    member = stable_member(peer, group)
    for stranger, code in (
        (Member("stranger", member.generation), ErrorCode.UNKNOWN_MEMBER_ID),
        (Member(member.id, member.generation + 1), ErrorCode.ILLEGAL_GENERATION),
        (SIMPLE, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        codes = commit_all(peer, group, {name: {0: 5, 1: 6, 2: 7}}, version, member=stranger)
        assert codes == [[code, code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]]
    assert committed(peer, group, name) == -1


@distinct_versions(OffsetCommitRequest, first=INSTANCES_SINCE)
def test_a_static_member_that_was_replaced_is_fenced(peer: Peer, version: int) -> None:
    group, name = fresh("group"), peer.create()
    member = stable_member(peer, group, instance_id="one")
    predecessor = Member("predecessor", member.generation)
    codes = commit_all(peer, group, {name: {0: 5}}, version, member=predecessor, instance_id="one")
    assert codes == [[ErrorCode.FENCED_INSTANCE_ID]]
    assert commit_all(peer, group, {name: {0: 5}}, version, member=member, instance_id="one") == [[0]]


@distinct_versions(OffsetCommitRequest)
@pytest.mark.parametrize("metadata", [None, "", "x" * METADATA_BYTES_MAX])
def test_a_note_is_kept_beside_an_offset(peer: Peer, version: int, metadata: str | None) -> None:
    group, name = fresh("group"), peer.create()
    assert commit_all(peer, group, {name: {0: 5}}, version, metadata=metadata) == [[0]]


@distinct_versions(OffsetCommitRequest)
def test_a_note_has_a_largest_size(peer: Peer, version: int) -> None:
    group, name = fresh("group"), peer.create()
    codes = commit_all(peer, group, {name: {0: 5}}, version, metadata="x" * (METADATA_BYTES_MAX + 1))
    assert codes == [[ErrorCode.OFFSET_METADATA_TOO_LARGE]]
    assert committed(peer, group, name) == -1


@distinct_versions(OffsetCommitRequest)
def test_a_generation_of_a_group_that_does_not_exist_is_refused(peer: Peer, version: int) -> None:
    codes = commit_all(peer, fresh("group"), {peer.create(): {0: 5}}, version, member=Member("someone", 1))
    assert codes == [[ErrorCode.ILLEGAL_GENERATION]]


def test_a_member_may_commit_during_a_rebalance(peer: Peer, other: Peer) -> None:
    group, name = fresh("group"), peer.create()
    member = stable_member(peer, group)
    other.send(join_request(group), JoinGroupResponse, 3)
    assert commit_all(peer, group, {name: {0: 5}}, 9, member=member) == [[0]]


def test_a_commit_without_offsets_is_accepted(peer: Peer) -> None:
    assert commit_all(peer, fresh("group"), {}, 9) == []


def test_committed_offsets_survive_a_restart() -> None:
    files = MemoryFiles()
    with HandlerShell(files=files) as broker, Peer(broker) as peer:
        broker.create("orders")
        for offset in range(5):
            commit(peer, "readers", "orders", offset)
    with HandlerShell(files=files) as broker, Peer(broker) as peer:
        assert committed(peer, "readers", "orders") == 4
