"""CreatePartitions: a topic gets more partitions. It never has fewer, because keys would move and records be lost."""

from collections import Counter

from logbrook.model import LogbrookError
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from logbrook.server.api import Api, Call
from logbrook.server.refusals import RefusedError, refuse
from logbrook.server.replica_assignment import check_replicas
from logbrook.server.services import Services


async def handle(services: Services, request: CreatePartitionsRequest, call: Call) -> CreatePartitionsResponse:
    times_named = Counter(topic.name for topic in request.topics)
    results = []
    for topic in request.topics:
        result = CreatePartitionsTopicResult(name=topic.name)
        results.append(result)
        try:
            if times_named[topic.name] > 1:
                raise RefusedError(ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} is in the request twice")
            _check(services, topic)
            await services.topics.add_partitions(topic.name, topic.count, only_check=request.validate_only)
        except LogbrookError as error:
            result.error_code, result.error_message = refuse(services, request, error)
    return CreatePartitionsResponse(results=results)


API = Api(CreatePartitionsRequest, CreatePartitionsResponse, handle)


def _check(services: Services, wanted: CreatePartitionsTopic) -> None:
    """Raises TopicNotFoundError or RefusedError."""
    topic = services.topics.metadata.topic(wanted.name)
    if services.topics.is_internal(topic.name):
        # Groups are spread over the partitions by their number, and would be looked for in other ones.
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} is the broker's own")
    more = wanted.count - topic.partition_count
    if wanted.assignments is None or more <= 0:
        return
    if len(wanted.assignments) != more:
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{more} partitions would be new, and replicas are assigned for {len(wanted.assignments)}",
        )
    check_replicas(services, (one.broker_ids for one in wanted.assignments))
