"""OffsetCommit: store the offsets of a group. Acknowledged when they are committed.

The broker's retention applies; the retention time of a request is ignored.
"""

from logbrook.core.acls import AclOperation, ResourceType
from logbrook.core.coordinator import CoordinatorError
from logbrook.core.groups.messages import CommitRequest
from logbrook.model import LogbrookError
from logbrook.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from logbrook.server.api import Api, HandlerResult, RequestContext
from logbrook.server.coordinators.groups import PartitionErrors
from logbrook.server.coordinators.responses import OffsetCommitResults, respond_when_done
from logbrook.server.services import Services
from logbrook.server.topic_checks import authorized_topic

# KIP-848: topics by id.
_TOPIC_IDS_SINCE = 10


def handle(services: Services, request: OffsetCommitRequest, context: RequestContext) -> HandlerResult:
    commits = OffsetCommitResults()
    response = OffsetCommitResponse(topics=_collect(services, request, context, commits))
    if not commits.offsets:
        return response

    def respond(result: PartitionErrors | CoordinatorError) -> OffsetCommitResponse:
        commits.finish(result)
        return response

    commit = CommitRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        generation=request.generation_id_or_member_epoch,
        offsets=commits.offsets,
        group_instance_id=request.group_instance_id,
    )
    return respond_when_done(lambda: services.groups.commit(commit), respond)


API = Api(OffsetCommitRequest, OffsetCommitResponse, handle)


def _collect(
    services: Services, request: OffsetCommitRequest, context: RequestContext, commits: OffsetCommitResults
) -> list[OffsetCommitResponseTopic]:
    topics = []
    by_id = context.version >= _TOPIC_IDS_SINCE
    for topic in request.topics:
        responses = [
            OffsetCommitResponsePartition(partition_index=partition.partition_index) for partition in topic.partitions
        ]
        topics.append(OffsetCommitResponseTopic(topic_id=topic.topic_id, name=topic.name, partitions=responses))
        try:
            services.authorizer.check(context, AclOperation.READ, ResourceType.GROUP, request.group_id)
            existing = authorized_topic(
                services, context, AclOperation.READ, topic.topic_id if by_id else None, topic.name
            )
        except LogbrookError as error:
            commits.fail(responses, error)
            continue
        for partition, response in zip(topic.partitions, responses, strict=True):
            commits.add(existing, partition, response)
    return topics
