"""Kafka's consumer protocol: the subscriptions and assignments that members exchange through the coordinator.

A subscription is a version, topics and user data; an assignment is a version, partitions by topic and user data. Later
versions append fields, which are ignored here. Both are written in version 0, which every member reads.

Partitions are assigned by range: of each topic, members in the order of their ids get consecutive partitions, equally
many, and the first members one more if the number does not divide evenly.
"""

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct

from logbrook.client.client import group_by_topic
from logbrook.client.errors import ClientError
from logbrook.model import TopicPartition
from logbrook.records.fields import FieldReader

PROTOCOL_TYPE = "consumer"
RANGE = "range"

_VERSION = Struct(">h").pack(0)
_NO_USER_DATA = Struct(">i").pack(-1)
_INT16 = Struct(">h")
_INT32 = Struct(">i")


class GroupProtocolError(ClientError):
    """A member's subscription or assignment is not in the format of the consumer protocol."""

    def __init__(self, subject: str, reason: str) -> None:
        super().__init__(f"{subject} {reason}")


def encode_subscription(topics: Sequence[str]) -> bytes:
    return b"".join([_VERSION, _INT32.pack(len(topics)), *map(_string, topics), _NO_USER_DATA])


def decode_subscription(data: bytes) -> list[str]:
    """Return the topics. Raises GroupProtocolError."""
    reader = FieldReader(data, "the subscription of a member", GroupProtocolError)
    reader.int16()
    return [reader.string() for _ in range(reader.array_count(item_bytes_min=2))]


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    by_topic = group_by_topic((partition, partition.partition) for partition in partitions)
    parts = [_VERSION, _INT32.pack(len(by_topic))]
    for topic, numbers in by_topic.items():
        parts += [_string(topic), _INT32.pack(len(numbers)), *map(_INT32.pack, numbers)]
    return b"".join([*parts, _NO_USER_DATA])


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions; none for empty data, which is the state before the first assignment.

    Raises GroupProtocolError.
    """
    if not data:
        return ()
    reader = FieldReader(data, "the assignment of a member", GroupProtocolError)
    reader.int16()
    partitions: list[TopicPartition] = []
    for _ in range(reader.array_count(item_bytes_min=6)):
        topic = reader.string()
        partitions += [TopicPartition(topic, reader.int32()) for _ in range(reader.array_count(item_bytes_min=4))]
    return tuple(partitions)


def assign_by_range(
    subscriptions: Mapping[str, Sequence[str]], partitions: Mapping[str, Sequence[int]]
) -> dict[str, list[TopicPartition]]:
    """Return the partitions of each member, given the topics of each member and the partitions of each topic."""
    assigned: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
    for topic in sorted({topic for topics in subscriptions.values() for topic in topics}):
        numbers = sorted(partitions.get(topic, ()))
        members = sorted(member for member, topics in subscriptions.items() if topic in topics)
        share, extra = divmod(len(numbers), len(members))
        for rank, member in enumerate(members):
            first = share * rank + min(rank, extra)
            run = numbers[first : first + share + (rank < extra)]
            assigned[member] += [TopicPartition(topic, number) for number in run]
    return assigned


def _string(text: str) -> bytes:
    encoded = text.encode()
    return _INT16.pack(len(encoded)) + encoded
