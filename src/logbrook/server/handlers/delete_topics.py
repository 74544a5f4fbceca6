"""DeleteTopics: delete topics by name or, from version 6 on, by id. Internal topics cannot be deleted.

The committed offsets of the topic are deleted too, so that a new topic of the same name does not inherit them. Fetches
that wait for its records are completed with an error. A topic that is not deleted within `timeout_ms` is reported as
REQUEST_TIMED_OUT; if its deletion has begun, it continues. Topics above the client's quota of mutations are refused or,
in old versions, delay the client (KIP-599).
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from logbrook.core.acls import AclOperation, ResourceType
from logbrook.core.metadata import MetadataError, Topic, UnknownTopicIdError
from logbrook.model import LogbrookError
from logbrook.model.event_log import event_logger
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from logbrook.protocol.schema import ZERO_UUID
from logbrook.server.api import Api, RequestContext
from logbrook.server.errors import RequestRefusedError, errors_in
from logbrook.server.services import Services
from logbrook.server.topic_changes import RequestDeadline
from logbrook.server.topic_checks import check_named_once

_IDS_SINCE = 6
_REFUSED_BY_QUOTA_SINCE = 5
# Other requests are served after the fetches of so many partitions were woken.
_PARTITIONS_PER_STEP = 1_000

_logger = event_logger(__name__)


async def handle(services: Services, request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    states = request.topics
    if context.version < _IDS_SINCE:
        states = [DeleteTopicState(name=name) for name in request.topic_names]
    topics = await _find_all(services, states, context)
    times_named = Counter(topic.name for topic in topics if isinstance(topic, Topic))
    deadline = RequestDeadline(services.loop, request.timeout_ms)
    quota = services.quotas.mutations(context, _REFUSED_BY_QUOTA_SINCE)
    results = []
    for state, topic in zip(states, topics, strict=True):
        result = DeletableTopicResult(name=state.name, topic_id=state.topic_id)
        results.append(result)
        with errors_in(result):
            if isinstance(topic, _UndeletableTopic):
                result.name = topic.name
                raise topic.refusal
            if isinstance(topic, LogbrookError):
                raise topic
            check_named_once(times_named, topic.name)
            result.name, result.topic_id = topic.name, topic.id
            # Raises at the deadline, before there is a coroutine that would have to be awaited.
            timeout_ms = deadline.remaining_ms()
            quota.take(topic.partition_count)
            await services.topics.run_change(_delete(services, topic), timeout_ms)
    return DeleteTopicsResponse(responses=results, throttle_time_ms=quota.throttle_time_ms)


API = Api(DeleteTopicsRequest, DeleteTopicsResponse, handle)


class _UndeletableTopic(NamedTuple):
    """A topic that the client may not delete. `name` is None if it may not know the name of the topic's id either."""

    name: str | None
    refusal: LogbrookError


async def _find_all(
    services: Services, states: Sequence[DeleteTopicState], context: RequestContext
) -> "list[Topic | LogbrookError | _UndeletableTopic]":
    try:
        await services.topics.refresh()
    except LogbrookError as error:
        return [error] * len(states)
    if services.authorizer.allows_cluster(context, AclOperation.DELETE, is_audited=False):
        return [_find(services, state) for state in states]
    return [_find_authorized(services, state, context) for state in states]


def _find_authorized(
    services: Services, state: DeleteTopicState, context: RequestContext
) -> Topic | LogbrookError | _UndeletableTopic:
    """Find a topic that the client may delete. It does not learn whether one exists that it may not describe."""
    topic, authorizer = _find(services, state), services.authorizer
    if isinstance(topic, RequestRefusedError | UnknownTopicIdError):
        return topic
    name = topic.name if isinstance(topic, Topic) else state.name or ""
    may_describe = authorizer.allows(context, AclOperation.DESCRIBE, ResourceType.TOPIC, name, is_audited=False)
    if may_describe and isinstance(topic, LogbrookError):
        return topic
    operation = AclOperation.DELETE if may_describe or state.name is None else AclOperation.DESCRIBE
    refusal = authorizer.refusal(context, operation, ResourceType.TOPIC, name)
    if refusal is None:
        return topic
    return _UndeletableTopic(name if may_describe or state.name is not None else None, refusal)


def _find(services: Services, state: DeleteTopicState) -> Topic | LogbrookError:
    has_id = state.topic_id != ZERO_UUID
    if state.name is None and not has_id:
        return RequestRefusedError(ErrorCode.INVALID_REQUEST, "a topic needs a name or an id")
    if state.name is not None and has_id:
        return RequestRefusedError(ErrorCode.INVALID_REQUEST, "a topic may have a name or an id, not both")
    metadata = services.topics.metadata
    try:
        return metadata.topic_with_id(state.topic_id) if state.name is None else metadata.topic(state.name)
    except MetadataError as error:
        return error


async def _delete(services: Services, topic: Topic) -> None:
    """Raises RequestRefusedError, TopicNotFoundError or StorageError."""
    if services.topics.is_internal(topic.name):
        raise RequestRefusedError(ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} is internal")
    await services.topics.delete(topic.name, topic.id)
    services.probe.topics.pop(topic.name, None)
    for partition in topic.partitions:
        services.fetch_purgatory.changed(partition)
        if (partition.partition + 1) % _PARTITIONS_PER_STEP == 0:
            await asyncio.sleep(0)
    services.groups.delete_topic_offsets([topic.name])
