"""OffsetCommit and OffsetFetch: how far a group has read, in the same place where Kafka's clients keep it.

A client of this protocol joins no group. It commits as Kafka's clients do that assign partitions to themselves, which a
group with members does not take.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from logbrook.core.groups import NO_OFFSET, CommitRequest, CommittedOffset, OffsetToCommit
from logbrook.core.groups.errors import GroupError
from logbrook.model import TopicPartition
from logbrook.protocol.json_requests import OffsetCommit, OffsetFetch
from logbrook.server.metrics.scrape import Observed
from logbrook.server.services import Services
from logbrook.server.topic_lookup import check_partition_exists

_NO_LEADER_EPOCH = -1
_NO_GENERATION = -1


def commit_offset(broker: Observed, request: OffsetCommit) -> Coroutine[Any, Any, dict[str, Any]]:
    """Answered when it is durable. Raises LogbrookError."""
    services = broker.services
    partition = _partition(services, request.topic, request.partition)
    offset = OffsetToCommit(partition, request.offset, _NO_LEADER_EPOCH, request.metadata)
    committed = services.groups.commit(
        CommitRequest(group_id=request.group, member_id="", generation=_NO_GENERATION, offsets=[offset])
    )
    return _committed(committed, request, partition)


async def fetch_offset(broker: Observed, request: OffsetFetch) -> dict[str, Any]:
    """Raises LogbrookError."""
    partition = _partition(broker.services, request.topic, request.partition)
    committed = await committed_offset(broker.services, request.group, partition)
    is_there = committed != NO_OFFSET
    return {
        "group": request.group,
        "topic": request.topic,
        "partition": request.partition,
        "offset": committed.offset if is_there else None,
        "metadata": committed.metadata if is_there else None,
    }


async def committed_offset(services: Services, group_id: str, partition: TopicPartition) -> CommittedOffset:
    """`NO_OFFSET` for none. What was committed before this was asked is waited for. Raises GroupError."""
    if writes := services.groups.writes_under_way([group_id]):
        await asyncio.wait(writes)
    return services.groups.coordinator.fetch_offsets(group_id, [partition])[partition]


async def _committed(
    committed: "asyncio.Future[dict[TopicPartition, GroupError]]", request: OffsetCommit, partition: TopicPartition
) -> dict[str, Any]:
    refused = (await committed).get(partition)
    if refused is not None:
        raise refused
    return {
        "group": request.group,
        "topic": request.topic,
        "partition": request.partition,
        "offset": request.offset,
    }


def _partition(services: Services, topic: str, number: int) -> TopicPartition:
    """Raises TopicNotFoundError or PartitionNotFoundError."""
    partition = TopicPartition(topic, number)
    check_partition_exists(services.topics.metadata.topic(topic), partition)
    return partition
