"""ElectLeaders: make the preferred replica the leader, or elect an unclean leader, which may lose records.

Without a list of partitions, all of them are meant, and as in Kafka those that need no election are left out. A single
node leads every partition, so no election is ever needed.
"""

from collections.abc import Iterable, Iterator

from logbrook.core.acls import AclOperation
from logbrook.model import LogbrookError, TopicPartition
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.errors import RequestRefusedError, report_error
from logbrook.server.services import Services

_PREFERRED, _UNCLEAN = 0, 1


async def handle(services: Services, request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    refusal = services.authorizer.cluster_refusal(context, AclOperation.ALTER)
    if refusal is not None:
        return _refused(request, refusal.code)
    is_known = request.election_type in (_PREFERRED, _UNCLEAN)
    results: list[ReplicaElectionResult] = []
    for name, numbers in _wanted(services, request):
        elected = [await _elect(services, TopicPartition(name, number), request.election_type) for number in numbers]
        if request.topic_partitions is None:
            elected = [result for result in elected if result.error_code != ErrorCode.ELECTION_NOT_NEEDED]
        if elected or request.topic_partitions is not None:
            results.append(ReplicaElectionResult(topic=name, partition_result=elected))
    return ElectLeadersResponse(
        error_code=ErrorCode.NONE if is_known else ErrorCode.INVALID_REQUEST, replica_election_results=results
    )


API = Api(ElectLeadersRequest, ElectLeadersResponse, handle)


def _refused(request: ElectLeadersRequest, code: ErrorCode) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=number, error_code=code) for number in dict.fromkeys(topic.partitions)
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def _wanted(services: Services, request: ElectLeadersRequest) -> Iterator[tuple[str, Iterable[int]]]:
    if request.topic_partitions is not None:
        yield from ((topic.topic, dict.fromkeys(topic.partitions)) for topic in request.topic_partitions)
    elif services.cluster_admin is not None:
        topics = [topic for topic in services.topics.metadata.topics.values() if not topic.is_hidden]
        yield from ((topic.name, range(topic.partition_count)) for topic in topics)


async def _elect(services: Services, partition: TopicPartition, election_type: int) -> PartitionResult:
    result = PartitionResult(partition_id=partition.partition)
    try:
        if election_type not in (_PREFERRED, _UNCLEAN):
            raise RequestRefusedError(ErrorCode.INVALID_REQUEST, "unknown type of election")
        if services.cluster_admin is None:
            services.topics.check_partition(partition)
            raise RequestRefusedError(ErrorCode.ELECTION_NOT_NEEDED, "the preferred replica is the leader")
        if election_type == _PREFERRED:
            await services.cluster_admin.elect_preferred(partition)
        else:
            await services.cluster_admin.elect_unclean(partition)
    except LogbrookError as error:
        report_error(error, result)
    return result
