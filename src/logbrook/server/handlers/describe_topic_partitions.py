"""DescribeTopicPartitions: topics and their partitions, page by page (KIP-966).

Topics are ordered by name. A full page ends with a cursor, at which the next page begins.
"""

from collections.abc import Iterable

from logbrook.core.acls import AclOperation, ResourceType
from logbrook.core.metadata import Topic
from logbrook.model import LogbrookError, check_topic_name
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.errors import error_code
from logbrook.server.services import Services

# Kafka's max.request.partition.size.limit.
_PARTITIONS_MAX = 2_000


def handle(
    services: Services, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    if not _is_cursor_valid(request):
        code = ErrorCode.INVALID_REQUEST
        return DescribeTopicPartitionsResponse(
            topics=[DescribeTopicPartitionsResponseTopic(name=topic.name, error_code=code) for topic in request.topics]
        )
    names, refused = _names(services, request, context)
    response = _page(services, request, names, context)
    # Kafka has them at the end.
    response.topics = [*response.topics, *refused]
    return response


API = Api(DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, handle)


def _is_cursor_valid(request: DescribeTopicPartitionsRequest) -> bool:
    cursor = request.cursor
    if cursor is None:
        return True
    is_requested = not request.topics or any(topic.name == cursor.topic_name for topic in request.topics)
    return cursor.partition_index >= 0 and is_requested


def _names(
    services: Services, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> tuple[list[str], list[DescribeTopicPartitionsResponseTopic]]:
    """Return the names to describe, and the responses for topics that were named and may not be described."""
    is_for_all = not request.topics
    if is_for_all:
        names: Iterable[str] = (topic.name for topic in services.topics.metadata.topics.values() if not topic.is_hidden)
    else:
        names = {topic.name for topic in request.topics}
    first = "" if request.cursor is None else request.cursor.topic_name
    wanted = sorted(name for name in names if name >= first)
    if not services.authorizer.is_enabled:
        return wanted, []
    allowed = [
        name
        for name in wanted
        if services.authorizer.allows(
            context, AclOperation.DESCRIBE, ResourceType.TOPIC, name, is_audited=not is_for_all
        )
    ]
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    refused = () if is_for_all else sorted(set(wanted) - set(allowed))
    return allowed, [DescribeTopicPartitionsResponseTopic(name=name, error_code=code) for name in refused]


def _page(
    services: Services, request: DescribeTopicPartitionsRequest, names: list[str], context: RequestContext
) -> DescribeTopicPartitionsResponse:
    response = DescribeTopicPartitionsResponse()
    described: list[DescribeTopicPartitionsResponseTopic] = []
    response.topics = described
    remaining = max(1, min(request.response_partition_limit, _PARTITIONS_MAX))
    cursor = request.cursor
    for name in names:
        if remaining == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        first = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        try:
            check_topic_name(name)
            topic = services.topics.metadata.topic(name)
        except LogbrookError as error:
            described.append(DescribeTopicPartitionsResponseTopic(name=name, error_code=error_code(error)))
            continue
        end = min(topic.partition_count, first + remaining)
        described.append(_describe(services, topic, range(first, end), context))
        remaining -= max(0, end - first)
        if end < topic.partition_count:
            response.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
    return response


def _describe(
    services: Services, topic: Topic, numbers: Iterable[int], context: RequestContext
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=services.topics.is_internal(topic.name),
        partitions=[_describe_partition(services, topic, number) for number in numbers],
        topic_authorized_operations=services.authorizer.operations(context, ResourceType.TOPIC, topic.name),
    )


def _describe_partition(services: Services, topic: Topic, number: int) -> DescribeTopicPartitionsResponsePartition:
    view = services.view.partition(topic, number)
    return DescribeTopicPartitionsResponsePartition(
        partition_index=number,
        leader_id=view.leader,
        leader_epoch=view.leader_epoch,
        replica_nodes=view.replicas,
        isr_nodes=view.isr,
        eligible_leader_replicas=view.elr,
        last_known_elr=(),
        offline_replicas=view.offline,
    )
