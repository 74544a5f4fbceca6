"""The vocabulary every other package speaks. It imports nothing of ours."""

from logbrook.model.errors import InvalidPartitionError, InvalidTopicNameError, LogbrookError
from logbrook.model.topic_partition import TopicPartition, check_partition, check_topic_name

__all__ = [
    "InvalidPartitionError",
    "InvalidTopicNameError",
    "LogbrookError",
    "TopicPartition",
    "check_partition",
    "check_topic_name",
]
