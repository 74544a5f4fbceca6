"""CreateTopic, ListTopics, DescribeTopic and DescribePartition."""

from typing import Any

from logbrook.config.kafka_settings import in_one_notation, topic_settings
from logbrook.core.metadata import Topic
from logbrook.model import TopicPartition
from logbrook.protocol.json_requests import CreateTopic, DescribePartition, DescribeTopic, ListTopics
from logbrook.server.metrics.scrape import Observed
from logbrook.server.services import Services
from logbrook.server.topic_lookup import check_topic_is_new
from logbrook.storage.log import Log


async def create_topic(broker: Observed, request: CreateTopic) -> dict[str, Any]:
    """Answered when the topic is there to stay. Raises LogbrookError."""
    services = broker.services
    check_topic_is_new(services, request.topic)
    settings = in_one_notation(request.settings, topic_settings())
    created = await services.topics.create(request.topic, request.partition_count, settings)
    return _describe(services, created)


def list_topics(broker: Observed, _request: ListTopics) -> dict[str, Any]:
    services = broker.services
    found = sorted(services.topics.metadata.topics.values(), key=lambda topic: topic.name)
    return {"topics": [_summary(services, topic) for topic in found if not topic.is_deleting]}


def describe_topic(broker: Observed, request: DescribeTopic) -> dict[str, Any]:
    """Raises TopicNotFoundError."""
    services = broker.services
    topic = services.topics.metadata.topic(request.topic)
    logs = [services.topics.log(partition) for partition in topic.partitions]
    return {**_describe(services, topic), "partitions": [_offsets(log) for log in logs]}


def describe_partition(broker: Observed, request: DescribePartition) -> dict[str, Any]:
    """Raises TopicNotFoundError or PartitionNotFoundError."""
    log = broker.services.topics.log(TopicPartition(request.topic, request.partition))
    return {
        "topic": request.topic,
        **_offsets(log),
        "segments": len(log.segments),
        "quarantined": None if log.corruption is None else str(log.corruption),
    }


def _summary(services: Services, topic: Topic) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "partition_count": topic.partition_count,
        "internal": services.topics.is_internal(topic.name),
    }


def _describe(services: Services, topic: Topic) -> dict[str, Any]:
    return {**_summary(services, topic), "settings": dict(topic.settings)}


def _offsets(log: Log) -> dict[str, Any]:
    return {
        "partition": log.partition.partition,
        "log_start_offset": log.log_start_offset,
        "last_stable_offset": log.last_stable_offset,
        "high_watermark": log.high_watermark,
        "log_end_offset": log.log_end_offset,
        "size_bytes": log.size,
    }
