"""Topic partitions, their directory names, and the rules for topic names.

The rules are Kafka's: ASCII letters, digits, `.`, `_` and `-`, at most 249 characters, and neither `.` nor `..`. A
partition's directory is `<topic>-<partition>`; the number is what follows the last dash.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from logbrook.model.errors import InvalidPartitionError, InvalidTopicNameError, UnknownPartitionNameError

TOPIC_NAME_LENGTH_MAX = 249
PARTITION_MAX = 2**31 - 1
_ALLOWED = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)
_DIRECTORY = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>0|[1-9][0-9]{0,9})", re.ASCII)


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    @property
    def directory(self) -> str:
        return f"{self.topic}-{self.partition}"

    @classmethod
    def from_directory(cls, name: str) -> "TopicPartition | None":
        """Parse a directory name; None if it is not a partition's."""
        match = _DIRECTORY.fullmatch(name)
        if match is None or int(match["partition"]) > PARTITION_MAX:
            return None
        try:
            check_topic_name(match["topic"])
        except InvalidTopicNameError:
            return None
        return cls(match["topic"], int(match["partition"]))

    def __str__(self) -> str:
        return self.directory


def check_topic_name(name: str) -> None:
    """Raises InvalidTopicNameError unless `name` is a valid topic name."""
    if not name:
        raise InvalidTopicNameError(name, "is empty")
    if name in (".", ".."):
        raise InvalidTopicNameError(name, "may not be '.' or '..'")
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        raise InvalidTopicNameError(name, f"is longer than {TOPIC_NAME_LENGTH_MAX} characters")
    if _ALLOWED.fullmatch(name) is None:
        raise InvalidTopicNameError(name, "has characters other than ASCII letters, digits, '.', '_' and '-'")


def check_partition(partition: TopicPartition) -> None:
    """Raises InvalidTopicNameError or InvalidPartitionError unless the topic name and the number are valid."""
    check_topic_name(partition.topic)
    if not 0 <= partition.partition <= PARTITION_MAX:
        raise InvalidPartitionError(partition.partition)


def select_partitions(partitions: Sequence[TopicPartition], names: Sequence[str]) -> list[TopicPartition]:
    """Return the partitions that match `names`, each a topic or `<topic>-<partition>`; all if `names` is empty.

    Raises UnknownPartitionNameError.
    """
    if not names:
        return sorted(partitions)
    selected: list[TopicPartition] = []
    for name in names:
        matching = [partition for partition in partitions if partition.directory == name]
        matching = matching or [partition for partition in partitions if partition.topic == name]
        if not matching:
            raise UnknownPartitionNameError(name)
        selected += sorted(matching)
    return list(dict.fromkeys(selected))
