"""DescribeTopicPartitions: topics and their partitions, a page at a time (KIP-966).

Topics come in the order of their names. A page that is full ends with a cursor, which is where the next one begins.
"""

from collections.abc import Iterable

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
from logbrook.server.api import Api, Call
from logbrook.server.refusals import RefusedError, refuse
from logbrook.server.services import Services

# Kafka's max.request.partition.size.limit.
_PARTITIONS_MAX = 2_000


def handle(services: Services, request: DescribeTopicPartitionsRequest, call: Call) -> DescribeTopicPartitionsResponse:
    try:
        _check_cursor(request)
    except RefusedError as error:
        code = refuse(services, request, error).code
        return DescribeTopicPartitionsResponse(
            topics=[DescribeTopicPartitionsResponseTopic(name=one.name, error_code=code) for one in request.topics]
        )
    return _page(services, request, _names(services, request))


API = Api(DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, handle)


def _check_cursor(request: DescribeTopicPartitionsRequest) -> None:
    """Raises RefusedError."""
    cursor = request.cursor
    if cursor is None:
        return
    if cursor.partition_index < 0:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"a cursor cannot be at partition {cursor.partition_index}")
    if request.topics and all(one.name != cursor.topic_name for one in request.topics):
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"the cursor is at {cursor.topic_name!r}, which is not asked for")


def _names(services: Services, request: DescribeTopicPartitionsRequest) -> list[str]:
    if request.topics:
        names: Iterable[str] = {one.name for one in request.topics}
    else:
        names = (topic.name for topic in services.topics.metadata.topics.values() if not topic.is_deleting)
    first = "" if request.cursor is None else request.cursor.topic_name
    return sorted(name for name in names if name >= first)


def _page(
    services: Services, request: DescribeTopicPartitionsRequest, names: list[str]
) -> DescribeTopicPartitionsResponse:
    response = DescribeTopicPartitionsResponse()
    described: list[DescribeTopicPartitionsResponseTopic] = []
    response.topics = described
    left = max(1, min(request.response_partition_limit, _PARTITIONS_MAX))
    cursor = request.cursor
    for name in names:
        if left == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        first = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        try:
            check_topic_name(name)
            topic = services.topics.metadata.topic(name)
        except LogbrookError as error:
            code = refuse(services, request, error).code
            described.append(DescribeTopicPartitionsResponseTopic(name=name, error_code=code))
            continue
        end = min(topic.partition_count, first + left)
        described.append(_describe(services, topic, range(first, end)))
        left -= max(0, end - first)
        if end < topic.partition_count:
            response.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
    return response


def _describe(services: Services, topic: Topic, numbers: Iterable[int]) -> DescribeTopicPartitionsResponseTopic:
    node_id, epoch = services.config.node_id, services.topics.metadata.epoch
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=services.topics.is_internal(topic.name),
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                partition_index=number,
                leader_id=node_id,
                leader_epoch=epoch,
                replica_nodes=[node_id],
                isr_nodes=[node_id],
                eligible_leader_replicas=(),
                last_known_elr=(),
            )
            for number in numbers
        ],
    )
