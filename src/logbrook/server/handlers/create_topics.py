"""CreateTopics: new topics, with their settings.

There is one replica of everything: a replication factor of 1, or -1 for the default, is all there is, and whoever
assigns replicas by hand can only assign them to this broker.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping

from logbrook.config.kafka_settings import in_one_notation, topic_settings
from logbrook.model import LogbrookError
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from logbrook.server.api import Api, Call
from logbrook.server.config_entries import ConfigEntries
from logbrook.server.refusals import RefusedError, refuse
from logbrook.server.replica_assignment import check_replicas
from logbrook.server.services import Services
from logbrook.server.topic_lookup import check_topic_is_new

DEFAULT = -1
_REPLICAS = 1
# The answer is many times the request: it has all settings of each topic.
_TOPICS_MAX = 1_000
# After so many, others get their turn.
_TOPICS_AT_ONCE = 50


async def handle(services: Services, request: CreateTopicsRequest, call: Call) -> CreateTopicsResponse:
    times_named = Counter(topic.name for topic in request.topics)
    results = []
    for number, topic in enumerate(request.topics, 1):
        result = CreatableTopicResult(name=topic.name)
        results.append(result)
        try:
            if times_named[topic.name] > 1:
                raise RefusedError(ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} is in the request twice")
            if len(request.topics) > _TOPICS_MAX:
                raise RefusedError(ErrorCode.POLICY_VIOLATION, f"a request creates at most {_TOPICS_MAX} topics")
            await _create(services, topic, result, only_check=request.validate_only)
        except LogbrookError as error:
            result.error_code, result.error_message = refuse(services, request, error)
        if number % _TOPICS_AT_ONCE == 0:
            await asyncio.sleep(0)
    return CreateTopicsResponse(topics=results)


API = Api(CreateTopicsRequest, CreateTopicsResponse, handle)


async def _create(services: Services, topic: CreatableTopic, result: CreatableTopicResult, *, only_check: bool) -> None:
    """Raises LogbrookError."""
    topics = services.topics
    check_topic_is_new(services, topic.name)
    partition_count = _partition_count(services, topic)
    settings = in_one_notation(_settings(topic), topic_settings())
    if only_check:
        result.num_partitions = topics.check_new(topic.name, partition_count, settings)
    else:
        created = await topics.create(topic.name, partition_count, settings)
        result.topic_id, result.num_partitions = created.id, created.partition_count
    result.replication_factor = _REPLICAS
    result.configs = [
        CreatableTopicConfigs(
            name=entry.name, value=entry.value, read_only=entry.is_read_only, config_source=entry.source
        )
        for entry in ConfigEntries(services).of_topic(settings)
    ]


def _partition_count(services: Services, topic: CreatableTopic) -> int | None:
    """None for the default. Raises RefusedError."""
    if not topic.assignments:
        if topic.replication_factor not in (DEFAULT, _REPLICAS):
            raise RefusedError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"there is one broker, so the replication factor is 1, not {topic.replication_factor}",
            )
        return None if topic.num_partitions == DEFAULT else topic.num_partitions
    if topic.num_partitions != DEFAULT or topic.replication_factor != DEFAULT:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST, "with replicas assigned, the numbers of partitions and of replicas must be -1"
        )
    numbers = sorted(one.partition_index for one in topic.assignments)
    if numbers != list(range(len(numbers))):
        raise RefusedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions are numbered from 0 on, without gaps")
    check_replicas(services, (one.broker_ids for one in topic.assignments))
    return len(numbers)


def _settings(topic: CreatableTopic) -> Mapping[str, str]:
    """Raises RefusedError."""
    settings: dict[str, str] = {}
    for one in topic.configs:
        if one.value is None:
            raise RefusedError(ErrorCode.INVALID_CONFIG, f"{one.name} has no value")
        if one.name in settings:
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"{one.name} is given twice")
        settings[one.name] = one.value
    return settings
