"""DeleteRecords: advance the log start offset, to the high watermark if the offset is -1."""

from logbrook.config import CleanupPolicy
from logbrook.core.acls import AclOperation, ResourceType
from logbrook.model import TopicPartition
from logbrook.model.identifiers import Offset
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.errors import RequestRefusedError, errors_in
from logbrook.server.services import Services
from logbrook.storage.errors import OffsetOutOfRangeError

HIGH_WATERMARK = -1
_NO_LOW_WATERMARK = -1


def handle(services: Services, request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    topics = []
    for topic in request.topics:
        results = []
        for partition in topic.partitions:
            number = partition.partition_index
            result = DeleteRecordsPartitionResult(partition_index=number, low_watermark=_NO_LOW_WATERMARK)
            results.append(result)
            with errors_in(result):
                services.authorizer.check(context, AclOperation.DELETE, ResourceType.TOPIC, topic.name)
                result.low_watermark = _delete(services, TopicPartition(topic.name, number), Offset(partition.offset))
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    return DeleteRecordsResponse(topics=topics)


API = Api(DeleteRecordsRequest, DeleteRecordsResponse, handle)


def _delete(services: Services, partition: TopicPartition, offset: Offset) -> int:
    """Return the new log start offset. Raises TopicNotFoundError, RequestRefusedError or StorageError."""
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
    return log.log_start_offset
