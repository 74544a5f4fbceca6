"""FindCoordinator."""

import pytest

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from logbrook.testing.broker import Broker
from tests.unit.server.handlers.kit import NODE_ID, Peer, every_version

GROUP, TRANSACTION, SHARE = 0, 1, 2
KEY_TYPES_SINCE = 1
SEVERAL_SINCE = 4


def find(peer: Peer, version: int, *keys: str, key_type: int = GROUP) -> list[Coordinator]:
    if version >= SEVERAL_SINCE:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys)
        return list(peer.ask(request, FindCoordinatorResponse, version).coordinators)
    found = []
    for key in keys:
        request = FindCoordinatorRequest(key=key, key_type=key_type)
        one = peer.ask(request, FindCoordinatorResponse, version)
        assert one.coordinators == ()
        found.append(
            Coordinator(
                key=key,
                node_id=one.node_id,
                host=one.host,
                port=one.port,
                error_code=one.error_code,
                error_message=one.error_message,
            )
        )
    return found


@every_version(FindCoordinatorRequest)
def test_this_broker_looks_after_every_group(broker: Broker, peer: Peer, version: int) -> None:
    found = find(peer, version, "one", "two")
    assert [one.key for one in found] == ["one", "two"]
    for one in found:
        assert (one.error_code, one.error_message, one.node_id) == (ErrorCode.NONE, None, NODE_ID)
        assert f"{one.host}:{one.port}" == broker.bootstrap_servers


@every_version(FindCoordinatorRequest, first=KEY_TYPES_SINCE)
def test_this_broker_looks_after_every_transactional_id(broker: Broker, peer: Peer, version: int) -> None:
    (one,) = find(peer, version, "producer", key_type=TRANSACTION)
    assert (one.error_code, one.error_message, one.node_id) == (ErrorCode.NONE, None, NODE_ID)
    assert f"{one.host}:{one.port}" == broker.bootstrap_servers


@every_version(FindCoordinatorRequest, first=KEY_TYPES_SINCE)
@pytest.mark.parametrize("key_type", [SHARE, 3, -1])
def test_there_are_no_other_coordinators(peer: Peer, version: int, key_type: int) -> None:
    (one,) = find(peer, version, "key", key_type=key_type)
    assert one.error_code == ErrorCode.INVALID_REQUEST
    assert one.error_message


@every_version(FindCoordinatorRequest, first=SEVERAL_SINCE)
def test_who_asks_for_nothing_is_told_nothing(peer: Peer, version: int) -> None:
    assert find(peer, version) == []
