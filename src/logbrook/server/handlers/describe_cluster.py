"""DescribeCluster: the brokers there are, which is this one."""

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from logbrook.server.api import Api, Call
from logbrook.server.refusals import RefusedError, refuse
from logbrook.server.services import Services

# KIP-919: whether brokers or controllers are asked about. This is where brokers are told of.
BROKERS = 1
CONTROLLERS = 2


def handle(services: Services, request: DescribeClusterRequest, call: Call) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        is_known = request.endpoint_type == CONTROLLERS
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        error = RefusedError(code, f"this is an endpoint of brokers, not of the type {request.endpoint_type}")
        code, message = refuse(services, request, error)
        return DescribeClusterResponse(error_code=code, error_message=message)
    node_id, endpoint = services.config.node_id, services.endpoint
    return DescribeClusterResponse(
        cluster_id=services.topics.metadata.cluster_id,
        controller_id=node_id,
        brokers=[DescribeClusterBroker(broker_id=node_id, host=endpoint.host, port=endpoint.port)],
    )


API = Api(DescribeClusterRequest, DescribeClusterResponse, handle)
