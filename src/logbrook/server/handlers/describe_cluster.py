"""DescribeCluster: the cluster id, its live brokers, and on request those that are down (KIP-1073)."""

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.cluster_view import BrokerAddress
from logbrook.server.security.authorizer import NOT_REQUESTED
from logbrook.server.services import Services

# KIP-919: endpoint types that a client can request.
BROKERS = 1
CONTROLLERS = 2


def handle(services: Services, request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        is_known = request.endpoint_type == CONTROLLERS
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        message = f"this endpoint is a broker (type {BROKERS}), not of type {request.endpoint_type}"
        return DescribeClusterResponse(error_code=code, error_message=message)
    operations = NOT_REQUESTED
    if request.include_cluster_authorized_operations:
        operations = services.authorizer.cluster_operations(context)
    fenced = services.view.fenced_brokers() if request.include_fenced_brokers else []
    return DescribeClusterResponse(
        cluster_id=services.topics.metadata.cluster_id,
        controller_id=services.view.controller_id,
        brokers=[
            *(_described(broker, is_fenced=False) for broker in services.view.brokers(context.listener)),
            *(_described(broker, is_fenced=True) for broker in fenced),
        ],
        cluster_authorized_operations=operations,
    )


API = Api(DescribeClusterRequest, DescribeClusterResponse, handle)


def _described(broker: BrokerAddress, *, is_fenced: bool) -> DescribeClusterBroker:
    return DescribeClusterBroker(
        broker_id=broker.broker_id, host=broker.host, port=broker.port, rack=broker.rack, is_fenced=is_fenced
    )
