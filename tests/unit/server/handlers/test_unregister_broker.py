"""UnregisterBroker on a cluster of one broker."""

import pytest

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from logbrook.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from tests.unit.server.handlers.kit import NODE_ID, Peer


@pytest.mark.parametrize("broker_id", [NODE_ID + 1, -1, 2**31 - 1])
def test_an_unknown_broker_is_not_registered(peer: Peer, broker_id: int) -> None:
    response = peer.ask(UnregisterBrokerRequest(broker_id=broker_id), UnregisterBrokerResponse)
    assert response.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert str(broker_id) in (response.error_message or "")


def test_the_running_broker_stays_registered(peer: Peer) -> None:
    response = peer.ask(UnregisterBrokerRequest(broker_id=NODE_ID), UnregisterBrokerResponse)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert "running" in (response.error_message or "")
    (broker,) = peer.ask(DescribeClusterRequest(), DescribeClusterResponse).brokers
    assert broker.broker_id == NODE_ID
