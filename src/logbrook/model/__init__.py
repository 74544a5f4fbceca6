"""The vocabulary every other package speaks. It imports nothing of ours."""

from logbrook.model.errors import InvalidPartitionError, InvalidTopicNameError, LogbrookError, NothingNamedSoError
from logbrook.model.topic_partition import TopicPartition, check_partition, check_topic_name, named_partitions

__all__ = [
    "InvalidPartitionError",
    "InvalidTopicNameError",
    "LogbrookError",
    "NothingNamedSoError",
    "TopicPartition",
    "check_partition",
    "check_topic_name",
    "named_partitions",
]
