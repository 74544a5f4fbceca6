"""ListPartitionReassignments: the partitions that are moving to other brokers. On a single node there are none."""

from logbrook.core.acls import AclOperation
from logbrook.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.services import Services


def handle(
    services: Services, request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    refusal = services.authorizer.cluster_refusal(context, AclOperation.DESCRIBE)
    if refusal is not None:
        return ListPartitionReassignmentsResponse(error_code=refusal.code, error_message=str(refusal))
    wanted = None
    if request.topics is not None:
        wanted = {(topic.name, number) for topic in request.topics for number in topic.partition_indexes}
    moving: dict[str, list[OngoingPartitionReassignment]] = {}
    for partition, registration in services.cluster_admin.reassignments() if services.cluster_admin else ():
        if wanted is None or (partition.topic, partition.partition) in wanted:
            moving.setdefault(partition.topic, []).append(
                OngoingPartitionReassignment(
                    partition_index=partition.partition,
                    replicas=registration.replicas,
                    # A leader that a cancelled move had added stays until it has handed over.
                    adding_replicas=[
                        replica for replica in registration.adding if replica not in registration.removing
                    ],
                    removing_replicas=registration.removing,
                )
            )
    return ListPartitionReassignmentsResponse(
        topics=[OngoingTopicReassignment(name=name, partitions=partitions) for name, partitions in moving.items()]
    )


API = Api(ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse, handle)
