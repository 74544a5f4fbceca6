"""What the members of a consumer group tell each other through its coordinator (Kafka's consumer protocol).

A subscription is a version, topics and bytes of the member's own; an assignment a version, the partitions of each topic
and such bytes. Later versions add fields at the end, which are not needed here. All is written in version 0, which
every member reads.

Partitions are assigned by range: of each topic, members in the order of their ids get runs of partitions of the same
length, and the first ones get one more where they do not divide evenly.
"""

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct

from logbrook.client.errors import ClientError
from logbrook.core.fields import FieldReader
from logbrook.model import TopicPartition

PROTOCOL_TYPE = "consumer"
RANGE = "range"

_VERSION = Struct(">h").pack(0)
_NO_USER_DATA = Struct(">i").pack(-1)
_INT16 = Struct(">h")
_INT32 = Struct(">i")


class GroupProtocolError(ClientError):
    """A member's subscription or assignment that cannot be read: it has a format of its own."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what} {why}")


def encode_subscription(topics: Sequence[str]) -> bytes:
    return b"".join([_VERSION, _INT32.pack(len(topics)), *map(_string, topics), _NO_USER_DATA])


def decode_subscription(data: bytes) -> list[str]:
    """The topics. Raises GroupProtocolError."""
    reader = FieldReader(data, "the subscription of a member", GroupProtocolError)
    reader.int16()
    return [reader.string() for _ in range(reader.array_count(item_bytes_min=2))]


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for one in partitions:
        by_topic.setdefault(one.topic, []).append(one.partition)
    parts = [_VERSION, _INT32.pack(len(by_topic))]
    for topic, numbers in by_topic.items():
        parts += [_string(topic), _INT32.pack(len(numbers)), *map(_INT32.pack, numbers)]
    return b"".join([*parts, _NO_USER_DATA])


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions; none for no bytes at all, which is what a member has before it is given any.

    Raises GroupProtocolError.
    """
    if not data:
        return ()
    reader = FieldReader(data, "the assignment of a member", GroupProtocolError)
    reader.int16()
    found = []
    for _ in range(reader.array_count(item_bytes_min=6)):
        topic = reader.string()
        found += [TopicPartition(topic, reader.int32()) for _ in range(reader.array_count(item_bytes_min=4))]
    return tuple(found)


def assign_by_range(
    subscriptions: Mapping[str, Sequence[str]], partitions: Mapping[str, Sequence[int]]
) -> dict[str, list[TopicPartition]]:
    """Who reads what: member ids to partitions, given what each subscribes to and what there is of each topic."""
    assigned: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
    for topic in sorted({topic for topics in subscriptions.values() for topic in topics}):
        numbers = sorted(partitions.get(topic, ()))
        members = sorted(member for member, topics in subscriptions.items() if topic in topics)
        each, more = divmod(len(numbers), len(members))
        for place, member in enumerate(members):
            first = each * place + min(place, more)
            run = numbers[first : first + each + (place < more)]
            assigned[member] += [TopicPartition(topic, number) for number in run]
    return assigned


def _string(text: str) -> bytes:
    encoded = text.encode()
    return _INT16.pack(len(encoded)) + encoded
