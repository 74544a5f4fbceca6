"""DescribeCluster."""

import pytest

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from logbrook.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.unit.server.handler_kit import HandlerShell
from tests.unit.server.handlers.kit import (
    ALTER,
    ALTER_CONFIGS,
    CLUSTER_ACTION,
    CREATE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    IDEMPOTENT_WRITE,
    NODE_ID,
    NOT_REQUESTED,
    Peer,
    distinct_versions,
    operations,
)

ENDPOINT_TYPES_SINCE = 1


@distinct_versions(DescribeClusterRequest)
def test_the_cluster_is_this_broker_and_it_is_the_controller(broker: HandlerShell, peer: Peer, version: int) -> None:
    response = peer.ask(DescribeClusterRequest(), DescribeClusterResponse, version)
    (node,) = response.brokers
    assert response.error_code == ErrorCode.NONE
    assert (node.host, node.port) == broker.address
    assert (node.broker_id, node.rack, node.is_fenced) == (NODE_ID, None, False)
    assert response.controller_id == NODE_ID
    assert response.cluster_authorized_operations == NOT_REQUESTED
    assert response.cluster_id == peer.ask(MetadataRequest(topics=[]), MetadataResponse).cluster_id


@distinct_versions(DescribeClusterRequest)
def test_all_operations_on_the_cluster_are_authorized(peer: Peer, version: int) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    response = peer.ask(request, DescribeClusterResponse, version)
    assert operations(response.cluster_authorized_operations) == [
        CREATE,
        ALTER,
        DESCRIBE,
        CLUSTER_ACTION,
        DESCRIBE_CONFIGS,
        ALTER_CONFIGS,
        IDEMPOTENT_WRITE,
    ]


@distinct_versions(DescribeClusterRequest, first=ENDPOINT_TYPES_SINCE)
@pytest.mark.parametrize(
    ("endpoint_type", "code"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_controllers_are_not_described(peer: Peer, version: int, endpoint_type: int, code: ErrorCode) -> None:
    response = peer.ask(DescribeClusterRequest(endpoint_type=endpoint_type), DescribeClusterResponse, version)
    assert response.error_code == code
    assert response.error_message
    assert response.brokers == []
