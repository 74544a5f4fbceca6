"""DeleteRecords: advance the log start offset, to the high watermark if the offset is -1.

In a cluster it is answered when all in-sync replicas have advanced theirs.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from logbrook.config import CleanupPolicy
from logbrook.core.acls import AclOperation, ResourceType
from logbrook.model import LogbrookError, TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from logbrook.server.api import Api, HandlerResult, RequestContext
from logbrook.server.cluster.errors import ReplicationTimedOutError
from logbrook.server.errors import RequestRefusedError, errors_in
from logbrook.server.services import Services
from logbrook.storage.errors import OffsetOutOfRangeError

HIGH_WATERMARK = -1
_NO_LOW_WATERMARK = -1


class _Deletion(NamedTuple):
    """A deletion that followers do not have yet, and its result in the response."""

    partition: TopicPartition
    result: DeleteRecordsPartitionResult
    done: "asyncio.Future[LogbrookError | None]"


def handle(services: Services, request: DeleteRecordsRequest, context: RequestContext) -> HandlerResult:
    topics = []
    waiting: list[_Deletion] = []
    for topic in request.topics:
        results = []
        for wanted in topic.partitions:
            partition = TopicPartition(topic.name, wanted.partition_index)
            result = DeleteRecordsPartitionResult(
                partition_index=wanted.partition_index, low_watermark=_NO_LOW_WATERMARK
            )
            results.append(result)
            with errors_in(result):
                services.authorizer.check(context, AclOperation.DELETE, ResourceType.TOPIC, topic.name)
                result.low_watermark, done = _delete(services, partition, Offset(wanted.offset))
                if done is not None:
                    waiting.append(_Deletion(partition, result, done))
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    response = DeleteRecordsResponse(topics=topics)
    return _wait(response, waiting, max(0, request.timeout_ms) / 1000) if waiting else response


API = Api(DeleteRecordsRequest, DeleteRecordsResponse, handle)


async def _wait(
    response: DeleteRecordsResponse, deletions: Sequence[_Deletion], timeout_s: float
) -> DeleteRecordsResponse:
    """Return the response when the in-sync replicas have the deletions, or have not after the time of the request."""
    try:
        await asyncio.wait([deletion.done for deletion in deletions], timeout=timeout_s)
        for deletion in deletions:
            low_watermark, deletion.result.low_watermark = deletion.result.low_watermark, _NO_LOW_WATERMARK
            with errors_in(deletion.result):
                if not deletion.done.done():
                    raise ReplicationTimedOutError(deletion.partition)
                if (error := deletion.done.result()) is not None:
                    raise error
                deletion.result.low_watermark = low_watermark
    finally:
        for deletion in deletions:
            deletion.done.cancel()
    return response


def _delete(
    services: Services, partition: TopicPartition, offset: Offset
) -> tuple[Offset, "asyncio.Future[LogbrookError | None] | None"]:
    """Return the new log start offset, and a future that ends when the in-sync replicas have it, if they have not.

    Raises TopicNotFoundError, NotLeaderError, RequestRefusedError or StorageError.
    """
    log = services.topics.log(partition)
    if services.topics.is_internal(partition.topic):
        raise RequestRefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {partition.topic!r} is internal")
    if log.config.cleanup_policy == {CleanupPolicy.COMPACT}:
        raise RequestRefusedError(ErrorCode.POLICY_VIOLATION, f"the cleanup policy of {partition} is compact only")
    if offset == HIGH_WATERMARK:
        offset = log.high_watermark
    if offset < 0:
        raise OffsetOutOfRangeError(partition, offset, log.log_start_offset, log.high_watermark)
    log.delete_before(offset)
    services.fetch_purgatory.changed(partition)
    done = None if services.replicas is None else services.replicas.leading.deletions.begin(partition, offset)
    return log.log_start_offset, done
