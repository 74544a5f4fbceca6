"""OffsetDelete: delete committed offsets of topics that no member subscribes to (KIP-496)."""

from logbrook.core.acls import AclOperation, ResourceType
from logbrook.core.coordinator import CoordinatorError
from logbrook.model import TopicPartition
from logbrook.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from logbrook.server.api import Api, HandlerResult, RequestContext
from logbrook.server.coordinators.groups import PartitionErrors
from logbrook.server.coordinators.responses import respond_when_done
from logbrook.server.errors import error_code, errors_in
from logbrook.server.services import Services
from logbrook.server.topic_checks import check_partition_exists


def handle(services: Services, request: OffsetDeleteRequest, context: RequestContext) -> HandlerResult:
    authorizer = services.authorizer
    refusal = authorizer.refusal(context, AclOperation.DELETE, ResourceType.GROUP, request.group_id)
    if refusal is not None:
        return OffsetDeleteResponse(error_code=refusal.code)
    topics: list[OffsetDeleteResponseTopic] = []
    # Existing partitions, each with the partition of the response that gets its error code.
    existing: list[tuple[TopicPartition, OffsetDeleteResponsePartition]] = []
    for topic in request.topics:
        responses = [
            OffsetDeleteResponsePartition(partition_index=partition.partition_index) for partition in topic.partitions
        ]
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=responses))
        for response in responses:
            partition = TopicPartition(topic.name, response.partition_index)
            with errors_in(response):
                authorizer.check(context, AclOperation.READ, ResourceType.TOPIC, topic.name)
                check_partition_exists(services.topics.metadata.topic(topic.name), partition)
                existing.append((partition, response))

    def respond(result: PartitionErrors | CoordinatorError) -> OffsetDeleteResponse:
        if isinstance(result, CoordinatorError):
            return OffsetDeleteResponse(error_code=error_code(result))
        for partition, response in existing:
            if partition in result:
                response.error_code = error_code(result[partition])
        return OffsetDeleteResponse(topics=topics)

    if not existing:
        return OffsetDeleteResponse(topics=topics)
    partitions = [partition for partition, _ in existing]
    return respond_when_done(lambda: services.groups.delete_offsets(request.group_id, partitions), respond)


API = Api(OffsetDeleteRequest, OffsetDeleteResponse, handle)
