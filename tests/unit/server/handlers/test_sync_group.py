"""SyncGroup."""

import pytest

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.join_group import JoinGroupResponse
from logbrook.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tests.unit.server.handlers.group_kit import join, join_request, rejoin_with_another
from tests.unit.server.handlers.kit import Peer, distinct_versions, fresh

INSTANCES_SINCE = 3
PROTOCOL_SINCE = 5
ONE_STEP_JOIN = 3


def sync_request(
    group: str,
    member_id: str,
    generation: int = 1,
    *,
    assignments: dict[str, bytes] | None = None,
    instance_id: str | None = None,
    protocol_type: str | None = "consumer",
    protocol_name: str | None = "range",
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        assignments=[
            SyncGroupRequestAssignment(member_id=identity, assignment=assignment)
            for identity, assignment in (assignments or {}).items()
        ],
    )


def sync(peer: Peer, request: SyncGroupRequest, version: int | None = None) -> SyncGroupResponse:
    return peer.ask(request, SyncGroupResponse, version)


@distinct_versions(SyncGroupRequest)
def test_the_leader_assigns_and_gets_its_share(peer: Peer, version: int) -> None:
    group = fresh("group")
    member_id = join(peer, group).member_id
    answer = sync(peer, sync_request(group, member_id, assignments={member_id: b"mine"}), version)
    assert (answer.error_code, answer.assignment) == (ErrorCode.NONE, b"mine")
    expected = ("consumer", "range") if version >= PROTOCOL_SINCE else (None, None)
    assert (answer.protocol_type, answer.protocol_name) == expected


@distinct_versions(SyncGroupRequest)
def test_a_member_waits_for_the_leader(peer: Peer, other: Peer, version: int) -> None:
    group = fresh("group")
    leader = join(peer, group, ONE_STEP_JOIN).member_id
    joining = other.send(join_request(group), JoinGroupResponse, ONE_STEP_JOIN)
    joined = rejoin_with_another(peer, group, leader, ONE_STEP_JOIN)
    member, generation = other.receive(joining).member_id, joined.generation_id
    waiting = other.send(sync_request(group, member, generation), SyncGroupResponse, version)
    shares = {leader: b"leader's", member: b"member's"}
    answer = sync(peer, sync_request(group, leader, generation, assignments=shares), version)
    assert (answer.error_code, answer.assignment) == (ErrorCode.NONE, b"leader's")
    answer = other.receive(waiting)
    assert (answer.error_code, answer.assignment) == (ErrorCode.NONE, b"member's")


@distinct_versions(SyncGroupRequest)
def test_members_and_generations_that_are_not_known_are_refused(peer: Peer, version: int) -> None:
    group = fresh("group")
    member_id = join(peer, group).member_id
    assert sync(peer, sync_request(group, "stranger"), version).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert sync(peer, sync_request(fresh("group"), member_id), version).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert sync(peer, sync_request(group, member_id, 9), version).error_code == ErrorCode.ILLEGAL_GENERATION
    assert sync(peer, sync_request("", member_id), version).error_code == ErrorCode.INVALID_GROUP_ID


@distinct_versions(SyncGroupRequest, first=INSTANCES_SINCE)
def test_a_static_member_that_was_replaced_is_fenced(peer: Peer, version: int) -> None:
    group = fresh("group")
    join(peer, group, instance_id="one")
    answer = sync(peer, sync_request(group, "predecessor", instance_id="one"), version)
    assert answer.error_code == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize(
    ("protocol_type", "protocol_name"),
    [(None, None), (None, "range"), ("consumer", None), ("connect", "range"), ("consumer", "sticky")],
)
def test_a_member_has_to_know_the_protocol(peer: Peer, protocol_type: str | None, protocol_name: str | None) -> None:
    group = fresh("group")
    member_id = join(peer, group).member_id
    request = sync_request(group, member_id, protocol_type=protocol_type, protocol_name=protocol_name)
    answer = sync(peer, request, PROTOCOL_SINCE)
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
