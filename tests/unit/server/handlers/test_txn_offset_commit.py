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
from tests.unit.server.handlers.kit import Peer, distinct_versions, fresh
from tests.unit.server.handlers.transaction_kit import ADDS_THE_GROUP_SINCE, commit_in, end, init

MEMBERS_SINCE = 3
METADATA_BYTES_MAX = 4096


def stable_offset(peer: Peer, group: str, topic: str) -> tuple[int, int]:
    """Return the error code and the offset of a fetch that requires stable offsets."""
    wanted = OffsetFetchRequestGroup(
        group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    )
    request = OffsetFetchRequest(groups=[wanted], require_stable=True)
    (answer,) = peer.ask(request, OffsetFetchResponse, NAMES_VERSION).groups
    (partition,) = answer.topics[0].partitions
    return partition.error_code, partition.committed_offset


@distinct_versions(TxnOffsetCommitRequest)
def test_offsets_count_with_their_transaction(peer: Peer, version: int) -> None:
    identity, group, topic = init(peer), fresh("group"), peer.create(partitions=2)
    assert commit_in(peer, identity, group, {topic: {0: 5, 1: 7}}, version) == [[0, 0]]
    assert committed(peer, group, topic) == -1
    assert end(peer, identity).error_code == ErrorCode.NONE
    assert (committed(peer, group, topic), committed(peer, group, topic, 1)) == (5, 7)


@distinct_versions(TxnOffsetCommitRequest)
def test_offsets_of_an_aborted_transaction_never_were(peer: Peer, version: int) -> None:
    identity, group, topic = init(peer), fresh("group"), peer.create()
    commit(peer, group, topic, 3)
    assert commit_in(peer, identity, group, {topic: {0: 5}}, version) == [[0]]
    assert end(peer, identity, is_commit=False).error_code == ErrorCode.NONE
    assert (committed(peer, group, topic), stable_offset(peer, group, topic)) == (3, (ErrorCode.NONE, 3))


@pytest.mark.parametrize("is_commit", [True, False])
def test_require_stable_is_refused_until_the_transaction_ends(peer: Peer, is_commit: bool) -> None:
    identity, group, topic = init(peer), fresh("group"), peer.create()
    commit(peer, group, topic, 3)
    commit_in(peer, identity, group, {topic: {0: 5}}, ADDS_THE_GROUP_SINCE)
    assert stable_offset(peer, group, topic) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert committed(peer, group, topic) == 3
    end(peer, identity, is_commit=is_commit)
    assert stable_offset(peer, group, topic) == (ErrorCode.NONE, 5 if is_commit else 3)


@distinct_versions(TxnOffsetCommitRequest)
def test_unknown_partitions_are_refused_and_the_others_are_committed(peer: Peer, version: int) -> None:
    identity, group, topic = init(peer), fresh("group"), peer.create()
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    codes = commit_in(peer, identity, group, {"nobody": {0: 1}, topic: {0: 5, 1: 6, -1: 7}}, version)
    assert codes == [[unknown], [ErrorCode.NONE, unknown, unknown]]
    end(peer, identity)
    assert committed(peer, group, topic) == 5


@distinct_versions(TxnOffsetCommitRequest, first=MEMBERS_SINCE)
def test_only_a_member_of_this_generation_commits_for_its_group(peer: Peer, version: int) -> None:
    identity, group, topic = init(peer), fresh("group"), peer.create()
    member = stable_member(peer, group)
    for stranger, code in (
        (Member("stranger", member.generation), ErrorCode.UNKNOWN_MEMBER_ID),
        (Member(member.id, member.generation - 1), ErrorCode.ILLEGAL_GENERATION),
        (Member(member.id, member.generation + 1), ErrorCode.ILLEGAL_GENERATION),
    ):
        assert commit_in(peer, identity, group, {topic: {0: 5}}, version, member=stranger) == [[code]]
    assert commit_in(peer, identity, group, {topic: {0: 5}}, version, member=member) == [[0]]
    end(peer, identity)
    assert committed(peer, group, topic) == 5


@distinct_versions(TxnOffsetCommitRequest, first=MEMBERS_SINCE)
def test_a_static_member_that_was_replaced_is_fenced(peer: Peer, version: int) -> None:
    identity, group, topic = init(peer), fresh("group"), peer.create()
    member = stable_member(peer, group, instance_id="one")
    predecessor = Member("predecessor", member.generation)
    codes = commit_in(peer, identity, group, {topic: {0: 5}}, version, member=predecessor, instance_id="one")
    assert codes == [[ErrorCode.FENCED_INSTANCE_ID]]


@distinct_versions(TxnOffsetCommitRequest)
def test_a_producer_that_was_replaced_commits_nothing(peer: Peer, version: int) -> None:
    zombie, group, topic = init(peer), fresh("group"), peer.create()
    init(peer, zombie.transactional_id)
    ((code,),) = commit_in(peer, zombie, group, {topic: {0: 5}}, version)
    assert code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert committed(peer, group, topic) == -1


@distinct_versions(TxnOffsetCommitRequest)
def test_an_empty_group_id_and_an_unknown_producer_are_refused(peer: Peer, version: int) -> None:
    identity, group, topic = init(peer), fresh("group"), peer.create()
    assert commit_in(peer, identity, "", {topic: {0: 5}}, version) == [[ErrorCode.INVALID_GROUP_ID]]
    stranger = identity._replace(transactional_id="nobody")
    assert commit_in(peer, stranger, group, {topic: {0: 5}}, version) == [[ErrorCode.INVALID_PRODUCER_ID_MAPPING]]


@distinct_versions(TxnOffsetCommitRequest)
def test_a_note_has_a_largest_size(peer: Peer, version: int) -> None:
    identity, group, topic = init(peer), fresh("group"), peer.create()
    note = "x" * (METADATA_BYTES_MAX + 1)
    codes = commit_in(peer, identity, group, {topic: {0: 5}}, version, metadata=note)
    assert codes == [[ErrorCode.OFFSET_METADATA_TOO_LARGE]]


@pytest.mark.parametrize("version", range(ADDS_THE_GROUP_SINCE))
def test_a_group_that_was_not_added_is_refused_in_the_first_version_of_the_protocol(peer: Peer, version: int) -> None:
    identity, group, topic = init(peer), fresh("group"), peer.create()
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    request = TxnOffsetCommitRequest(
        transactional_id=identity.transactional_id,
        group_id=group,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    (answer,) = peer.ask(request, TxnOffsetCommitResponse, version).topics
    assert answer.partitions[0].error_code == ErrorCode.INVALID_TXN_STATE
    assert committed(peer, group, topic) == -1


@distinct_versions(TxnOffsetCommitRequest)
def test_a_commit_without_offsets_is_accepted(peer: Peer, version: int) -> None:
    assert commit_in(peer, init(peer), fresh("group"), {}, version) == []
