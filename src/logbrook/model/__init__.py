"""Types shared by all packages.

- `TopicPartition` with the checks of topic names and partition numbers; `LogbrookError`, the base of all errors.
- `identifiers`: distinct integer types (offset, leader epoch, producer id and epoch, broker id and epoch).
- `event_log.event_logger`: structured logging. `version`: the version and the install commands of optional parts.

This is the lowest layer: it imports nothing else of Logbrook.
"""

from logbrook.model.errors import InvalidPartitionError, InvalidTopicNameError, LogbrookError, UnknownPartitionNameError
from logbrook.model.topic_partition import TopicPartition, check_partition, check_topic_name, select_partitions

__all__ = [
    "InvalidPartitionError",
    "InvalidTopicNameError",
    "LogbrookError",
    "TopicPartition",
    "UnknownPartitionNameError",
    "check_partition",
    "check_topic_name",
    "select_partitions",
]
