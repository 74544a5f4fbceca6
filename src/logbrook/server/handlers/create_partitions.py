"""CreatePartitions: increase the number of partitions of topics. It cannot be decreased, which would lose records."""

from collections import Counter

from logbrook.core.acls import AclOperation, ResourceType
from logbrook.core.cluster.placement import ANYWHERE, ReplicaPlacement
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.errors import RequestRefusedError, errors_in
from logbrook.server.services import Services
from logbrook.server.topic_changes import RequestDeadline
from logbrook.server.topic_checks import check_named_once, check_replicas


async def handle(
    services: Services, request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    times_named = Counter(topic.name for topic in request.topics)
    deadline = RequestDeadline(services.loop, request.timeout_ms)
    results = []
    for topic in request.topics:
        result = CreatePartitionsTopicResult(name=topic.name)
        results.append(result)
        with errors_in(result):
            check_named_once(times_named, topic.name)
            services.authorizer.check(context, AclOperation.ALTER, ResourceType.TOPIC, topic.name)
            await services.topics.refresh()
            _check(services, topic)
            placement = ANYWHERE
            if topic.assignments is not None:
                placement = ReplicaPlacement(assignments=[assignment.broker_ids for assignment in topic.assignments])
            await services.topics.add_partitions(
                topic.name,
                topic.count,
                placement,
                only_check=request.validate_only,
                timeout_ms=deadline.remaining_ms(),
            )
    return CreatePartitionsResponse(results=results)


API = Api(CreatePartitionsRequest, CreatePartitionsResponse, handle)


def _check(services: Services, wanted: CreatePartitionsTopic) -> None:
    """Raises TopicNotFoundError or RequestRefusedError."""
    topic = services.topics.metadata.topic(wanted.name)
    if services.topics.is_internal(topic.name):
        # Group and transactional ids are hashed to a partition by their number, and would move to another one.
        raise RequestRefusedError(ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} is internal")
    new_count = wanted.count - topic.partition_count
    if wanted.assignments is None or new_count <= 0:
        return
    if len(wanted.assignments) != new_count:
        raise RequestRefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"the request adds {new_count} partitions but assigns replicas for {len(wanted.assignments)}",
        )
    if services.replicas is None:
        check_replicas(services, (assignment.broker_ids for assignment in wanted.assignments))
