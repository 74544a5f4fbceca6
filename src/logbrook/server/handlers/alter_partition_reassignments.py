"""AlterPartitionReassignments: move partitions to other brokers, or cancel that (KIP-455).

A single node has all replicas. To assign them again succeeds and changes nothing, and there is nothing to cancel.
"""

from logbrook.core.acls import AclOperation
from logbrook.model import LogbrookError, TopicPartition
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.errors import RequestRefusedError, report_error
from logbrook.server.services import Services


async def handle(
    services: Services, request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    is_factor_fixed = not request.allow_replication_factor_change
    refusal = services.authorizer.cluster_refusal(context, AclOperation.ALTER)
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    await _reassign(services, topic.name, partition, context, is_factor_fixed=is_factor_fixed)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
    if refusal is not None:
        report_error(refusal, response)
    return response


API = Api(AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, handle)


async def _reassign(
    services: Services,
    topic: str,
    wanted: ReassignablePartition,
    context: RequestContext,
    *,
    is_factor_fixed: bool,
) -> ReassignablePartitionResponse:
    response = ReassignablePartitionResponse(partition_index=wanted.partition_index)
    partition = TopicPartition(topic, wanted.partition_index)
    try:
        services.authorizer.check_cluster(context, AclOperation.ALTER)
        if services.cluster_admin is None:
            services.topics.check_partition(partition)
            _check_single_node(services.config.node_id, wanted)
        else:
            await services.cluster_admin.reassign(partition, wanted.replicas, is_factor_fixed=is_factor_fixed)
    except LogbrookError as error:
        report_error(error, response)
    return response


def _check_single_node(node_id: int, wanted: ReassignablePartition) -> None:
    """Raises RequestRefusedError unless the replicas are this broker."""
    if wanted.replicas is None:
        raise RequestRefusedError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "this partition is not being moved")
    replicas = list(wanted.replicas)
    if replicas == [node_id]:
        return
    others = sorted(set(replicas) - {node_id})
    if not replicas:
        problem = "a partition has at least one replica"
    elif others:
        problem = f"there is no broker {others[0]}; this broker, {node_id}, is the only one"
    else:
        problem = "a broker can have only one replica of a partition"
    raise RequestRefusedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
