"""LeaveGroup."""

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from logbrook.protocol.messages.join_group import JoinGroupResponse
from logbrook.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from tests.unit.server.handlers.group_kit import REQUESTS_MAX, join_request, stable_member
from tests.unit.server.handlers.kit import Peer, distinct_versions, fresh

SEVERAL_SINCE = 3
ONE_STEP_JOIN = 3


def leave(peer: Peer, group: str, *members: MemberIdentity, version: int | None = None) -> LeaveGroupResponse:
    return peer.ask(LeaveGroupRequest(group_id=group, members=members), LeaveGroupResponse, version)


def leave_alone(peer: Peer, group: str, member_id: str, version: int) -> ErrorCode:
    """Remove a single member and return its error code, in any version."""
    if version < SEVERAL_SINCE:
        request = LeaveGroupRequest(group_id=group, member_id=member_id)
        return ErrorCode(peer.ask(request, LeaveGroupResponse, version).error_code)
    answer = leave(peer, group, MemberIdentity(member_id=member_id), version=version)
    assert answer.error_code == ErrorCode.NONE
    (member,) = answer.members
    assert member.member_id == member_id
    return ErrorCode(member.error_code)


def members_of(peer: Peer, group: str) -> list[str]:
    (described,) = peer.ask(DescribeGroupsRequest(groups=[group]), DescribeGroupsResponse, 5).groups
    return [member.member_id for member in described.members]


@distinct_versions(LeaveGroupRequest)
def test_a_member_leaves(peer: Peer, version: int) -> None:
    group = fresh("group")
    member = stable_member(peer, group)
    assert members_of(peer, group) == [member.id]
    assert leave_alone(peer, group, member.id, version) is ErrorCode.NONE
    assert members_of(peer, group) == []


@distinct_versions(LeaveGroupRequest)
def test_a_rebalance_that_waited_for_the_member_continues(peer: Peer, other: Peer, version: int) -> None:
    group = fresh("group")
    member = stable_member(peer, group)
    waiting = other.send(join_request(group), JoinGroupResponse, ONE_STEP_JOIN)
    others = (members_of(peer, group) for _ in range(REQUESTS_MAX))
    assert next(members for members in others if len(members) == 2)[0] == member.id
    assert leave_alone(peer, group, member.id, version) is ErrorCode.NONE
    joined = other.receive(waiting)
    assert joined.error_code == ErrorCode.NONE
    assert [member.member_id for member in joined.members] == [joined.member_id]


@distinct_versions(LeaveGroupRequest)
def test_an_unknown_member_cannot_leave(peer: Peer, version: int) -> None:
    group = fresh("group")
    member = stable_member(peer, group)
    assert leave_alone(peer, group, "stranger", version) is ErrorCode.UNKNOWN_MEMBER_ID
    assert leave_alone(peer, fresh("group"), member.id, version) is ErrorCode.UNKNOWN_MEMBER_ID
    assert members_of(peer, group) == [member.id]


@distinct_versions(LeaveGroupRequest)
def test_a_group_has_a_name(peer: Peer, version: int) -> None:
    request = LeaveGroupRequest(group_id="", member_id="someone", members=[MemberIdentity(member_id="someone")])
    assert peer.ask(request, LeaveGroupResponse, version).error_code == ErrorCode.INVALID_GROUP_ID


@distinct_versions(LeaveGroupRequest, first=SEVERAL_SINCE)
def test_several_members_are_removed_each_with_its_own_error_code(peer: Peer, version: int) -> None:
    group = fresh("group")
    member = stable_member(peer, group, instance_id="one")
    answer = leave(
        peer,
        group,
        MemberIdentity(member_id="stranger"),
        MemberIdentity(member_id="predecessor", group_instance_id="one"),
        MemberIdentity(group_instance_id="one"),
        version=version,
    )
    assert answer.error_code == ErrorCode.NONE
    assert [(member.member_id, member.group_instance_id, member.error_code) for member in answer.members] == [
        ("stranger", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("predecessor", "one", ErrorCode.FENCED_INSTANCE_ID),
        ("", "one", ErrorCode.NONE),
    ]
    assert member.id not in members_of(peer, group)


@distinct_versions(LeaveGroupRequest, first=SEVERAL_SINCE)
def test_an_empty_list_of_members_is_accepted(peer: Peer, version: int) -> None:
    answer = leave(peer, fresh("group"), version=version)
    assert (answer.error_code, answer.members) == (ErrorCode.NONE, [])
