"""TxnOffsetCommit, and OffsetFetch while it is not decided."""

import pytest

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from logbrook.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.unit.server.handlers.group_kit import NAMES_VERSION, Member, commit, committed, stable_member
from tests.unit.server.handlers.kit import Peer, every_version, fresh
from tests.unit.server.handlers.transaction_kit import Identity, add_offsets, end, init

MEMBERS_SINCE = 3
ADDS_THE_GROUP_SINCE = 5
SIMPLE = Member("", -1)
METADATA_BYTES_MAX = 4096


def commit_in(
    peer: Peer,
    who: Identity,
    group: str,
    offsets: dict[str, dict[int, int]],
    version: int,
    *,
    member: Member = SIMPLE,
    instance_id: str | None = None,
    metadata: str | None = "",
) -> list[list[int]]:
    """Add the group first where that is needed. The error codes of each partition of each topic."""
    if version < ADDS_THE_GROUP_SINCE:
        add_offsets(peer, who, group)
    request = TxnOffsetCommitRequest(
        transactional_id=who.transactional_id,
        group_id=group,
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        generation_id=member.generation,
        member_id=member.id,
        group_instance_id=instance_id,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=number, committed_offset=offset, committed_metadata=metadata
                    )
                    for number, offset in numbers.items()
                ],
            )
            for name, numbers in offsets.items()
        ],
    )
    answer = peer.ask(request, TxnOffsetCommitResponse, version)
    assert [topic.name for topic in answer.topics] == [*offsets]
    return [[one.error_code for one in topic.partitions] for topic in answer.topics]


def stable_offset(peer: Peer, group: str, topic: str) -> tuple[int, int]:
    """The error code and the offset for one who wants stable offsets."""
    wanted = OffsetFetchRequestGroup(
        group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    )
    request = OffsetFetchRequest(groups=[wanted], require_stable=True)
    (answer,) = peer.ask(request, OffsetFetchResponse, NAMES_VERSION).groups
    (one,) = answer.topics[0].partitions
    return one.error_code, one.committed_offset


@every_version(TxnOffsetCommitRequest)
def test_offsets_count_with_their_transaction(peer: Peer, version: int) -> None:
    who, group, topic = init(peer), fresh("group"), peer.create(partitions=2)
    assert commit_in(peer, who, group, {topic: {0: 5, 1: 7}}, version) == [[0, 0]]
    assert committed(peer, group, topic) == -1
    assert end(peer, who).error_code == ErrorCode.NONE
    assert (committed(peer, group, topic), committed(peer, group, topic, 1)) == (5, 7)


@every_version(TxnOffsetCommitRequest)
def test_offsets_of_an_aborted_transaction_never_were(peer: Peer, version: int) -> None:
    who, group, topic = init(peer), fresh("group"), peer.create()
    commit(peer, group, topic, 3)
    assert commit_in(peer, who, group, {topic: {0: 5}}, version) == [[0]]
    assert end(peer, who, is_commit=False).error_code == ErrorCode.NONE
    assert (committed(peer, group, topic), stable_offset(peer, group, topic)) == (3, (ErrorCode.NONE, 3))


@pytest.mark.parametrize("is_commit", [True, False])
def test_one_who_wants_stable_offsets_is_told_to_wait_for_the_end(peer: Peer, is_commit: bool) -> None:
    who, group, topic = init(peer), fresh("group"), peer.create()
    commit(peer, group, topic, 3)
    commit_in(peer, who, group, {topic: {0: 5}}, ADDS_THE_GROUP_SINCE)
    assert stable_offset(peer, group, topic) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert committed(peer, group, topic) == 3
    end(peer, who, is_commit=is_commit)
    assert stable_offset(peer, group, topic) == (ErrorCode.NONE, 5 if is_commit else 3)


@every_version(TxnOffsetCommitRequest)
def test_what_is_not_there_is_refused_and_the_rest_is_kept(peer: Peer, version: int) -> None:
    who, group, topic = init(peer), fresh("group"), peer.create()
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    codes = commit_in(peer, who, group, {"nobody": {0: 1}, topic: {0: 5, 1: 6, -1: 7}}, version)
    assert codes == [[unknown], [ErrorCode.NONE, unknown, unknown]]
    end(peer, who)
    assert committed(peer, group, topic) == 5


@every_version(TxnOffsetCommitRequest, first=MEMBERS_SINCE)
def test_only_a_member_of_this_generation_commits_for_its_group(peer: Peer, version: int) -> None:
    who, group, topic = init(peer), fresh("group"), peer.create()
    member = stable_member(peer, group)
    for stranger, code in (
        (Member("stranger", member.generation), ErrorCode.UNKNOWN_MEMBER_ID),
        (Member(member.id, member.generation - 1), ErrorCode.ILLEGAL_GENERATION),
        (Member(member.id, member.generation + 1), ErrorCode.ILLEGAL_GENERATION),
    ):
        assert commit_in(peer, who, group, {topic: {0: 5}}, version, member=stranger) == [[code]]
    assert commit_in(peer, who, group, {topic: {0: 5}}, version, member=member) == [[0]]
    end(peer, who)
    assert committed(peer, group, topic) == 5


@every_version(TxnOffsetCommitRequest, first=MEMBERS_SINCE)
def test_a_static_member_that_was_replaced_is_fenced(peer: Peer, version: int) -> None:
    who, group, topic = init(peer), fresh("group"), peer.create()
    member = stable_member(peer, group, instance_id="one")
    predecessor = Member("predecessor", member.generation)
    codes = commit_in(peer, who, group, {topic: {0: 5}}, version, member=predecessor, instance_id="one")
    assert codes == [[ErrorCode.FENCED_INSTANCE_ID]]


@every_version(TxnOffsetCommitRequest)
def test_a_producer_that_was_replaced_commits_nothing(peer: Peer, version: int) -> None:
    zombie, group, topic = init(peer), fresh("group"), peer.create()
    init(peer, zombie.transactional_id)
    ((code,),) = commit_in(peer, zombie, group, {topic: {0: 5}}, version)
    assert code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert committed(peer, group, topic) == -1


@every_version(TxnOffsetCommitRequest)
def test_what_names_no_group_or_no_producer_is_refused(peer: Peer, version: int) -> None:
    who, group, topic = init(peer), fresh("group"), peer.create()
    assert commit_in(peer, who, "", {topic: {0: 5}}, version) == [[ErrorCode.INVALID_GROUP_ID]]
    stranger = who._replace(transactional_id="nobody")
    assert commit_in(peer, stranger, group, {topic: {0: 5}}, version) == [[ErrorCode.INVALID_PRODUCER_ID_MAPPING]]


@every_version(TxnOffsetCommitRequest)
def test_a_note_has_a_largest_size(peer: Peer, version: int) -> None:
    who, group, topic = init(peer), fresh("group"), peer.create()
    note = "x" * (METADATA_BYTES_MAX + 1)
    codes = commit_in(peer, who, group, {topic: {0: 5}}, version, metadata=note)
    assert codes == [[ErrorCode.OFFSET_METADATA_TOO_LARGE]]


@pytest.mark.parametrize("version", range(ADDS_THE_GROUP_SINCE))
def test_a_group_that_was_not_added_is_refused_in_the_first_version_of_the_protocol(peer: Peer, version: int) -> None:
    who, group, topic = init(peer), fresh("group"), peer.create()
    one = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    request = TxnOffsetCommitRequest(
        transactional_id=who.transactional_id,
        group_id=group,
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[one])],
    )
    (answer,) = peer.ask(request, TxnOffsetCommitResponse, version).topics
    assert answer.partitions[0].error_code == ErrorCode.INVALID_TXN_STATE
    assert committed(peer, group, topic) == -1


@every_version(TxnOffsetCommitRequest)
def test_nothing_at_all_may_be_committed(peer: Peer, version: int) -> None:
    assert commit_in(peer, init(peer), fresh("group"), {}, version) == []
