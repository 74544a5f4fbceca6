"""JoinGroup."""

import pytest

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tests.unit.server.handlers.group_kit import join, join_request, rejoin_with_another, stable_member
from tests.unit.server.handlers.kit import Peer, distinct_versions, fresh

MEMBER_ID_FIRST_SINCE = 4
INSTANCES_SINCE = 5
PROTOCOL_TYPE_SINCE = 7
SKIP_ASSIGNMENT_SINCE = 9


def refused(peer: Peer, request: JoinGroupRequest, version: int) -> JoinGroupResponse:
    answer = peer.ask(request, JoinGroupResponse, version)
    assert answer.error_code != ErrorCode.NONE
    assert (answer.generation_id, answer.leader, answer.members) == (-1, "", [])
    assert answer.protocol_name == (None if version >= PROTOCOL_TYPE_SINCE else "")
    return answer


@distinct_versions(JoinGroupRequest)
def test_the_first_member_leads_and_gets_the_members(peer: Peer, version: int) -> None:
    joined = join(peer, fresh("group"), version, metadata=b"what I read")
    assert joined.generation_id == 1
    assert joined.leader == joined.member_id
    assert joined.member_id.startswith("peer-")
    assert joined.protocol_name == "range"
    assert joined.protocol_type == ("consumer" if version >= PROTOCOL_TYPE_SINCE else None)
    assert [(member.member_id, member.metadata) for member in joined.members] == [(joined.member_id, b"what I read")]
    assert not joined.skip_assignment


@distinct_versions(JoinGroupRequest)
def test_a_new_member_first_gets_an_id_where_it_knows_how(peer: Peer, version: int) -> None:
    answer = peer.ask(join_request(fresh("group")), JoinGroupResponse, version)
    if version < MEMBER_ID_FIRST_SINCE:
        assert answer.error_code == ErrorCode.NONE
    else:
        assert (answer.error_code, answer.generation_id) == (ErrorCode.MEMBER_ID_REQUIRED, -1)
        assert answer.member_id.startswith("peer-")


@distinct_versions(JoinGroupRequest, first=INSTANCES_SINCE)
def test_a_static_member_is_known_by_its_instance(peer: Peer, version: int) -> None:
    joined = join(peer, fresh("group"), version, instance_id="one")
    assert [(member.member_id, member.group_instance_id) for member in joined.members] == [(joined.member_id, "one")]


@distinct_versions(JoinGroupRequest, first=INSTANCES_SINCE)
def test_a_static_leader_that_rejoins_skips_the_assignment(peer: Peer, version: int) -> None:
    group = fresh("group")
    member = stable_member(peer, group, instance_id="one")
    back = join(peer, group, version, instance_id="one")
    assert back.generation_id == member.generation
    assert back.member_id != member.id
    if version >= SKIP_ASSIGNMENT_SINCE:
        # KIP-814: it is the leader and gets the members, but makes no assignment.
        assert back.skip_assignment
        assert back.leader == back.member_id
    else:
        assert back.leader == member.id
        assert back.members == []


@distinct_versions(JoinGroupRequest)
def test_a_second_member_joins_when_the_first_has_joined_again(peer: Peer, other: Peer, version: int) -> None:
    group = fresh("group")
    first = join(peer, group, version)
    waiting = other.send(join_request(group), JoinGroupResponse, version)
    if version >= MEMBER_ID_FIRST_SINCE:
        member_id = other.receive(waiting).member_id
        waiting = other.send(join_request(group, member_id), JoinGroupResponse, version)
    leader = rejoin_with_another(peer, group, first.member_id, version)
    second = other.receive(waiting)
    assert (second.error_code, second.generation_id) == (ErrorCode.NONE, leader.generation_id)
    assert second.leader == leader.leader == first.member_id
    assert {member.member_id for member in leader.members} == {first.member_id, second.member_id}
    assert second.members == []


@distinct_versions(JoinGroupRequest)
@pytest.mark.parametrize("timeout_ms", [0, 99, 30 * 60_000 + 1, -1])
def test_a_session_is_neither_too_short_nor_too_long(peer: Peer, version: int, timeout_ms: int) -> None:
    request = join_request(fresh("group"))
    request.session_timeout_ms = timeout_ms
    assert refused(peer, request, version).error_code == ErrorCode.INVALID_SESSION_TIMEOUT


@distinct_versions(JoinGroupRequest)
def test_a_group_has_a_name(peer: Peer, version: int) -> None:
    assert refused(peer, join_request(""), version).error_code == ErrorCode.INVALID_GROUP_ID


@distinct_versions(JoinGroupRequest)
def test_a_member_that_is_not_known_joins_anew(peer: Peer, version: int) -> None:
    answer = refused(peer, join_request(fresh("group"), "stranger"), version)
    assert (answer.error_code, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "stranger")


@distinct_versions(JoinGroupRequest)
def test_members_have_a_protocol_in_common(peer: Peer, other: Peer, version: int) -> None:
    group = fresh("group")
    stable_member(peer, group)
    request = join_request(group)
    request.protocols = [JoinGroupRequestProtocol(name="sticky", metadata=b"")]
    assert refused(other, request, version).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    request.protocols = []
    assert refused(other, request, version).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@distinct_versions(JoinGroupRequest)
def test_the_oldest_version_uses_the_session_timeout_as_rebalance_timeout(peer: Peer, version: int) -> None:
    """Version 0 has no rebalance timeout, and -1 must not be used as one: other members would be removed."""
    request = join_request(fresh("group"))
    request.rebalance_timeout_ms = -1 if version == 0 else 60_000
    answer = peer.ask(request, JoinGroupResponse, version)
    assert answer.error_code == (ErrorCode.NONE if version < MEMBER_ID_FIRST_SINCE else ErrorCode.MEMBER_ID_REQUIRED)
