"""OffsetDelete: forget offsets that a group committed (KIP-496), unless its members read those topics."""

from logbrook.core.groups.errors import GroupError
from logbrook.model import LogbrookError, TopicPartition
from logbrook.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from logbrook.server.api import Api, Call, Handled
from logbrook.server.group_answers import answer_when_done
from logbrook.server.refusals import refuse
from logbrook.server.services import Services
from logbrook.server.topic_lookup import check_partition_exists


def handle(services: Services, request: OffsetDeleteRequest, call: Call) -> Handled:
    topics: list[OffsetDeleteResponseTopic] = []
    # The partitions to ask the coordinator about, each with the place where its answer goes.
    asked: list[tuple[TopicPartition, OffsetDeleteResponsePartition]] = []
    for topic in request.topics:
        responses = [OffsetDeleteResponsePartition(partition_index=one.partition_index) for one in topic.partitions]
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=responses))
        for response in responses:
            partition = TopicPartition(topic.name, response.partition_index)
            try:
                check_partition_exists(services.topics.metadata.topic(topic.name), partition)
                asked.append((partition, response))
            except LogbrookError as error:
                response.error_code = refuse(services, request, error).code

    def respond(result: dict[TopicPartition, GroupError] | GroupError) -> OffsetDeleteResponse:
        if isinstance(result, GroupError):
            return OffsetDeleteResponse(error_code=refuse(services, request, result).code)
        for partition, response in asked:
            if partition in result:
                response.error_code = refuse(services, request, result[partition]).code
        return OffsetDeleteResponse(topics=topics)

    if not asked:
        return OffsetDeleteResponse(topics=topics)
    try:
        deleted = services.groups.delete_offsets(request.group_id, [partition for partition, _ in asked])
    except GroupError as error:
        return respond(error)
    return answer_when_done(deleted, respond)


API = Api(OffsetDeleteRequest, OffsetDeleteResponse, handle)
