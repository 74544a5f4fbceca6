"""OffsetForLeaderEpoch: the end offset of a leader epoch, by which consumers detect log truncation (KIP-320).

The current leader epoch ends at the log end offset, even if nothing was written in it. So do earlier epochs after the
last one that has records. The high watermark of a new leader may be older than what consumers have read: with it, they
would take committed records for truncated ones, and read them again.
"""

from logbrook.core.acls import AclOperation, ResourceType
from logbrook.model import TopicPartition
from logbrook.model.identifiers import LeaderEpoch
from logbrook.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.errors import errors_in
from logbrook.server.leader_epoch import check_leader_epoch
from logbrook.server.services import Services


def handle(
    services: Services, request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    topics = []
    authorizer = services.authorizer
    # Brokers ask for any topic, consumers for those that they may describe (KIP-320).
    is_broker = authorizer.allows_cluster(context, AclOperation.CLUSTER_ACTION, is_audited=False)
    for topic in request.topics:
        ends = []
        for wanted in topic.partitions:
            end = EpochEndOffset(partition=wanted.partition)
            ends.append(end)
            with errors_in(end):
                if not is_broker:
                    authorizer.check(context, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.topic)
                _find_end(services, TopicPartition(topic.topic, wanted.partition), wanted, end)
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=ends))
    return OffsetForLeaderEpochResponse(topics=topics)


API = Api(OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, handle)


def _find_end(
    services: Services, partition: TopicPartition, wanted: OffsetForLeaderPartition, end: EpochEndOffset
) -> None:
    """Raises TopicNotFoundError, PartitionNotFoundError, LeaderEpochError or CorruptLogError."""
    log = services.topics.log(partition)
    current = services.topics.leader_epoch(partition)
    check_leader_epoch(partition, LeaderEpoch(wanted.current_leader_epoch), current)
    if not 0 <= wanted.leader_epoch <= current:
        return
    epoch_end = log.epochs.end_offset(LeaderEpoch(wanted.leader_epoch), log.log_end_offset)
    if log.corruption is not None and epoch_end is not None and not log.epochs.is_known(epoch_end.start_offset):
        # A client would take the records that the damage hides for truncated.
        raise log.corruption.with_traceback(None)
    if wanted.leader_epoch == current:
        end.leader_epoch, end.end_offset = current, log.log_end_offset
    elif epoch_end is not None:
        end.leader_epoch, end.end_offset = epoch_end.epoch, epoch_end.start_offset
    else:
        # All its records were deleted, so it ended where the log starts now.
        end.leader_epoch, end.end_offset = wanted.leader_epoch, log.log_start_offset
