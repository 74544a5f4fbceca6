"""OffsetCommit: how far a group has read, acknowledged when that is as durable as data.

Offsets are kept by the broker's own retention; what a client asks for is ignored.
"""

from logbrook.core.groups import CommitRequest
from logbrook.core.groups.errors import GroupError
from logbrook.model import LogbrookError, TopicPartition
from logbrook.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from logbrook.server.api import Api, Call, Handled
from logbrook.server.group_answers import answer_when_done
from logbrook.server.offset_commits import OffsetCommits
from logbrook.server.services import Services
from logbrook.server.topic_lookup import topic_by_id_or_name

# KIP-848: topics by id.
_TOPIC_IDS_SINCE = 10


def handle(services: Services, request: OffsetCommitRequest, call: Call) -> Handled:
    commits = OffsetCommits(services, request)
    response = OffsetCommitResponse(topics=_collect(services, request, call, commits))
    if not commits.offsets:
        return response

    def respond(result: dict[TopicPartition, GroupError] | GroupError) -> OffsetCommitResponse:
        commits.settle(result)
        return response

    commit = CommitRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        generation=request.generation_id_or_member_epoch,
        offsets=commits.offsets,
        group_instance_id=request.group_instance_id,
    )
    try:
        committed = services.groups.commit(commit)
    except GroupError as error:
        return respond(error)
    return answer_when_done(committed, respond)


API = Api(OffsetCommitRequest, OffsetCommitResponse, handle)


def _collect(
    services: Services, request: OffsetCommitRequest, call: Call, commits: OffsetCommits
) -> list[OffsetCommitResponseTopic]:
    topics = []
    by_id = call.version >= _TOPIC_IDS_SINCE
    for topic in request.topics:
        responses = [OffsetCommitResponsePartition(partition_index=one.partition_index) for one in topic.partitions]
        topics.append(OffsetCommitResponseTopic(topic_id=topic.topic_id, name=topic.name, partitions=responses))
        try:
            known = topic_by_id_or_name(services, topic.topic_id if by_id else None, topic.name)
        except LogbrookError as error:
            commits.refuse(responses, error)
            continue
        for one, response in zip(topic.partitions, responses, strict=True):
            commits.add(known, one, response)
    return topics
