"""OffsetCommit: how far a group has read, acknowledged when that is as durable as data.

Each partition has its own answer: one that is not there is refused here, and what the coordinator says of the request
as a whole holds for all the others. Offsets are kept by the broker's own retention; what a client asks for is ignored.
"""

from logbrook.core.groups import CommitRequest, OffsetToCommit
from logbrook.core.groups.errors import GroupError
from logbrook.model import LogbrookError, TopicPartition
from logbrook.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from logbrook.server.api import Api, Call, Handled
from logbrook.server.group_answers import answer_when_done
from logbrook.server.refusals import refuse
from logbrook.server.services import Services
from logbrook.server.topic_lookup import check_partition_exists, topic_by_id_or_name

# KIP-848: topics by id.
_TOPIC_IDS_SINCE = 10


def handle(services: Services, request: OffsetCommitRequest, call: Call) -> Handled:
    commit = _Commit(services, request)
    for topic in request.topics:
        commit.add_topic(topic, by_id=call.version >= _TOPIC_IDS_SINCE)
    return commit.send()


API = Api(OffsetCommitRequest, OffsetCommitResponse, handle)


class _Commit:
    """One request under way."""

    def __init__(self, services: Services, request: OffsetCommitRequest) -> None:
        self._services = services
        self._request = request
        self._topics: list[OffsetCommitResponseTopic] = []
        self._offsets: list[OffsetToCommit] = []
        # Beside each offset, the place where its answer goes.
        self._responses: list[OffsetCommitResponsePartition] = []

    def add_topic(self, topic: OffsetCommitRequestTopic, *, by_id: bool) -> None:
        responses = [OffsetCommitResponsePartition(partition_index=one.partition_index) for one in topic.partitions]
        self._topics.append(OffsetCommitResponseTopic(topic_id=topic.topic_id, name=topic.name, partitions=responses))
        try:
            known = topic_by_id_or_name(self._services, topic.topic_id if by_id else None, topic.name)
        except LogbrookError as error:
            self._refuse(responses, error)
            return
        for one, response in zip(topic.partitions, responses, strict=True):
            partition = TopicPartition(known.name, one.partition_index)
            try:
                check_partition_exists(known, partition)
            except LogbrookError as error:
                self._refuse([response], error)
                continue
            self._offsets.append(
                OffsetToCommit(
                    partition, one.committed_offset, one.committed_leader_epoch, one.committed_metadata or ""
                )
            )
            self._responses.append(response)

    def send(self) -> Handled:
        if not self._offsets:
            return OffsetCommitResponse(topics=self._topics)
        request = self._request
        commit = CommitRequest(
            group_id=request.group_id,
            member_id=request.member_id,
            generation=request.generation_id_or_member_epoch,
            offsets=self._offsets,
            group_instance_id=request.group_instance_id,
        )
        try:
            committed = self._services.groups.commit(commit)
        except GroupError as error:
            return self._respond(error)
        return answer_when_done(committed, self._respond)

    def _respond(self, result: dict[TopicPartition, GroupError] | GroupError) -> OffsetCommitResponse:
        if isinstance(result, GroupError):
            self._refuse(self._responses, result)
        elif result:
            for offset, response in zip(self._offsets, self._responses, strict=True):
                refused = result.get(offset.partition)
                if refused is not None:
                    self._refuse([response], refused)
        return OffsetCommitResponse(topics=self._topics)

    def _refuse(self, responses: list[OffsetCommitResponsePartition], error: LogbrookError) -> None:
        for response in responses:
            response.error_code = refuse(self._services, self._request, error).code
