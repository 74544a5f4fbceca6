"""The vocabulary every other package speaks. It imports nothing of ours."""

from logbrook.model.errors import InvalidTopicNameError, LogbrookError
from logbrook.model.topic_partition import TopicPartition, check_topic_name

__all__ = ["InvalidTopicNameError", "LogbrookError", "TopicPartition", "check_topic_name"]
