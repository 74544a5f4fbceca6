"""What the broker knows of itself: its cluster, its topics and their settings."""

from logbrook.core.metadata.errors import (
    InvalidPartitionsError,
    MetadataError,
    TopicCollisionError,
    TopicExistsError,
    TopicNotFoundError,
    UnknownTopicIdError,
)
from logbrook.core.metadata.metadata import ClusterMetadata, MetadataRecord, Topic

__all__ = [
    "ClusterMetadata",
    "InvalidPartitionsError",
    "MetadataError",
    "MetadataRecord",
    "Topic",
    "TopicCollisionError",
    "TopicExistsError",
    "TopicNotFoundError",
    "UnknownTopicIdError",
]
