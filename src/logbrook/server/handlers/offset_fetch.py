"""OffsetFetch: the committed offsets of groups. Null instead of topics requests all offsets of a group.

Up to version 7 a request has one group, later several; from version 10 on topics have ids. A request for stable offsets
gets UNSTABLE_OFFSET_COMMIT while a transaction may change an offset (KIP-447). The response includes the offset commits
that were received before the request, and is sent when their records are below the high watermark of the group's
partition. A topic that does not exist has no offsets, which is not an error; an unknown topic id is one.
"""

from asyncio import Future
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from logbrook.core.acls import AclOperation, ResourceType
from logbrook.core.coordinator import CoordinatorError
from logbrook.core.groups.messages import NO_OFFSET, FetchedOffset
from logbrook.model import LogbrookError, TopicPartition
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from logbrook.protocol.schema import ZERO_UUID
from logbrook.server.api import Api, HandlerResult, RequestContext
from logbrook.server.errors import error_code
from logbrook.server.services import Services

P = TypeVar("P", OffsetFetchResponsePartition, OffsetFetchResponsePartitions)

_GROUP_ERROR_SINCE = 2
_SEVERAL_GROUPS_SINCE = 8
_TOPIC_IDS_SINCE = 10


class _PartitionOffset(NamedTuple):
    """The response for a partition."""

    number: int
    committed: FetchedOffset
    code: ErrorCode = ErrorCode.NONE


class _TopicOffsets(NamedTuple):
    """The response for a topic."""

    topic_id: bytes
    name: str
    offsets: list[_PartitionOffset]


def handle(services: Services, request: OffsetFetchRequest, context: RequestContext) -> HandlerResult:
    response = _respond(services, request, context)
    pending = services.groups.pending_commits(_group_ids(request))
    return _respond_when_committed(services, request, context, response, pending) if pending else response


API = Api(OffsetFetchRequest, OffsetFetchResponse, handle)


async def _respond_when_committed(
    services: Services,
    request: OffsetFetchRequest,
    context: RequestContext,
    response: OffsetFetchResponse,
    pending: "Sequence[Future[None]]",
) -> OffsetFetchResponse:
    """Return the response when the records of the offset commits in it, `pending`, are committed.

    If that fails, return a new response without them.
    """
    while True:
        try:
            for commit in pending:
                await commit
        except CoordinatorError:
            response = _respond(services, request, context)
            pending = services.groups.pending_commits(_group_ids(request))
        else:
            return response


def _group_ids(request: OffsetFetchRequest) -> list[str]:
    return [request.group_id, *(group.group_id for group in request.groups)]


def _respond(services: Services, request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    if context.version < _SEVERAL_GROUPS_SINCE:
        return _fetch_single_group(services, request, context)
    responses: dict[str, OffsetFetchResponseGroup] = {}
    repeated = []
    for group in request.groups:
        # A repeated group is rejected: it would make a large response of a small request.
        if group.group_id in responses:
            repeated.append(OffsetFetchResponseGroup(group_id=group.group_id, error_code=ErrorCode.INVALID_REQUEST))
        else:
            responses[group.group_id] = _fetch_group(services, request, group, context)
    return OffsetFetchResponse(groups=[*responses.values(), *repeated])


def _fetch_single_group(
    services: Services, request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponse:
    code = ErrorCode.NONE
    try:
        fetched = _fetch(services, request, context, request.group_id, request.topics)
    except LogbrookError as error:
        code = error_code(error)
        # Version 1 has error codes in partitions only.
        fetched = [] if context.version >= _GROUP_ERROR_SINCE else _failed(request.topics or (), code)
    topics = [
        OffsetFetchResponseTopic(name=topic.name, partitions=_partitions(topic, OffsetFetchResponsePartition))
        for topic in fetched
    ]
    return OffsetFetchResponse(topics=topics, error_code=code)


def _fetch_group(
    services: Services, request: OffsetFetchRequest, group: OffsetFetchRequestGroup, context: RequestContext
) -> OffsetFetchResponseGroup:
    try:
        fetched = _fetch(services, request, context, group.group_id, group.topics)
    except LogbrookError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error_code(error))
    topics = [
        OffsetFetchResponseTopics(
            topic_id=topic.topic_id,
            name=topic.name,
            partitions=_partitions(topic, OffsetFetchResponsePartitions),
        )
        for topic in fetched
    ]
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)


def _partitions(topic: _TopicOffsets, response: type[P]) -> list[P]:
    return [
        response(
            partition_index=number,
            committed_offset=committed.offset,
            committed_leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
            error_code=code,
        )
        for number, committed, code in topic.offsets
    ]


def _fetch(
    services: Services,
    request: OffsetFetchRequest,
    context: RequestContext,
    group_id: str,
    topics: Iterable[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None,
) -> list[_TopicOffsets]:
    """Raises CoordinatorError or AuthorizationFailedError."""
    services.authorizer.check(context, AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
    if topics is None:
        return _fetch_all(services, request, context, group_id)
    groups, metadata = services.groups, services.topics.metadata
    fetched = []
    seen: set[TopicPartition] = set()
    # Raises for a group that is loading, even if no topic is requested.
    groups.fetch_offsets(group_id, ())
    unstable = _unstable(services, request, group_id)
    for topic in topics:
        name, topic_id = topic.name, ZERO_UUID
        try:
            if context.version >= _TOPIC_IDS_SINCE and isinstance(topic, OffsetFetchRequestTopics):
                topic_id = topic.topic_id
                name = metadata.topic_with_id(topic_id).name
            services.authorizer.check(context, AclOperation.DESCRIBE, ResourceType.TOPIC, name)
        except LogbrookError as error:
            fetched += _failed([topic], error_code(error))
            continue
        requested = dict.fromkeys(TopicPartition(name, number) for number in topic.partition_indexes)
        partitions = [partition for partition in requested if partition not in seen]
        seen.update(partitions)
        offsets = groups.fetch_offsets(group_id, partitions)
        of_topic = [_partition_offset(partition, offsets[partition], unstable) for partition in partitions]
        fetched.append(_TopicOffsets(topic_id, name, of_topic))
    return fetched


def _unstable(services: Services, request: OffsetFetchRequest, group_id: str) -> frozenset[TopicPartition]:
    """Return the partitions that get UNSTABLE_OFFSET_COMMIT."""
    return services.groups.unstable_partitions(group_id) if request.require_stable else frozenset()


def _partition_offset(
    partition: TopicPartition, committed: FetchedOffset, unstable: frozenset[TopicPartition]
) -> _PartitionOffset:
    if partition in unstable:
        return _PartitionOffset(partition.partition, NO_OFFSET, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    return _PartitionOffset(partition.partition, committed)


def _fetch_all(
    services: Services, request: OffsetFetchRequest, context: RequestContext, group_id: str
) -> list[_TopicOffsets]:
    """Leave out topics that the client may not describe and, in versions with topic ids, deleted ones.

    Raises CoordinatorError.
    """
    topics, by_id = services.topics.metadata.topics, context.version >= _TOPIC_IDS_SINCE
    by_topic: dict[str, _TopicOffsets] = {}
    unstable = _unstable(services, request, group_id)
    for partition, committed in services.groups.fetch_offsets(group_id, None).items():
        name = partition.topic
        if by_id and name not in topics:
            continue
        if not services.authorizer.allows(context, AclOperation.DESCRIBE, ResourceType.TOPIC, name, is_audited=False):
            continue
        if name not in by_topic:
            by_topic[name] = _TopicOffsets(topics[name].id if by_id else ZERO_UUID, name, [])
        by_topic[name].offsets.append(_partition_offset(partition, committed, unstable))
    return list(by_topic.values())


def _failed(
    topics: Iterable[OffsetFetchRequestTopic | OffsetFetchRequestTopics], code: ErrorCode
) -> list[_TopicOffsets]:
    return [
        _TopicOffsets(
            topic.topic_id if isinstance(topic, OffsetFetchRequestTopics) else ZERO_UUID,
            topic.name,
            [_PartitionOffset(number, NO_OFFSET, code) for number in topic.partition_indexes],
        )
        for topic in topics
    ]
