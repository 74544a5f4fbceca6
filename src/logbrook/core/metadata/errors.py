"""What can be wrong with a request about topics."""

from logbrook.model import LogbrookError


class MetadataError(LogbrookError):
    """The metadata does not allow what was asked."""


class TopicExistsError(MetadataError):
    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r} exists already")
        self.topic = topic


class TopicNotFoundError(MetadataError):
    def __init__(self, topic: str) -> None:
        super().__init__(f"there is no topic {topic!r}")
        self.topic = topic


class UnknownTopicIdError(MetadataError):
    def __init__(self, topic_id: bytes) -> None:
        super().__init__(f"there is no topic with the id {topic_id.hex()}")
        self.topic_id = topic_id


class TopicCollisionError(MetadataError):
    """Kafka's metrics read '.' as '_', so two topics may not differ in that alone."""

    def __init__(self, topic: str, other: str) -> None:
        super().__init__(f"topic {topic!r} would collide with {other!r}: '.' and '_' count as the same")
        self.topic = topic
        self.other = other


class InvalidPartitionsError(MetadataError):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
