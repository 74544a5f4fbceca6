"""DescribeGroups."""

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from tests.unit.server.handlers.group_kit import commit, join, stable_member
from tests.unit.server.handlers.kit import Peer, every_version, fresh

OPERATIONS_SINCE = 3
INSTANCES_SINCE = 4
NOT_FOUND_SINCE = 6
MIN_INT = -(2**31)


def describe(peer: Peer, *groups: str, version: int | None = None, operations: bool = False) -> list[DescribedGroup]:
    request = DescribeGroupsRequest(groups=groups, include_authorized_operations=operations)
    return list(peer.ask(request, DescribeGroupsResponse, version).groups)


@every_version(DescribeGroupsRequest)
def test_a_stable_group_shows_its_members_and_their_shares(peer: Peer, version: int) -> None:
    group = fresh("group")
    member = stable_member(peer, group, instance_id="one", metadata=b"what I read")
    (described,) = describe(peer, group, version=version)
    assert (described.error_code, described.group_id, described.group_state) == (ErrorCode.NONE, group, "Stable")
    assert (described.protocol_type, described.protocol_data) == ("consumer", "range")
    (shown,) = described.members
    assert (shown.member_id, shown.client_id, shown.client_host) == (member.id, "peer", "127.0.0.1")
    assert (shown.member_metadata, shown.member_assignment) == (b"what I read", b"a")
    assert shown.group_instance_id == ("one" if version >= INSTANCES_SINCE else None)


@every_version(DescribeGroupsRequest)
def test_a_group_without_members_is_empty(peer: Peer, version: int) -> None:
    group = fresh("group")
    commit(peer, group, peer.create(), 5)
    (described,) = describe(peer, group, version=version)
    assert (described.error_code, described.group_state, described.members) == (ErrorCode.NONE, "Empty", [])


@every_version(DescribeGroupsRequest)
def test_a_group_that_waits_for_its_leader_shows_no_shares(peer: Peer, version: int) -> None:
    group = fresh("group")
    member_id = join(peer, group).member_id
    (described,) = describe(peer, group, version=version)
    assert (described.group_state, described.protocol_data) == ("CompletingRebalance", "")
    assert [(one.member_id, one.member_assignment) for one in described.members] == [(member_id, b"")]


@every_version(DescribeGroupsRequest)
def test_a_group_that_is_not_there_is_dead_and_later_an_error(peer: Peer, version: int) -> None:
    group, known = fresh("group"), fresh("group")
    commit(peer, known, peer.create(), 5)
    described, other = describe(peer, group, known, version=version)
    assert (described.group_id, described.group_state, described.members) == (group, "Dead", [])
    if version >= NOT_FOUND_SINCE:
        assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert group in (described.error_message or "")
    else:
        assert described.error_code == ErrorCode.NONE
    assert (other.error_code, other.error_message) == (ErrorCode.NONE, None)


@every_version(DescribeGroupsRequest, first=OPERATIONS_SINCE)
def test_nobody_is_told_what_it_may_do(peer: Peer, version: int) -> None:
    (described,) = describe(peer, fresh("group"), version=version, operations=True)
    assert described.authorized_operations == MIN_INT


def test_a_group_is_described_once(peer: Peer) -> None:
    group = fresh("group")
    assert [one.group_id for one in describe(peer, group, group)] == [group]
