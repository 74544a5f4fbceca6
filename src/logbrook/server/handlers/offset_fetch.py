"""OffsetFetch: how far groups have read. Null instead of topics asks for all that a group has committed.

Up to version 7 a request is about one group, later ones are about several, and from version 10 on topics have ids.
Whoever wants stable offsets is told to ask again while a transaction is about to commit others (KIP-447). What was
committed before this was asked is waited for, because a client that sends both at once on one connection expects to see
its own commit. Offsets of topics that are not there are not an error: there are none. An id that is not known is one,
because there is no name to look under.
"""

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from logbrook.core.groups import NO_OFFSET, CommittedOffset
from logbrook.core.groups.errors import GroupError
from logbrook.core.metadata import UnknownTopicIdError
from logbrook.model import TopicPartition
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
from logbrook.server.api import Api, Call, Handled
from logbrook.server.refusals import RefusedError, refuse
from logbrook.server.services import Services

_GROUP_ERROR_SINCE = 2
_SEVERAL_GROUPS_SINCE = 8
_TOPIC_IDS_SINCE = 10


class _Offset(NamedTuple):
    """What is answered for a partition."""

    number: int
    committed: CommittedOffset
    code: ErrorCode = ErrorCode.NONE


class _Found(NamedTuple):
    """What is answered for a topic."""

    topic_id: bytes
    name: str
    offsets: list[_Offset]


def handle(services: Services, request: OffsetFetchRequest, call: Call) -> Handled:
    groups = [request.group_id, *(group.group_id for group in request.groups)]
    if writes := services.groups.writes_under_way(groups):
        return _answer_after(writes, services, request, call.version)
    return _answer(services, request, call.version)


API = Api(OffsetFetchRequest, OffsetFetchResponse, handle)


async def _answer_after(
    writes: "list[asyncio.Future[None]]", services: Services, request: OffsetFetchRequest, version: int
) -> OffsetFetchResponse:
    await asyncio.wait(writes)
    return _answer(services, request, version)


def _answer(services: Services, request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
    if version < _SEVERAL_GROUPS_SINCE:
        return _fetch_one(services, request, version)
    responses: dict[str, OffsetFetchResponseGroup] = {}
    repeated = []
    for group in request.groups:
        # What is asked for over and over is answered once, or a small request would make a huge answer.
        if group.group_id in responses:
            error = RefusedError(ErrorCode.INVALID_REQUEST, "each group may be named once in a request")
            code = refuse(services, request, error).code
            repeated.append(OffsetFetchResponseGroup(group_id=group.group_id, error_code=code))
        else:
            responses[group.group_id] = _fetch_group(services, request, group, version)
    return OffsetFetchResponse(groups=[*responses.values(), *repeated])


def _fetch_one(services: Services, request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
    code = ErrorCode.NONE
    try:
        found = _fetch(services, request, request.group_id, request.topics, by_id=False)
    except GroupError as error:
        code = refuse(services, request, error).code
        # In version 1 the partitions are the only place for it.
        found = [] if version >= _GROUP_ERROR_SINCE else _failed(request.topics or (), code)
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=number,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    metadata=committed.metadata,
                    error_code=code,
                )
                for number, committed, code in topic.offsets
            ],
        )
        for topic in found
    ]
    return OffsetFetchResponse(topics=topics, error_code=code)


def _fetch_group(
    services: Services, request: OffsetFetchRequest, group: OffsetFetchRequestGroup, version: int
) -> OffsetFetchResponseGroup:
    try:
        found = _fetch(services, request, group.group_id, group.topics, by_id=version >= _TOPIC_IDS_SINCE)
    except GroupError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=refuse(services, request, error).code)
    topics = [
        OffsetFetchResponseTopics(
            topic_id=topic.topic_id,
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartitions(
                    partition_index=number,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    metadata=committed.metadata,
                    error_code=code,
                )
                for number, committed, code in topic.offsets
            ],
        )
        for topic in found
    ]
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)


def _fetch(
    services: Services,
    request: OffsetFetchRequest,
    group_id: str,
    topics: Iterable[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None,
    *,
    by_id: bool,
) -> list[_Found]:
    """Raises GroupError."""
    if topics is None:
        return _fetch_all(services, request, group_id, by_id=by_id)
    coordinator, metadata = services.groups.coordinator, services.topics.metadata
    found = []
    seen: set[TopicPartition] = set()
    # Also when no topic is asked about: a group that is loading is an error, not an empty answer.
    coordinator.fetch_offsets(group_id, ())
    unstable = _unstable(services, request, group_id)
    for topic in topics:
        name, topic_id = topic.name, ZERO_UUID
        if by_id and isinstance(topic, OffsetFetchRequestTopics):
            topic_id = topic.topic_id
            try:
                name = metadata.topic_with_id(topic_id).name
            except UnknownTopicIdError as error:
                code = refuse(services, request, error).code
                found += _failed([topic], code)
                continue
        asked = dict.fromkeys(TopicPartition(name, number) for number in topic.partition_indexes)
        partitions = [one for one in asked if one not in seen]
        seen.update(partitions)
        offsets = coordinator.fetch_offsets(group_id, partitions)
        found.append(_Found(topic_id, name, [_offset(one, offsets[one], unstable) for one in partitions]))
    return found


def _unstable(services: Services, request: OffsetFetchRequest, group_id: str) -> frozenset[TopicPartition]:
    """The partitions whose offsets are not to be told now."""
    return services.groups.coordinator.unstable(group_id) if request.require_stable else frozenset()


def _offset(partition: TopicPartition, committed: CommittedOffset, unstable: frozenset[TopicPartition]) -> _Offset:
    if partition in unstable:
        return _Offset(partition.partition, NO_OFFSET, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    return _Offset(partition.partition, committed)


def _fetch_all(services: Services, request: OffsetFetchRequest, group_id: str, *, by_id: bool) -> list[_Found]:
    """Raises GroupError. Where topics go by their ids, those that are gone are left out."""
    topics = services.topics.metadata.topics
    by_topic: dict[str, _Found] = {}
    unstable = _unstable(services, request, group_id)
    for partition, committed in services.groups.coordinator.fetch_offsets(group_id, None).items():
        name = partition.topic
        if by_id and name not in topics:
            continue
        found = by_topic.get(name)
        if found is None:
            found = by_topic[name] = _Found(topics[name].id if by_id else ZERO_UUID, name, [])
        found.offsets.append(_offset(partition, committed, unstable))
    return list(by_topic.values())


def _failed(topics: Iterable[OffsetFetchRequestTopic | OffsetFetchRequestTopics], code: ErrorCode) -> list[_Found]:
    return [
        _Found(
            topic.topic_id if isinstance(topic, OffsetFetchRequestTopics) else ZERO_UUID,
            topic.name,
            [_Offset(number, NO_OFFSET, code) for number in topic.partition_indexes],
        )
        for topic in topics
    ]
