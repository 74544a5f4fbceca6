"""ListOffsets: the offset of a timestamp, or of one of the special positions, which are negative timestamps.

A leader without a certain lease may have been deposed: it asks its followers before it tells the end of a log. A reader
that was told an earlier end would miss records that were acknowledged before its request.
"""

import asyncio
from collections.abc import Mapping

from logbrook.core.acls import AclOperation, ResourceType
from logbrook.model import LogbrookError, TopicPartition
from logbrook.model.identifiers import LeaderEpoch, Offset
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from logbrook.server.api import Api, HandlerResult, RequestContext
from logbrook.server.cluster.leading import LeadingReplicas
from logbrook.server.errors import errors_in
from logbrook.server.leader_epoch import check_leader_epoch
from logbrook.server.services import Services
from logbrook.storage.errors import NotCachedError
from logbrook.storage.log import Log
from logbrook.storage.segment import TimestampedOffset

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
# KIP-405: the first offset on local disk. Without tiered storage it is the log start offset.
EARLIEST_LOCAL = -4
# KIP-1005, KIP-1023: positions in tiered storage, which does not exist here: the response has no offset.
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
_READ_COMMITTED = 1
_NONE = -1


def handle(services: Services, request: ListOffsetsRequest, context: RequestContext) -> HandlerResult:
    refusals = _refusals(services, request, context)
    if services.replicas is not None and not services.replicas.membership.is_certain:
        return _list_confirmed(services, request, refusals, services.replicas.leading)
    try:
        with services.cold_reads.cached():
            return _list(services, request, refusals, {})
    except NotCachedError:
        return services.cold_reads.read(lambda: _list(services, request, refusals, {}))


def _refusals(
    services: Services, request: ListOffsetsRequest, context: RequestContext
) -> dict[str, LogbrookError | None]:
    """Return the errors of the topics that the client may not describe."""
    if not services.authorizer.is_enabled:
        return {}
    return {
        topic.name: services.authorizer.refusal(context, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name)
        for topic in request.topics
    }


async def _list_confirmed(
    services: Services,
    request: ListOffsetsRequest,
    refusals: Mapping[str, LogbrookError | None],
    leading: LeadingReplicas,
) -> ListOffsetsResponse:
    """List the offsets when the followers have confirmed that this broker leads."""
    partitions = {
        TopicPartition(topic.name, wanted.partition_index)
        for topic in request.topics
        for wanted in topic.partitions
        if wanted.timestamp not in (EARLIEST, EARLIEST_LOCAL) and refusals.get(topic.name) is None
    }
    errors: dict[TopicPartition, LogbrookError] = {}

    async def confirm(partition: TopicPartition) -> None:
        try:
            await leading.confirm(partition)
        except LogbrookError as error:
            errors[partition] = error

    await asyncio.gather(*map(confirm, sorted(partitions)))
    response: ListOffsetsResponse = await services.cold_reads.read(lambda: _list(services, request, refusals, errors))
    return response


def _list(
    services: Services,
    request: ListOffsetsRequest,
    refusals: Mapping[str, LogbrookError | None],
    errors: Mapping[TopicPartition, LogbrookError],
) -> ListOffsetsResponse:
    """`errors` has those of partitions that this broker may not lead any more."""
    isolation_level = request.isolation_level
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _find_offset(
                        services,
                        partition := TopicPartition(topic.name, wanted.partition_index),
                        wanted,
                        isolation_level,
                        refusals.get(topic.name)
                        or (errors.get(partition) if wanted.timestamp not in (EARLIEST, EARLIEST_LOCAL) else None),
                    )
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


API = Api(ListOffsetsRequest, ListOffsetsResponse, handle)


def _find_offset(
    services: Services,
    partition: TopicPartition,
    wanted: ListOffsetsPartition,
    isolation_level: int,
    error: LogbrookError | None,
) -> ListOffsetsPartitionResponse:
    response = ListOffsetsPartitionResponse(partition_index=partition.partition)
    with errors_in(response):
        if error is not None:
            raise error
        log = services.topics.log(partition)
        current = services.topics.leader_epoch(partition)
        check_leader_epoch(partition, LeaderEpoch(wanted.current_leader_epoch), current)
        if services.replicas is not None:
            services.replicas.leading.check_offset_known(partition)
        _fill(response, log, wanted.timestamp, log.last_stable_offset if isolation_level == _READ_COMMITTED else None)
    return response


def _fill(response: ListOffsetsPartitionResponse, log: Log, timestamp: int, stable_offset: Offset | None) -> None:
    """Set the offset, timestamp and leader epoch of the response. Raises StorageError."""
    end = log.high_watermark if stable_offset is None else stable_offset
    if timestamp >= 0:
        _fill_timestamped(response, log.find_time(timestamp), end)
    elif timestamp == LATEST:
        response.offset = end
        response.leader_epoch = log.epochs.latest
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        response.offset = log.log_start_offset
        epoch = log.epochs.epoch_of(log.log_start_offset)
        response.leader_epoch = _NONE if epoch is None else epoch
    elif timestamp == MAX_TIMESTAMP:
        newest = max((segment.max_timestamp for segment in log.segments if segment.size), default=_NONE)
        _fill_timestamped(response, log.find_time(newest) if newest >= 0 else None, end)
    elif timestamp not in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        response.error_code = ErrorCode.UNSUPPORTED_VERSION


def _fill_timestamped(response: ListOffsetsPartitionResponse, record: TimestampedOffset | None, end: Offset) -> None:
    if record is not None and record.offset < end:
        response.offset, response.timestamp, response.leader_epoch = record
