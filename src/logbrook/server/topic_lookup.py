"""Which topic a request means: newer versions name topics by id, older ones by name."""

from logbrook.core.metadata import Topic
from logbrook.model import TopicPartition
from logbrook.server.services import Services
from logbrook.storage.errors import PartitionNotFoundError


def topic_by_id_or_name(services: Services, topic_id: bytes | None, name: str) -> Topic:
    """The topic with the id, or with the name where no id is given.

    Raises UnknownTopicIdError or TopicNotFoundError.
    """
    metadata = services.topics.metadata
    return metadata.topic(name) if topic_id is None else metadata.topic_with_id(topic_id)


def check_partition_exists(topic: Topic, partition: TopicPartition) -> None:
    """Raises PartitionNotFoundError."""
    if not 0 <= partition.partition < topic.partition_count:
        raise PartitionNotFoundError(partition)
