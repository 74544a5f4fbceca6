"""DeleteGroups."""

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from logbrook.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from logbrook.testing import MemoryFiles
from tests.unit.server.handler_kit import HandlerShell
from tests.unit.server.handlers.group_kit import commit, committed, stable_member
from tests.unit.server.handlers.kit import Peer, distinct_versions, fresh


def delete(peer: Peer, *groups: str, version: int | None = None) -> list[tuple[str, ErrorCode]]:
    answer = peer.ask(DeleteGroupsRequest(groups_names=groups), DeleteGroupsResponse, version)
    return [(result.group_id, ErrorCode(result.error_code)) for result in answer.results]


def listed(peer: Peer) -> set[str]:
    return {group.group_id for group in peer.ask(ListGroupsRequest(), ListGroupsResponse).groups}


@distinct_versions(DeleteGroupsRequest)
def test_an_empty_group_is_deleted_with_its_offsets(peer: Peer, version: int) -> None:
    group, name = fresh("group"), peer.create()
    commit(peer, group, name, 5)
    assert delete(peer, group, version=version) == [(group, ErrorCode.NONE)]
    assert group not in listed(peer)
    assert committed(peer, group, name) == -1


@distinct_versions(DeleteGroupsRequest)
def test_each_group_has_its_own_answer(peer: Peer, version: int) -> None:
    live, idle, nobody = fresh("group"), fresh("group"), fresh("group")
    stable_member(peer, live)
    commit(peer, idle, peer.create(), 5)
    assert delete(peer, live, nobody, idle, version=version) == [
        (live, ErrorCode.NON_EMPTY_GROUP),
        (nobody, ErrorCode.GROUP_ID_NOT_FOUND),
        (idle, ErrorCode.NONE),
    ]
    assert {live, idle} & listed(peer) == {live}


def test_a_group_is_deleted_once(peer: Peer) -> None:
    group = fresh("group")
    commit(peer, group, peer.create(), 5)
    assert delete(peer, group, group) == [(group, ErrorCode.NONE)]


def test_a_group_that_was_deleted_does_not_reappear_with_a_restart() -> None:
    files = MemoryFiles()
    with HandlerShell(files=files) as broker, Peer(broker) as peer:
        broker.create("orders")
        commit(peer, "kept", "orders", 4)
        commit(peer, "deleted", "orders", 5)
        delete(peer, "deleted")
    with HandlerShell(files=files) as broker, Peer(broker) as peer:
        assert listed(peer) == {"kept"}
        assert committed(peer, "deleted", "orders") == -1
