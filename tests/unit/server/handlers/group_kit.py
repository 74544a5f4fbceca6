"""Groups for the tests of the handlers: members that join by hand, and offsets."""

from typing import NamedTuple

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from logbrook.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from logbrook.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from logbrook.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tests.unit.server.handlers.kit import Peer

NAMES_VERSION = 9
SESSION_MS = 60_000
# Number of polls for a condition that is about to hold.
REQUESTS_MAX = 10_000


class Member(NamedTuple):
    id: str
    generation: int


def subscription(*topics: str) -> bytes:
    """Return a consumer's subscription for JoinGroup: version 0, the topics, no user data."""
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\x00\x00" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


def join_request(
    group: str,
    member_id: str = "",
    *,
    instance_id: str | None = None,
    metadata: bytes = b"m",
    protocol_type: str = "consumer",
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )


def join(
    peer: Peer,
    group: str,
    version: int | None = None,
    *,
    instance_id: str | None = None,
    metadata: bytes = b"m",
    protocol_type: str = "consumer",
) -> JoinGroupResponse:
    """Join an empty group, with a second request if the first one returns a member id (KIP-394)."""

    def request(member_id: str) -> JoinGroupRequest:
        return join_request(group, member_id, instance_id=instance_id, metadata=metadata, protocol_type=protocol_type)

    answer = peer.ask(request(""), JoinGroupResponse, version)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = peer.ask(request(answer.member_id), JoinGroupResponse, version)
    assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
    return answer


def rejoin_with_another(peer: Peer, group: str, member_id: str, version: int) -> JoinGroupResponse:
    """Rejoin as the leader until another member, whose request may arrive later, has joined."""
    for _ in range(REQUESTS_MAX):
        answer = peer.ask(join_request(group, member_id), JoinGroupResponse, version)
        assert answer.error_code == ErrorCode.NONE
        if len(answer.members) == 2:
            return answer
    raise AssertionError("the other member never came")


def sync(peer: Peer, group: str, member: Member, assignment: bytes = b"a") -> None:
    """Send SyncGroup as the leader, with all partitions for itself."""
    request = SyncGroupRequest(
        group_id=group,
        generation_id=member.generation,
        member_id=member.id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id=member.id, assignment=assignment)],
    )
    assert peer.ask(request, SyncGroupResponse, 4).error_code == ErrorCode.NONE


def stable_member(
    peer: Peer,
    group: str,
    *,
    instance_id: str | None = None,
    metadata: bytes = b"m",
    protocol_type: str = "consumer",
) -> Member:
    """Return the only member of a Stable group."""
    joined = join(peer, group, instance_id=instance_id, metadata=metadata, protocol_type=protocol_type)
    member = Member(joined.member_id, joined.generation_id)
    sync(peer, group, member)
    return member


def commit(peer: Peer, group: str, topic: str, offset: int, *, partition: int = 0, metadata: str | None = "") -> None:
    """Commit without being a member of the group."""
    entry = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_leader_epoch=0, committed_metadata=metadata
    )
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[entry])])
    (answer,) = peer.ask(request, OffsetCommitResponse, NAMES_VERSION).topics
    assert answer.partitions[0].error_code == ErrorCode.NONE


def committed(peer: Peer, group: str, topic: str, partition: int = 0) -> int:
    """Return the committed offset; -1 if there is none."""
    wanted = OffsetFetchRequestGroup(
        group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])]
    )
    (answer,) = peer.ask(OffsetFetchRequest(groups=[wanted]), OffsetFetchResponse, NAMES_VERSION).groups
    assert answer.error_code == ErrorCode.NONE
    return answer.topics[0].partitions[0].committed_offset
