"""DeleteTopics: topics go, by name or, from version 6 on, by id, with all that is in them.

With a topic go the offsets that groups committed for it, so that they do not greet a new topic of the same name.
Those who wait for its records are told. The broker's own topics cannot be deleted.
"""

import logging
from collections import Counter

from logbrook.core.groups.errors import GroupError
from logbrook.core.metadata import MetadataError, Topic
from logbrook.model import LogbrookError
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from logbrook.protocol.schema import ZERO_UUID
from logbrook.server.api import Api, Call
from logbrook.server.refusals import RefusedError, refuse
from logbrook.server.services import Services

_IDS_SINCE = 6

_logger = logging.getLogger(__name__)


async def handle(services: Services, request: DeleteTopicsRequest, call: Call) -> DeleteTopicsResponse:
    states = request.topics
    if call.version < _IDS_SINCE:
        states = [DeleteTopicState(name=name) for name in request.topic_names]
    found = [_find(services, state) for state in states]
    times_named = Counter(topic.name for topic in found if isinstance(topic, Topic))
    results = []
    for state, topic in zip(states, found, strict=True):
        result = DeletableTopicResult(name=state.name, topic_id=state.topic_id)
        results.append(result)
        try:
            if isinstance(topic, LogbrookError):
                raise topic
            if times_named[topic.name] > 1:
                raise RefusedError(ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} is in the request twice")
            result.name, result.topic_id = topic.name, topic.id
            await _delete(services, topic)
        except LogbrookError as error:
            result.error_code, result.error_message = refuse(services, request, error)
    return DeleteTopicsResponse(responses=results)


API = Api(DeleteTopicsRequest, DeleteTopicsResponse, handle)


def _find(services: Services, state: DeleteTopicState) -> Topic | LogbrookError:
    has_id = state.topic_id != ZERO_UUID
    if state.name is None and not has_id:
        return RefusedError(ErrorCode.INVALID_REQUEST, "a topic is named by its name or by its id")
    if state.name is not None and has_id:
        return RefusedError(ErrorCode.INVALID_REQUEST, "a topic is named by its name or by its id, not by both")
    metadata = services.topics.metadata
    try:
        return metadata.topic_with_id(state.topic_id) if state.name is None else metadata.topic(state.name)
    except MetadataError as error:
        return error


async def _delete(services: Services, topic: Topic) -> None:
    """Raises RefusedError, TopicNotFoundError or StorageError."""
    if services.topics.is_internal(topic.name):
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} is the broker's own")
    await services.topics.delete(topic.name, topic.id)
    services.probe.topics.pop(topic.name, None)
    for partition in topic.partitions:
        services.fetch_waits.changed(partition)
    try:
        services.groups.forget_topics([topic.name])
    except GroupError:
        _logger.exception("topic %s is deleted, but what groups committed for it is not", topic.name)
