"""ListGroups."""

import pytest

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from tests.unit.server.handlers.group_kit import commit, stable_member
from tests.unit.server.handlers.kit import Peer, distinct_versions, fresh

STATES_SINCE = 4
TYPES_SINCE = 5


def groups(
    peer: Peer, version: int | None = None, states: tuple[str, ...] = (), types: tuple[str, ...] = ()
) -> dict[str, ListedGroup]:
    answer = peer.ask(ListGroupsRequest(states_filter=states, types_filter=types), ListGroupsResponse, version)
    assert answer.error_code == ErrorCode.NONE
    return {group.group_id: group for group in answer.groups}


@distinct_versions(ListGroupsRequest)
def test_groups_with_members_or_offsets_are_listed(peer: Peer, version: int) -> None:
    live, idle = fresh("group"), fresh("group")
    stable_member(peer, live)
    commit(peer, idle, peer.create(), 5)
    listed = groups(peer, version)
    assert (listed[live].protocol_type, listed[idle].protocol_type) == ("consumer", "")
    if version >= STATES_SINCE:
        assert (listed[live].group_state, listed[idle].group_state) == ("Stable", "Empty")
    if version >= TYPES_SINCE:
        assert {group.group_type for group in listed.values()} == {"classic"}


@distinct_versions(ListGroupsRequest, first=STATES_SINCE)
def test_only_the_states_that_are_asked_for_are_listed(peer: Peer, version: int) -> None:
    live, idle = fresh("group"), fresh("group")
    stable_member(peer, live)
    commit(peer, idle, peer.create(), 5)
    assert {live, idle} & set(groups(peer, version, ("Stable",))) == {live}
    assert {live, idle} & set(groups(peer, version, ("empty", "Dead"))) == {idle}
    assert {live, idle} & set(groups(peer, version, ("Stable", "Empty"))) == {live, idle}
    assert groups(peer, version, ("NoSuchState",)) == {}


@pytest.mark.parametrize(
    ("types", "expected"), [((), 1), (("classic",), 1), (("Classic", "consumer"), 1), (("consumer",), 0), (("x",), 0)]
)
def test_all_groups_are_classic(peer: Peer, types: tuple[str, ...], expected: int) -> None:
    group = fresh("group")
    stable_member(peer, group)
    assert len({group} & set(groups(peer, types=types))) == expected
