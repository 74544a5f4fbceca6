"""OffsetCommit."""

from pathlib import Path

import pytest

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.join_group import JoinGroupResponse
from logbrook.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from logbrook.testing.broker import Broker
from tests.unit.server.handlers.group_kit import Member, commit, committed, join_request, stable_member
from tests.unit.server.handlers.kit import Peer, every_version, fresh

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
    """The error codes of each partition of each topic. Topics that are not there have the id of nobody."""
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
        assert [one.partition_index for one in answered.partitions] == [one.partition_index for one in asked.partitions]
    return [[one.error_code for one in topic.partitions] for topic in answer.topics]


@every_version(OffsetCommitRequest)
def test_offsets_of_one_who_is_in_no_group_are_kept(peer: Peer, version: int) -> None:
    group, name = fresh("group"), peer.create(partitions=2)
    assert commit_all(peer, group, {name: {0: 5, 1: 7}}, version) == [[0, 0]]
    assert (committed(peer, group, name), committed(peer, group, name, 1)) == (5, 7)


@every_version(OffsetCommitRequest)
def test_offsets_of_a_member_are_kept(peer: Peer, version: int) -> None:
    group, name = fresh("group"), peer.create()
    member = stable_member(peer, group)
    assert commit_all(peer, group, {name: {0: 5}}, version, member=member) == [[0]]
    assert committed(peer, group, name) == 5


@every_version(OffsetCommitRequest)
def test_what_is_not_there_is_refused_and_the_rest_is_kept(peer: Peer, version: int) -> None:
    group, name = fresh("group"), peer.create()
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= IDS_SINCE else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    codes = commit_all(peer, group, {"nobody": {0: 1, 1: 2}, name: {0: 5, 1: 6, -1: 7}}, version)
    assert codes == [
        [unknown] * 2,
        [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
    ]
    assert committed(peer, group, name) == 5


@every_version(OffsetCommitRequest)
def test_what_the_coordinator_refuses_is_told_for_every_partition_that_is_there(peer: Peer, version: int) -> None:
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


@every_version(OffsetCommitRequest, first=INSTANCES_SINCE)
def test_a_static_member_that_was_replaced_is_fenced(peer: Peer, version: int) -> None:
    group, name = fresh("group"), peer.create()
    member = stable_member(peer, group, instance_id="one")
    predecessor = Member("predecessor", member.generation)
    codes = commit_all(peer, group, {name: {0: 5}}, version, member=predecessor, instance_id="one")
    assert codes == [[ErrorCode.FENCED_INSTANCE_ID]]
    assert commit_all(peer, group, {name: {0: 5}}, version, member=member, instance_id="one") == [[0]]


@every_version(OffsetCommitRequest)
@pytest.mark.parametrize("metadata", [None, "", "x" * METADATA_BYTES_MAX])
def test_a_note_is_kept_beside_an_offset(peer: Peer, version: int, metadata: str | None) -> None:
    group, name = fresh("group"), peer.create()
    assert commit_all(peer, group, {name: {0: 5}}, version, metadata=metadata) == [[0]]


@every_version(OffsetCommitRequest)
def test_a_note_has_a_largest_size(peer: Peer, version: int) -> None:
    group, name = fresh("group"), peer.create()
    codes = commit_all(peer, group, {name: {0: 5}}, version, metadata="x" * (METADATA_BYTES_MAX + 1))
    assert codes == [[ErrorCode.OFFSET_METADATA_TOO_LARGE]]
    assert committed(peer, group, name) == -1


@every_version(OffsetCommitRequest)
def test_a_generation_of_a_group_that_is_not_there_is_refused(peer: Peer, version: int) -> None:
    codes = commit_all(peer, fresh("group"), {peer.create(): {0: 5}}, version, member=Member("someone", 1))
    assert codes == [[ErrorCode.ILLEGAL_GENERATION]]


def test_in_the_middle_of_a_rebalance_a_member_may_still_say_what_it_did(peer: Peer, other: Peer) -> None:
    group, name = fresh("group"), peer.create()
    member = stable_member(peer, group)
    other.send(join_request(group), JoinGroupResponse, 3)
    assert commit_all(peer, group, {name: {0: 5}}, 9, member=member) == [[0]]


def test_nothing_at_all_may_be_committed(peer: Peer) -> None:
    assert commit_all(peer, fresh("group"), {}, 9) == []


def test_what_was_committed_outlives_a_restart(tmp_path: Path) -> None:
    with Broker(["orders"], data=str(tmp_path)) as broker, Peer(broker.bootstrap_servers) as peer:
        for offset in range(5):
            commit(peer, "readers", "orders", offset)
    with Broker(data=str(tmp_path)) as broker, Peer(broker.bootstrap_servers) as peer:
        assert committed(peer, "readers", "orders") == 4
