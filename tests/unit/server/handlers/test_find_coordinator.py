"""FindCoordinator."""

import pytest

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from tests.unit.server.handler_kit import HandlerShell
from tests.unit.server.handlers.kit import NODE_ID, Peer, distinct_versions

GROUP, TRANSACTION, SHARE = 0, 1, 2
KEY_TYPES_SINCE = 1
SEVERAL_SINCE = 4


def find(peer: Peer, version: int, *keys: str, key_type: int = GROUP) -> list[Coordinator]:
    if version >= SEVERAL_SINCE:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys)
        return list(peer.ask(request, FindCoordinatorResponse, version).coordinators)
    coordinators = []
    for key in keys:
        request = FindCoordinatorRequest(key=key, key_type=key_type)
        response = peer.ask(request, FindCoordinatorResponse, version)
        assert response.coordinators == ()
        coordinators.append(
            Coordinator(
                key=key,
                node_id=response.node_id,
                host=response.host,
                port=response.port,
                error_code=response.error_code,
                error_message=response.error_message,
            )
        )
    return coordinators


@distinct_versions(FindCoordinatorRequest)
def test_this_broker_looks_after_every_group(broker: HandlerShell, peer: Peer, version: int) -> None:
    coordinators = find(peer, version, "one", "two")
    assert [coordinator.key for coordinator in coordinators] == ["one", "two"]
    for coordinator in coordinators:
        assert (coordinator.error_code, coordinator.error_message, coordinator.node_id) == (
            ErrorCode.NONE,
            None,
            NODE_ID,
        )
        assert (coordinator.host, coordinator.port) == broker.address


@distinct_versions(FindCoordinatorRequest, first=KEY_TYPES_SINCE)
def test_this_broker_looks_after_every_transactional_id(broker: HandlerShell, peer: Peer, version: int) -> None:
    (coordinator,) = find(peer, version, "producer", key_type=TRANSACTION)
    assert (coordinator.error_code, coordinator.error_message, coordinator.node_id) == (ErrorCode.NONE, None, NODE_ID)
    assert (coordinator.host, coordinator.port) == broker.address


@distinct_versions(FindCoordinatorRequest, first=KEY_TYPES_SINCE)
@pytest.mark.parametrize("key_type", [SHARE, 3, -1])
def test_unknown_coordinator_types_are_refused(peer: Peer, version: int, key_type: int) -> None:
    (coordinator,) = find(peer, version, "key", key_type=key_type)
    assert coordinator.error_code == ErrorCode.INVALID_REQUEST
    assert coordinator.error_message


@distinct_versions(FindCoordinatorRequest, first=SEVERAL_SINCE)
def test_a_request_without_keys_has_an_empty_response(peer: Peer, version: int) -> None:
    assert find(peer, version) == []
