"""ListOffsets: the offset at a time, and the ends of a log, which stand as negative times."""

from logbrook.model import LogbrookError, TopicPartition
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from logbrook.server.api import Api, Call
from logbrook.server.errors import error_code
from logbrook.server.leader_epoch import check_leader_epoch
from logbrook.server.services import Services
from logbrook.storage.log import Log
from logbrook.storage.segment import TimestampedOffset

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
# KIP-405: the first offset on this machine, rather than in an object store. Here they are the same.
EARLIEST_LOCAL = -4
# KIP-1005, KIP-1023: the last offset in the object store, and the first that waits to go there. There is no store.
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
_READ_COMMITTED = 1
_NONE = -1


def handle(services: Services, request: ListOffsetsRequest, call: Call) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _look_up(services, TopicPartition(topic.name, one.partition_index), one, request.isolation_level)
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


API = Api(ListOffsetsRequest, ListOffsetsResponse, handle)


def _look_up(
    services: Services, partition: TopicPartition, wanted: ListOffsetsPartition, isolation_level: int
) -> ListOffsetsPartitionResponse:
    response = ListOffsetsPartitionResponse(partition_index=partition.partition)
    try:
        log = services.topics.log(partition)
        check_leader_epoch(partition, wanted.current_leader_epoch, services.appends.leader_epoch)
        _fill(response, log, wanted.timestamp, log.last_stable_offset if isolation_level == _READ_COMMITTED else None)
    except LogbrookError as error:
        response.error_code = error_code(error)
    return response


def _fill(response: ListOffsetsPartitionResponse, log: Log, timestamp: int, stable_offset: int | None) -> None:
    """Raises StorageError."""
    end = log.high_watermark if stable_offset is None else stable_offset
    if timestamp >= 0:
        _fill_found(response, log.find_time(timestamp), end)
    elif timestamp == LATEST:
        response.offset = end
        response.leader_epoch = log.epochs.latest
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        response.offset = log.log_start_offset
        epoch = log.epochs.epoch_of(log.log_start_offset)
        response.leader_epoch = _NONE if epoch is None else epoch
    elif timestamp == MAX_TIMESTAMP:
        newest = max((segment.max_timestamp for segment in log.segments if segment.size), default=_NONE)
        _fill_found(response, log.find_time(newest) if newest >= 0 else None, end)
    elif timestamp not in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        response.error_code = ErrorCode.UNSUPPORTED_VERSION


def _fill_found(response: ListOffsetsPartitionResponse, found: TimestampedOffset | None, end: int) -> None:
    if found is not None and found.offset < end:
        response.offset, response.timestamp, response.leader_epoch = found
