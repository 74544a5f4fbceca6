"""Metadata: which topics there are, and that this broker leads all of their partitions.

A topic that is not there is created when the client allows it and `topics.auto_create` does too.
"""

from collections.abc import Iterator, Sequence

from logbrook.core.metadata import Topic
from logbrook.model import InvalidTopicNameError, LogbrookError, check_topic_name
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from logbrook.protocol.schema import ZERO_UUID
from logbrook.server.api import Api, Call, Handled
from logbrook.server.errors import error_code
from logbrook.server.services import Services

# Before there were ids an answer had to have a name.
_NULL_NAME_SINCE = 12
# In version 0 there was no null, and an empty list asked for everything.
_NULL_FOR_ALL_SINCE = 1


def handle(services: Services, request: MetadataRequest, call: Call) -> Handled:
    wanted = request.topics
    if wanted is None or (not wanted and call.version < _NULL_FOR_ALL_SINCE):
        every = [topic for topic in services.topics.metadata.topics.values() if not topic.is_deleting]
        return _respond(services, [_describe(services, topic) for topic in every])
    # Named twice is asked once; the answer is a thousand times the question.
    wanted = list({(one.topic_id, one.name): one for one in wanted}.values())
    missing = [name for name in _missing(services, wanted) if _may_create(services, request, name)]
    if missing:
        return _create_and_respond(services, missing, wanted, call.version)
    return _respond(services, [_look_up(services, one, call.version) for one in wanted])


API = Api(MetadataRequest, MetadataResponse, handle)


async def _create_and_respond(
    services: Services, missing: list[str], wanted: Sequence[MetadataRequestTopic], version: int
) -> MetadataResponse:
    failed: dict[str | None, ErrorCode] = {}
    for name in missing:
        try:
            await services.topics.create(name, None, {})
        except LogbrookError as error:
            code = error_code(error)
            if code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                failed[name] = code
    topics = [_look_up(services, one, version) for one in wanted]
    for topic in topics:
        topic.error_code = failed.get(topic.name, topic.error_code)
    return _respond(services, topics)


def _missing(services: Services, wanted: Sequence[MetadataRequestTopic]) -> Iterator[str]:
    topics = services.topics.metadata.topics
    return (one.name for one in wanted if one.name is not None and one.topic_id == ZERO_UUID and one.name not in topics)


def _may_create(services: Services, request: MetadataRequest, name: str) -> bool:
    if not (services.config.topics.auto_create and request.allow_auto_topic_creation):
        return False
    try:
        check_topic_name(name)
    except InvalidTopicNameError:
        return False
    return not services.topics.is_internal(name)


def _look_up(services: Services, wanted: MetadataRequestTopic, version: int) -> MetadataResponseTopic:
    metadata = services.topics.metadata
    try:
        if wanted.topic_id != ZERO_UUID:
            return _describe(services, metadata.topic_with_id(wanted.topic_id))
        name = wanted.name or ""
        check_topic_name(name)
        return _describe(services, metadata.topic(name))
    except LogbrookError as error:
        named = wanted.name if version >= _NULL_NAME_SINCE else wanted.name or ""
        return MetadataResponseTopic(error_code=error_code(error), name=named, topic_id=wanted.topic_id)


def _describe(services: Services, topic: Topic) -> MetadataResponseTopic:
    node_id, epoch = services.config.node_id, services.topics.metadata.epoch
    directory = services.topics.directory
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=services.topics.is_internal(topic.name),
        partitions=[
            MetadataResponsePartition(
                # Its record is written, and its log is being made.
                error_code=ErrorCode.NONE if partition in directory else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=partition.partition,
                leader_id=node_id,
                leader_epoch=epoch,
                replica_nodes=[node_id],
                isr_nodes=[node_id],
            )
            for partition in topic.partitions
        ],
    )


def _respond(services: Services, topics: list[MetadataResponseTopic]) -> MetadataResponse:
    node_id, endpoint = services.config.node_id, services.endpoint
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node_id, host=endpoint.host, port=endpoint.port)],
        cluster_id=services.topics.metadata.cluster_id,
        controller_id=node_id,
        topics=topics,
    )
