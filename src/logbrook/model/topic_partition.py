"""A topic's partition, the unit of order and of storage.

A topic name becomes part of a directory name, so the rules are Kafka's and they are strict: letters, digits, `.`,
`_` and `-`, at most 249 of them, and neither `.` nor `..`. The partition's directory is `<topic>-<partition>`, which
reads back unambiguously because the number is what follows the last dash.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from logbrook.model.errors import InvalidPartitionError, InvalidTopicNameError, NothingNamedSoError

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
        """The partition a directory belongs to, or None when the name is not a partition's."""
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
    """Raises InvalidTopicNameError unless `name` may name a topic."""
    if not name:
        raise InvalidTopicNameError(name, "is empty")
    if name in (".", ".."):
        raise InvalidTopicNameError(name, "may not be '.' or '..'")
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        raise InvalidTopicNameError(name, f"is longer than {TOPIC_NAME_LENGTH_MAX} characters")
    if _ALLOWED.fullmatch(name) is None:
        raise InvalidTopicNameError(name, "has characters other than ASCII letters, digits, '.', '_' and '-'")


def check_partition(partition: TopicPartition) -> None:
    """Raises InvalidTopicNameError or InvalidPartitionError unless there may be such a partition."""
    check_topic_name(partition.topic)
    if not 0 <= partition.partition <= PARTITION_MAX:
        raise InvalidPartitionError(partition.partition)


def named_partitions(there: Sequence[TopicPartition], names: Sequence[str]) -> list[TopicPartition]:
    """Those of the partitions that are named, one by one or by their topic; all if there are no names.

    Raises NothingNamedSoError.
    """
    if not names:
        return sorted(there)
    found: list[TopicPartition] = []
    for name in names:
        named = [one for one in there if one.directory == name] or [one for one in there if one.topic == name]
        if not named:
            raise NothingNamedSoError(name)
        found += sorted(named)
    return list(dict.fromkeys(found))
