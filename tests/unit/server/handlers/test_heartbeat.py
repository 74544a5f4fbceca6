"""Heartbeat."""

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from logbrook.protocol.messages.join_group import JoinGroupResponse
from tests.unit.server.handlers.group_kit import REQUESTS_MAX, join_request, stable_member
from tests.unit.server.handlers.kit import Peer, distinct_versions, fresh

INSTANCES_SINCE = 3


def beat(
    peer: Peer, group: str, generation: int, member_id: str, version: int, instance_id: str | None = None
) -> ErrorCode:
    request = HeartbeatRequest(
        group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance_id
    )
    return ErrorCode(peer.ask(request, HeartbeatResponse, version).error_code)


@distinct_versions(HeartbeatRequest)
def test_a_heartbeat_of_a_member_succeeds(peer: Peer, version: int) -> None:
    group = fresh("group")
    member = stable_member(peer, group)
    assert beat(peer, group, member.generation, member.id, version) is ErrorCode.NONE


@distinct_versions(HeartbeatRequest)
def test_an_unknown_member_is_refused(peer: Peer, version: int) -> None:
    group = fresh("group")
    member = stable_member(peer, group)
    assert beat(peer, group, member.generation, "stranger", version) is ErrorCode.UNKNOWN_MEMBER_ID
    assert beat(peer, fresh("group"), member.generation, member.id, version) is ErrorCode.UNKNOWN_MEMBER_ID
    assert beat(peer, group, member.generation + 1, member.id, version) is ErrorCode.ILLEGAL_GENERATION
    assert beat(peer, "", member.generation, member.id, version) is ErrorCode.INVALID_GROUP_ID


@distinct_versions(HeartbeatRequest)
def test_a_member_learns_that_others_want_to_join(peer: Peer, other: Peer, version: int) -> None:
    group = fresh("group")
    member = stable_member(peer, group)
    other.send(join_request(group), JoinGroupResponse, 3)
    answers = (beat(peer, group, member.generation, member.id, version) for _ in range(REQUESTS_MAX))
    assert next(code for code in answers if code is not ErrorCode.NONE) is ErrorCode.REBALANCE_IN_PROGRESS


@distinct_versions(HeartbeatRequest, first=INSTANCES_SINCE)
def test_a_static_member_that_was_replaced_is_fenced(peer: Peer, version: int) -> None:
    group = fresh("group")
    member = stable_member(peer, group, instance_id="one")
    assert beat(peer, group, member.generation, member.id, version, "one") is ErrorCode.NONE
    assert beat(peer, group, member.generation, "predecessor", version, "one") is ErrorCode.FENCED_INSTANCE_ID
