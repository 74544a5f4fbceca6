"""ElectLeaders: this broker leads every partition, so no election is ever needed.

Without a list of partitions, all of them are meant, and as in Kafka those that need no election are left out.
"""

from logbrook.model import TopicPartition
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.errors import RequestRefusedError, errors_in
from logbrook.server.services import Services

_PREFERRED, _UNCLEAN = 0, 1


def handle(services: Services, request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    is_known = request.election_type in (_PREFERRED, _UNCLEAN)
    return ElectLeadersResponse(
        error_code=ErrorCode.NONE if is_known else ErrorCode.INVALID_REQUEST,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    _elect(services, topic.topic, number, is_known=is_known)
                    for number in dict.fromkeys(topic.partitions)
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


API = Api(ElectLeadersRequest, ElectLeadersResponse, handle)


def _elect(services: Services, topic: str, number: int, *, is_known: bool) -> PartitionResult:
    result = PartitionResult(partition_id=number)
    with errors_in(result):
        if not is_known:
            raise RequestRefusedError(ErrorCode.INVALID_REQUEST, "unknown type of election")
        services.topics.check_partition(TopicPartition(topic, number))
        raise RequestRefusedError(ErrorCode.ELECTION_NOT_NEEDED, "the preferred replica is the leader")
    return result
