"""Metadata: the brokers, and topics with the leaders and replicas of their partitions.

In a cluster the response waits a moment for the new leader of a partition whose leader has just died: a client that
is told of no leader, or of the dead one, asks again after up to a second.

A topic that does not exist is created if both the client and `topics.auto_create` allow it.
"""

from collections.abc import Iterator, Sequence

from logbrook.core.acls import AclOperation, ResourceType
from logbrook.core.metadata import Topic
from logbrook.model import InvalidTopicNameError, LogbrookError, check_topic_name
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from logbrook.protocol.schema import ZERO_UUID
from logbrook.server.api import Api, HandlerResult, RequestContext
from logbrook.server.cluster.background import pause
from logbrook.server.cluster.liveness import BrokerLiveness
from logbrook.server.errors import error_code
from logbrook.server.security.authorizer import NOT_REQUESTED
from logbrook.server.services import Services
from logbrook.server.topic_checks import authorized_topic

# Earlier versions require a topic name in the response.
_NULL_NAME_SINCE = 12
# In version 0, an empty list of topics means all topics.
_NULL_FOR_ALL_SINCE = 1
# Longest wait for the election of a new leader.
_ELECTION_S_MAX = 0.3
_ELECTION_POLL_S = 0.01


def handle(services: Services, request: MetadataRequest, context: RequestContext) -> HandlerResult:
    wanted = request.topics
    if wanted is None or (not wanted and context.version < _NULL_FOR_ALL_SINCE):
        topics = [topic for topic in services.topics.metadata.topics.values() if not topic.is_hidden]
        if services.authorizer.is_enabled:
            topics = [topic for topic in topics if _may_describe(services, topic.name, context)]
        return _respond(services, request, [_describe(services, topic) for topic in topics], context)
    # Without duplicates: the response is much larger than the request.
    wanted = list({(topic.topic_id, topic.name): topic for topic in wanted}.values())
    missing = [name for name in _missing(services, wanted) if _may_create(services, request, name)]
    if missing and services.authorizer.is_enabled:
        missing = [name for name in missing if _may_describe(services, name, context)]
    if missing:
        return _create_and_respond(services, request, missing, wanted, context)
    if services.replicas is not None and wanted:
        return _respond_after_elections(services, services.replicas.liveness, request, wanted, context)
    return _respond(services, request, [_look_up(services, topic, context) for topic in wanted], context)


API = Api(MetadataRequest, MetadataResponse, handle)


async def _respond_after_elections(
    services: Services,
    liveness: BrokerLiveness,
    request: MetadataRequest,
    wanted: Sequence[MetadataRequestTopic],
    context: RequestContext,
) -> MetadataResponse:
    await liveness.settle()
    until_s = services.clock.monotonic_s() + _ELECTION_S_MAX
    while True:
        topics = [_look_up(services, topic, context) for topic in wanted]
        is_waiting = liveness.gone() and any(
            partition.error_code for topic in topics for partition in topic.partitions or ()
        )
        if not is_waiting or services.clock.monotonic_s() >= until_s:
            return _respond(services, request, topics, context)
        await pause(_ELECTION_POLL_S)


async def _create_and_respond(
    services: Services,
    request: MetadataRequest,
    missing: list[str],
    wanted: Sequence[MetadataRequestTopic],
    context: RequestContext,
) -> MetadataResponse:
    failed: dict[str | None, ErrorCode] = {}
    may_create_all = services.authorizer.allows_cluster(context, AclOperation.CREATE, is_audited=False)
    for name in missing:
        try:
            if not may_create_all:
                services.authorizer.check(context, AclOperation.CREATE, ResourceType.TOPIC, name)
            await services.topics.create(name, None, {})
        except LogbrookError as error:
            code = error_code(error)
            if code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                failed[name] = code
    topics = [_look_up(services, topic, context) for topic in wanted]
    for topic in topics:
        topic.error_code = failed.get(topic.name, topic.error_code)
    return _respond(services, request, topics, context)


def _missing(services: Services, wanted: Sequence[MetadataRequestTopic]) -> Iterator[str]:
    topics = services.topics.metadata.topics
    names = (topic.name for topic in wanted if topic.name is not None and topic.topic_id == ZERO_UUID)
    # A topic that is being created by another request is waited for.
    return (name for name in names if name not in topics or topics[name].is_creating)


def _may_create(services: Services, request: MetadataRequest, name: str) -> bool:
    if not (services.config.topics.auto_create and request.allow_auto_topic_creation):
        return False
    try:
        check_topic_name(name)
    except InvalidTopicNameError:
        return False
    return not services.topics.is_internal(name)


def _may_describe(services: Services, name: str, context: RequestContext) -> bool:
    return services.authorizer.allows(context, AclOperation.DESCRIBE, ResourceType.TOPIC, name, is_audited=False)


def _look_up(services: Services, wanted: MetadataRequestTopic, context: RequestContext) -> MetadataResponseTopic:
    try:
        if wanted.topic_id != ZERO_UUID:
            topic = authorized_topic(services, context, AclOperation.DESCRIBE, wanted.topic_id, "")
        else:
            name = wanted.name or ""
            services.authorizer.check(context, AclOperation.DESCRIBE, ResourceType.TOPIC, name)
            check_topic_name(name)
            topic = services.topics.metadata.topic(name)
        return _describe(services, topic)
    except LogbrookError as error:
        named = wanted.name if context.version >= _NULL_NAME_SINCE else wanted.name or ""
        return MetadataResponseTopic(error_code=error_code(error), name=named, topic_id=wanted.topic_id)


def _describe(services: Services, topic: Topic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=services.topics.is_internal(topic.name),
        partitions=[_describe_partition(services, topic, number) for number in range(topic.partition_count)],
    )


def _describe_partition(services: Services, topic: Topic, number: int) -> MetadataResponsePartition:
    view = services.view.partition(topic, number)
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE if view.is_available else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=number,
        leader_id=view.leader,
        leader_epoch=view.leader_epoch,
        replica_nodes=view.replicas,
        isr_nodes=view.isr,
        offline_replicas=view.offline,
    )


def _respond(
    services: Services, request: MetadataRequest, topics: list[MetadataResponseTopic], context: RequestContext
) -> MetadataResponse:
    if request.include_topic_authorized_operations:
        for topic in topics:
            # As in Kafka, also for a topic that does not exist, unless only its id is known.
            if topic.name and topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                topic.topic_authorized_operations = services.authorizer.operations(
                    context, ResourceType.TOPIC, topic.name
                )
    operations = NOT_REQUESTED
    if request.include_cluster_authorized_operations:
        operations = services.authorizer.cluster_operations(context)
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker.broker_id, host=broker.host, port=broker.port, rack=broker.rack)
            for broker in services.view.brokers(context.listener)
        ],
        cluster_id=services.topics.metadata.cluster_id,
        controller_id=services.view.controller_id,
        topics=topics,
        cluster_authorized_operations=operations,
    )
