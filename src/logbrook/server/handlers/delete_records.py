"""DeleteRecords: move a log's start, so that what is before it can no longer be read. -1 stands for all there is."""

from logbrook.config import CleanupPolicy
from logbrook.model import LogbrookError, TopicPartition
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from logbrook.server.api import Api, Call
from logbrook.server.refusals import RefusedError, refuse
from logbrook.server.services import Services
from logbrook.storage.errors import OffsetOutOfRangeError

HIGH_WATERMARK = -1
_NO_LOW_WATERMARK = -1


def handle(services: Services, request: DeleteRecordsRequest, call: Call) -> DeleteRecordsResponse:
    topics = []
    for topic in request.topics:
        results = []
        for one in topic.partitions:
            result = DeleteRecordsPartitionResult(partition_index=one.partition_index, low_watermark=_NO_LOW_WATERMARK)
            results.append(result)
            try:
                result.low_watermark = _delete(services, TopicPartition(topic.name, one.partition_index), one.offset)
            except LogbrookError as error:
                result.error_code = refuse(services, request, error).code
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    return DeleteRecordsResponse(topics=topics)


API = Api(DeleteRecordsRequest, DeleteRecordsResponse, handle)


def _delete(services: Services, partition: TopicPartition, offset: int) -> int:
    """The offset that the log starts at then. Raises TopicNotFoundError, RefusedError or StorageError."""
    log = services.topics.log(partition)
    if services.topics.is_internal(partition.topic):
        raise RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {partition.topic!r} is the broker's own")
    if CleanupPolicy.DELETE not in log.config.cleanup_policy:
        raise RefusedError(ErrorCode.POLICY_VIOLATION, f"the cleanup policy of {partition} does not delete records")
    if offset == HIGH_WATERMARK:
        offset = log.high_watermark
    if offset < 0:
        raise OffsetOutOfRangeError(partition, offset, log.log_start_offset, log.high_watermark)
    log.delete_before(offset)
    services.fetch_waits.changed(partition)
    return log.log_start_offset
