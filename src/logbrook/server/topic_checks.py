"""Checks that handlers share: the topic that a request means, and the topics and replicas that it may create."""

from collections import Counter
from collections.abc import Iterable, Sequence

from logbrook.core.acls import AclOperation, ResourceType
from logbrook.core.metadata import Topic, TopicExistsError
from logbrook.model import LogbrookError, TopicPartition, check_topic_name
from logbrook.protocol.error_codes import ErrorCode
from logbrook.server.api import RequestContext
from logbrook.server.errors import RequestRefusedError
from logbrook.server.services import Services
from logbrook.storage.errors import PartitionNotFoundError


class MetadataRefresh:
    """Learns, once per request, what other brokers have changed: before an error that a client takes for final."""

    def __init__(self, services: Services) -> None:
        self._topics = services.topics
        self._is_done = False
        self._error: LogbrookError | None = None

    async def run(self) -> None:
        """Raises StoreUnavailableError, also if an earlier call has."""
        if self._error is not None:
            raise self._error
        if not self._is_done:
            try:
                await self._topics.refresh()
            except LogbrookError as error:
                self._error = error
                raise
            self._is_done = True


def authorized_topic(
    services: Services, context: RequestContext, operation: AclOperation, topic_id: bytes | None, name: str
) -> Topic:
    """Return the topic with the id (newer request versions) or, if `topic_id` is None, with the name.

    The client does not learn whether a topic exists on which it may not perform the operation. Raises
    AuthorizationFailedError, UnknownTopicIdError or TopicNotFoundError.
    """
    metadata = services.topics.metadata
    if topic_id is not None:
        topic = metadata.topic_with_id(topic_id)
        services.authorizer.check(context, operation, ResourceType.TOPIC, topic.name)
        return topic
    services.authorizer.check(context, operation, ResourceType.TOPIC, name)
    return metadata.topic(name)


def check_partition_exists(topic: Topic, partition: TopicPartition) -> None:
    """Raises PartitionNotFoundError."""
    if not 0 <= partition.partition < topic.partition_count:
        raise PartitionNotFoundError(partition)


def check_named_once(times_named: Counter[str], name: str) -> None:
    """Raises RequestRefusedError if the request names the topic more than once."""
    if times_named[name] > 1:
        raise RequestRefusedError(ErrorCode.INVALID_REQUEST, f"topic {name!r} is in the request more than once")


def check_topic_is_new(services: Services, name: str) -> None:
    """Raises InvalidTopicNameError, TopicExistsError or RequestRefusedError."""
    check_topic_name(name)
    if name in services.topics.metadata.topics:
        # Checked before everything else: many clients create their topics at each start and expect this error.
        raise TopicExistsError(name)
    if services.topics.is_internal(name):
        raise RequestRefusedError(ErrorCode.INVALID_REQUEST, f"topic {name!r} is internal and cannot be created")


def check_replicas(services: Services, assignments: Iterable[Sequence[int]]) -> None:
    """Raises RequestRefusedError unless each partition is assigned to this broker alone."""
    node_id = services.config.node_id
    if any(list(broker_ids) != [node_id] for broker_ids in assignments):
        raise RequestRefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"this is the only broker: the replicas of each partition must be [{node_id}]",
        )
