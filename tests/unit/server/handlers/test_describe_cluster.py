"""DescribeCluster."""

import pytest

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from logbrook.protocol.messages.metadata import MetadataRequest, MetadataResponse
from logbrook.testing.broker import Broker
from tests.unit.server.handlers.kit import NODE_ID, Peer, every_version

MIN_INT = -(2**31)
ENDPOINT_TYPES_SINCE = 1


@every_version(DescribeClusterRequest)
def test_there_is_this_broker_and_it_controls_the_cluster(broker: Broker, peer: Peer, version: int) -> None:
    response = peer.ask(DescribeClusterRequest(), DescribeClusterResponse, version)
    (node,) = response.brokers
    assert response.error_code == ErrorCode.NONE
    assert f"{node.host}:{node.port}" == broker.bootstrap_servers
    assert (node.broker_id, node.rack, node.is_fenced) == (NODE_ID, None, False)
    assert response.controller_id == NODE_ID
    assert response.cluster_authorized_operations == MIN_INT
    assert response.cluster_id == peer.ask(MetadataRequest(topics=[]), MetadataResponse).cluster_id


@every_version(DescribeClusterRequest, first=ENDPOINT_TYPES_SINCE)
@pytest.mark.parametrize(
    ("endpoint_type", "code"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_controllers_are_not_told_of_here(peer: Peer, version: int, endpoint_type: int, code: ErrorCode) -> None:
    response = peer.ask(DescribeClusterRequest(endpoint_type=endpoint_type), DescribeClusterResponse, version)
    assert response.error_code == code
    assert response.error_message
    assert response.brokers == []
