"""Which topic a request means: newer versions name topics by id, older ones by name. And which may be made."""

from logbrook.core.metadata import Topic, TopicExistsError
from logbrook.model import TopicPartition, check_topic_name
from logbrook.protocol.error_codes import ErrorCode
from logbrook.server.refusals import RefusedError
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


def check_topic_is_new(services: Services, name: str) -> None:
    """Raises InvalidTopicNameError, TopicExistsError or RefusedError."""
    check_topic_name(name)
    if name in services.topics.metadata.topics:
        # Said before anything else is found wrong: many clients create what they need and hope for this answer.
        raise TopicExistsError(name)
    if services.topics.is_internal(name):
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"topic {name!r} is the broker's own")
