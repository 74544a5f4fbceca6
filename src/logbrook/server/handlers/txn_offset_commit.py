"""TxnOffsetCommit: store the offsets of a group as part of a transaction. They are visible when it is committed.

From version 5 on this adds the group's partition to the transaction; before, AddOffsetsToTxn has to come first.
"""

from logbrook.core.acls import AclOperation, ResourceType
from logbrook.core.coordinator import ProducerIdentity
from logbrook.core.groups.errors import GroupError
from logbrook.core.groups.messages import CommitRequest
from logbrook.core.transactions.errors import TransactionalProducerFencedError
from logbrook.model import LogbrookError, TopicPartition
from logbrook.model.identifiers import ProducerEpoch, ProducerId
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.coordinators.responses import OffsetCommitResults
from logbrook.server.errors import RequestRefusedError
from logbrook.server.services import Services

_ADDS_PARTITION_SINCE = 5


async def handle(
    services: Services, request: TxnOffsetCommitRequest, context: RequestContext
) -> TxnOffsetCommitResponse:
    commits = OffsetCommitResults()
    response = TxnOffsetCommitResponse(topics=_collect(services, request, commits, context))
    if commits.offsets:
        try:
            commits.finish(await _commit(services, request, context, commits))
        except TransactionalProducerFencedError as error:
            # The code for it that all versions of this request have.
            commits.finish(RequestRefusedError(ErrorCode.INVALID_PRODUCER_EPOCH, str(error)))
        except LogbrookError as error:
            commits.finish(error)
    return response


API = Api(TxnOffsetCommitRequest, TxnOffsetCommitResponse, handle)


async def _commit(
    services: Services, request: TxnOffsetCommitRequest, context: RequestContext, commits: OffsetCommitResults
) -> dict[TopicPartition, GroupError]:
    """Raises LogbrookError."""
    if not request.group_id:
        raise RequestRefusedError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    transactions = services.transactions
    partition = await services.groups.offsets_partition(request.group_id)
    producer = ProducerIdentity(ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch))
    only_check = context.version < _ADDS_PARTITION_SINCE
    await transactions.join(request.transactional_id, producer, partition, only_check=only_check)
    return await services.groups.commit(
        CommitRequest(
            group_id=request.group_id,
            member_id=request.member_id,
            generation=request.generation_id,
            offsets=commits.offsets,
            group_instance_id=request.group_instance_id,
            transactional=True,
            producer_id=ProducerId(request.producer_id),
            producer_epoch=ProducerEpoch(request.producer_epoch),
        )
    )


def _collect(
    services: Services, request: TxnOffsetCommitRequest, commits: OffsetCommitResults, context: RequestContext
) -> list[TxnOffsetCommitResponseTopic]:
    authorizer, topics = services.authorizer, []
    for topic in request.topics:
        responses = [
            TxnOffsetCommitResponsePartition(partition_index=partition.partition_index)
            for partition in topic.partitions
        ]
        topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=responses))
        try:
            authorizer.check(context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
            authorizer.check(context, AclOperation.READ, ResourceType.GROUP, request.group_id)
            authorizer.check(context, AclOperation.READ, ResourceType.TOPIC, topic.name)
            existing = services.topics.metadata.topic(topic.name)
        except LogbrookError as error:
            commits.fail(responses, error)
            continue
        for partition, response in zip(topic.partitions, responses, strict=True):
            commits.add(existing, partition, response)
    return topics
