"""AlterPartitionReassignments: move partitions to other brokers (KIP-455).

This broker is the only one, so the only assignment that is possible is the one that every partition has. To assign it
again succeeds and changes nothing. Nothing is ever being moved, so there is no reassignment that could be cancelled.
"""

from logbrook.model import TopicPartition
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.errors import RequestRefusedError, errors_in
from logbrook.server.services import Services


def handle(
    services: Services, request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[_reassign(services, topic.name, partition) for partition in topic.partitions],
            )
            for topic in request.topics
        ],
    )


API = Api(AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, handle)


def _reassign(services: Services, topic: str, wanted: ReassignablePartition) -> ReassignablePartitionResponse:
    response = ReassignablePartitionResponse(partition_index=wanted.partition_index)
    with errors_in(response):
        services.topics.check_partition(TopicPartition(topic, wanted.partition_index))
        if wanted.replicas is None:
            raise RequestRefusedError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "this partition is not being moved")
        _check_replicas(services.config.node_id, list(wanted.replicas))
    return response


def _check_replicas(node_id: int, replicas: list[int]) -> None:
    """Raises RequestRefusedError unless the replicas are this broker."""
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
