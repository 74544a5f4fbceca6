"""CreateTopics: create topics with their settings.

On a single node the only valid replication factor is 1, or -1 for the default, and assigned replicas must be on it.
In a cluster the default is as many replicas as there are brokers, up to 3.

A topic that is not created within `timeout_ms` is reported as REQUEST_TIMED_OUT; if its creation has begun, it
continues. Topics above the client's quota of mutations are refused or, in old versions, delay the client (KIP-599).
"""

import asyncio
from collections import Counter

from logbrook.config.kafka_settings import TOPIC_SETTINGS, canonical_values
from logbrook.core.acls import AclOperation, ResourceType
from logbrook.core.cluster.placement import ANYWHERE, ReplicaPlacement
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.config_resources import ConfigEntries, unique_settings
from logbrook.server.errors import RequestRefusedError, errors_in
from logbrook.server.security.quotas import MutationQuota
from logbrook.server.services import Services
from logbrook.server.topic_changes import RequestDeadline
from logbrook.server.topic_checks import MetadataRefresh, check_named_once, check_replicas, check_topic_is_new

DEFAULT = -1
_REFUSED_BY_QUOTA_SINCE = 6
_REPLICAS = 1
# Bounds the response, which lists all settings of each topic and is many times the size of the request.
_TOPICS_MAX = 1_000
# Other requests are served after so many topics.
_TOPICS_PER_STEP = 50


async def handle(services: Services, request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    times_named = Counter(topic.name for topic in request.topics)
    deadline = RequestDeadline(services.loop, request.timeout_ms)
    authorizer = services.authorizer
    may_create_all = authorizer.allows_cluster(context, AclOperation.CREATE, is_audited=False)
    quota = services.quotas.mutations(context, _REFUSED_BY_QUOTA_SINCE)
    refresh = MetadataRefresh(services)
    results = []
    for number, topic in enumerate(request.topics, 1):
        result = CreatableTopicResult(name=topic.name)
        results.append(result)
        with errors_in(result):
            check_named_once(times_named, topic.name)
            if not may_create_all:
                authorizer.check(context, AclOperation.CREATE, ResourceType.TOPIC, topic.name)
            if len(request.topics) > _TOPICS_MAX:
                raise RequestRefusedError(
                    ErrorCode.POLICY_VIOLATION, f"a request may create at most {_TOPICS_MAX} topics"
                )
            if request.validate_only or topic.name in services.topics.metadata.topics:
                await refresh.run()
            await _create(services, topic, result, quota, None if request.validate_only else deadline)
            if not authorizer.allows(
                context, AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name, is_audited=False
            ):
                _hide_settings(result)
        if number % _TOPICS_PER_STEP == 0:
            await asyncio.sleep(0)
    return CreateTopicsResponse(topics=results, throttle_time_ms=quota.throttle_time_ms)


API = Api(CreateTopicsRequest, CreateTopicsResponse, handle)


async def _create(
    services: Services,
    topic: CreatableTopic,
    result: CreatableTopicResult,
    quota: MutationQuota,
    deadline: RequestDeadline | None,
) -> None:
    """Create the topic, or only check it without a deadline. Raises LogbrookError."""
    topics = services.topics
    check_topic_is_new(services, topic.name)
    partition_count, placement = _partition_count(services, topic), _placement(services, topic)
    requested = unique_settings(((config.name, config.value) for config in topic.configs), ErrorCode.INVALID_CONFIG)
    settings = canonical_values(requested, TOPIC_SETTINGS)
    if deadline is None:
        result.num_partitions = topics.check_new(topic.name, partition_count, settings)
    else:
        if quota.is_limited:
            # What is invalid is not counted.
            quota.take(topics.check_new(topic.name, partition_count, settings))
        created = await topics.create(
            topic.name, partition_count, settings, placement, timeout_ms=deadline.remaining_ms()
        )
        result.topic_id, result.num_partitions = created.id, created.partition_count
    result.replication_factor = topics.replication_factor(placement)
    result.configs = [
        CreatableTopicConfigs(
            name=entry.name, value=entry.value, read_only=entry.is_read_only, config_source=entry.source
        )
        for entry in ConfigEntries(services).of_topic(settings)
    ]


def _hide_settings(result: CreatableTopicResult) -> None:
    """Leave out what the client may not describe, as KIP-525 says."""
    result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    result.num_partitions = result.replication_factor = DEFAULT
    result.configs = ()


def _partition_count(services: Services, topic: CreatableTopic) -> int | None:
    """Return the requested number of partitions, None for the default. Raises RequestRefusedError."""
    if not topic.assignments:
        if services.replicas is None and topic.replication_factor not in (DEFAULT, _REPLICAS):
            raise RequestRefusedError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"the replication factor must be 1 (there is one broker), not {topic.replication_factor}",
            )
        return None if topic.num_partitions == DEFAULT else topic.num_partitions
    if topic.num_partitions != DEFAULT or topic.replication_factor != DEFAULT:
        raise RequestRefusedError(
            ErrorCode.INVALID_REQUEST,
            "with assigned replicas, the number of partitions and the replication factor must be -1",
        )
    numbers = sorted(assignment.partition_index for assignment in topic.assignments)
    if numbers != list(range(len(numbers))):
        raise RequestRefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "assigned partitions must be numbered from 0 without gaps"
        )
    if services.replicas is None:
        check_replicas(services, (assignment.broker_ids for assignment in topic.assignments))
    return len(numbers)


def _placement(services: Services, topic: CreatableTopic) -> ReplicaPlacement:
    if services.replicas is None:
        return ANYWHERE
    if not topic.assignments:
        return ReplicaPlacement(topic.replication_factor)
    assigned = sorted(topic.assignments, key=lambda assignment: assignment.partition_index)
    return ReplicaPlacement(assignments=[assignment.broker_ids for assignment in assigned])
