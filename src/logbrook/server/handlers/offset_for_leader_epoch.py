"""OffsetForLeaderEpoch: where a leader epoch ended, by which a consumer finds out that a log was cut (KIP-320).

The broker's own epoch goes on at the log's end though nothing may be written in it yet; so do all that came before it
and after the last that wrote something.
"""

from logbrook.model import LogbrookError, TopicPartition
from logbrook.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from logbrook.server.api import Api, Call
from logbrook.server.leader_epoch import check_leader_epoch
from logbrook.server.refusals import refuse
from logbrook.server.services import Services


def handle(services: Services, request: OffsetForLeaderEpochRequest, call: Call) -> OffsetForLeaderEpochResponse:
    topics = []
    for topic in request.topics:
        ends = []
        for one in topic.partitions:
            end = EpochEndOffset(partition=one.partition)
            ends.append(end)
            try:
                _find_end(services, TopicPartition(topic.topic, one.partition), one, end)
            except LogbrookError as error:
                end.error_code = refuse(services, request, error).code
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=ends))
    return OffsetForLeaderEpochResponse(topics=topics)


API = Api(OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, handle)


def _find_end(
    services: Services, partition: TopicPartition, wanted: OffsetForLeaderPartition, end: EpochEndOffset
) -> None:
    """Raises TopicNotFoundError, PartitionNotFoundError or LeaderEpochError."""
    current = services.appends.leader_epoch
    log = services.topics.log(partition)
    check_leader_epoch(partition, wanted.current_leader_epoch, current)
    if not 0 <= wanted.leader_epoch <= current:
        return
    found = log.epochs.end_offset(wanted.leader_epoch, log.high_watermark)
    if wanted.leader_epoch == current:
        end.leader_epoch, end.end_offset = current, log.high_watermark
    elif found is not None:
        end.leader_epoch, end.end_offset = found.epoch, min(found.start_offset, log.high_watermark)
    else:
        # All that it wrote is gone, so it ended where the log starts now.
        end.leader_epoch, end.end_offset = wanted.leader_epoch, log.log_start_offset
