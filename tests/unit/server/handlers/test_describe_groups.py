"""DescribeGroups."""

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from tests.unit.server.handlers.group_kit import commit, join, stable_member
from tests.unit.server.handlers.kit import (
    ALTER_CONFIGS,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    NOT_REQUESTED,
    READ,
    Peer,
    distinct_versions,
    fresh,
    operations,
)

OPERATIONS_SINCE = 3
INSTANCES_SINCE = 4
NOT_FOUND_SINCE = 6


def describe(peer: Peer, *groups: str, version: int | None = None, authorized: bool = False) -> list[DescribedGroup]:
    request = DescribeGroupsRequest(groups=groups, include_authorized_operations=authorized)
    return list(peer.ask(request, DescribeGroupsResponse, version).groups)


@distinct_versions(DescribeGroupsRequest)
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


@distinct_versions(DescribeGroupsRequest)
def test_a_group_without_members_is_empty(peer: Peer, version: int) -> None:
    group = fresh("group")
    commit(peer, group, peer.create(), 5)
    (described,) = describe(peer, group, version=version)
    assert (described.error_code, described.group_state, described.members) == (ErrorCode.NONE, "Empty", [])


@distinct_versions(DescribeGroupsRequest)
def test_a_group_that_waits_for_its_leader_shows_no_shares(peer: Peer, version: int) -> None:
    group = fresh("group")
    member_id = join(peer, group).member_id
    (described,) = describe(peer, group, version=version)
    assert (described.group_state, described.protocol_data) == ("CompletingRebalance", "")
    assert [(member.member_id, member.member_assignment) for member in described.members] == [(member_id, b"")]


@distinct_versions(DescribeGroupsRequest)
def test_a_group_that_does_not_exist_is_dead_and_later_an_error(peer: Peer, version: int) -> None:
    group, known = fresh("group"), fresh("group")
    commit(peer, known, peer.create(), 5)
    described, second = describe(peer, group, known, version=version)
    assert (described.group_id, described.group_state, described.members) == (group, "Dead", [])
    if version >= NOT_FOUND_SINCE:
        assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert group in (described.error_message or "")
    else:
        assert described.error_code == ErrorCode.NONE
    assert (second.error_code, second.error_message) == (ErrorCode.NONE, None)


@distinct_versions(DescribeGroupsRequest, first=OPERATIONS_SINCE)
def test_all_operations_on_a_group_are_authorized_if_they_are_asked_for(peer: Peer, version: int) -> None:
    group, missing = fresh("group"), fresh("group")
    commit(peer, group, peer.create(), 5)
    (described,) = describe(peer, group, version=version)
    assert described.authorized_operations == NOT_REQUESTED
    described, unknown = describe(peer, group, missing, version=version, authorized=True)
    assert operations(described.authorized_operations) == [READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS]
    is_error = unknown.error_code != ErrorCode.NONE
    assert unknown.authorized_operations == (NOT_REQUESTED if is_error else described.authorized_operations)


def test_a_group_is_described_once(peer: Peer) -> None:
    group = fresh("group")
    assert [described.group_id for described in describe(peer, group, group)] == [group]
