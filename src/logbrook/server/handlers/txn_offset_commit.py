"""TxnOffsetCommit: how far a group has read, as part of a transaction: it counts when that is committed.

From version 5 on this adds the group to the transaction; before, AddOffsetsToTxn has to come first.
"""

from logbrook.core.groups import CommitRequest
from logbrook.core.groups.errors import GroupError
from logbrook.core.transactions.errors import TransactionalProducerFencedError
from logbrook.model import LogbrookError, TopicPartition
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from logbrook.server.api import Api, Call
from logbrook.server.offset_commits import OffsetCommits
from logbrook.server.refusals import RefusedError
from logbrook.server.services import Services

_ADDS_THE_GROUP_SINCE = 5


async def handle(services: Services, request: TxnOffsetCommitRequest, call: Call) -> TxnOffsetCommitResponse:
    commits = OffsetCommits(services, request)
    response = TxnOffsetCommitResponse(topics=_collect(services, request, commits))
    if commits.offsets:
        try:
            commits.settle(await _commit(services, request, call, commits))
        except TransactionalProducerFencedError as error:
            # The one word for it that every version of this request knows.
            commits.settle(RefusedError(ErrorCode.INVALID_PRODUCER_EPOCH, str(error)))
        except LogbrookError as error:
            commits.settle(error)
    return response


API = Api(TxnOffsetCommitRequest, TxnOffsetCommitResponse, handle)


async def _commit(
    services: Services, request: TxnOffsetCommitRequest, call: Call, commits: OffsetCommits
) -> dict[TopicPartition, GroupError]:
    """Raises LogbrookError."""
    if not request.group_id:
        raise RefusedError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    transactions = services.transactions
    partition = await services.groups.offsets_partition(request.group_id)
    transaction = (request.transactional_id, request.producer_id, request.producer_epoch)
    if call.version >= _ADDS_THE_GROUP_SINCE:
        transactions.add_partitions(*transaction, [partition])
    else:
        transactions.coordinator.check_partition(*transaction, partition)
    return await services.groups.commit(
        CommitRequest(
            group_id=request.group_id,
            member_id=request.member_id,
            generation=request.generation_id,
            offsets=commits.offsets,
            group_instance_id=request.group_instance_id,
            transactional=True,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
        )
    )


def _collect(
    services: Services, request: TxnOffsetCommitRequest, commits: OffsetCommits
) -> list[TxnOffsetCommitResponseTopic]:
    topics = []
    for topic in request.topics:
        responses = [TxnOffsetCommitResponsePartition(partition_index=one.partition_index) for one in topic.partitions]
        topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=responses))
        try:
            known = services.topics.metadata.topic(topic.name)
        except LogbrookError as error:
            commits.refuse(responses, error)
            continue
        for one, response in zip(topic.partitions, responses, strict=True):
            commits.add(known, one, response)
    return topics
