"""ListPartitionReassignments: the partitions that are moving to other brokers. On a single node there are none."""

from logbrook.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.services import Services


def handle(
    services: Services, request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(topics=[])


API = Api(ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse, handle)
