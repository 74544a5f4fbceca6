"""CreatePartitions: increase the number of partitions of topics. It cannot be decreased, which would lose records.

Partitions above the client's quota of mutations are refused or, in old versions, delay the client (KIP-599).
"""

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

_REFUSED_BY_QUOTA_SINCE = 3


async def handle(
    services: Services, request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    times_named = Counter(topic.name for topic in request.topics)
    deadline = RequestDeadline(services.loop, request.timeout_ms)
    quota = services.quotas.mutations(context, _REFUSED_BY_QUOTA_SINCE)
    results = []
    for topic in request.topics:
        result = CreatePartitionsTopicResult(name=topic.name)
        results.append(result)
        with errors_in(result):
            check_named_once(times_named, topic.name)
            services.authorizer.check(context, AclOperation.ALTER, ResourceType.TOPIC, topic.name)
            await services.topics.refresh()
            new_count = _check(services, topic)
            placement = ANYWHERE
            if topic.assignments is not None:
                placement = ReplicaPlacement(assignments=[assignment.broker_ids for assignment in topic.assignments])
            if not request.validate_only:
                quota.take(new_count)
            await services.topics.add_partitions(
                topic.name,
                topic.count,
                placement,
                only_check=request.validate_only,
                timeout_ms=deadline.remaining_ms(),
            )
    return CreatePartitionsResponse(results=results, throttle_time_ms=quota.throttle_time_ms)


API = Api(CreatePartitionsRequest, CreatePartitionsResponse, handle)


def _check(services: Services, wanted: CreatePartitionsTopic) -> int:
    """Return the number of new partitions, 0 if there would be fewer.

    Raises TopicNotFoundError or RequestRefusedError.
    """
    topic = services.topics.metadata.topic(wanted.name)
    if services.topics.is_internal(topic.name):
        # Group and transactional ids are hashed to a partition by their number, and would move to another one.
        raise RequestRefusedError(ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} is internal")
    new_count = wanted.count - topic.partition_count
    if wanted.assignments is None or new_count <= 0:
        return max(0, new_count)
    if len(wanted.assignments) != new_count:
        raise RequestRefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"the request adds {new_count} partitions but assigns replicas for {len(wanted.assignments)}",
        )
    if services.replicas is None:
        check_replicas(services, (assignment.broker_ids for assignment in wanted.assignments))
    return new_count
