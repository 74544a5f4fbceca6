"""The rules by which operators delete groups and offsets.

A group can be deleted while it is Empty. Offsets can be deleted (KIP-496) while the group is Empty, and in a group of
consumers also for topics that none of them reads; what they read is their own to commit.
"""

from collections.abc import Collection, Sequence

from logbrook.core.groups.errors import GroupError, GroupSubscribedToTopicError, NonEmptyGroupError
from logbrook.core.groups.group import Group, GroupState
from logbrook.core.groups.results import OffsetDeletion, Write
from logbrook.core.groups.subscription import CONSUMER_PROTOCOL_TYPE
from logbrook.model import TopicPartition


def delete_group(group: Group) -> Write:
    """Raises NonEmptyGroupError."""
    if group.state is not GroupState.EMPTY:
        raise NonEmptyGroupError(group.group_id)
    records = group.offsets.delete_where(lambda _: True)
    if group.is_written:
        records.append(group.tombstone())
    return Write(group.group_id, records)


def delete_offsets(group: Group, partitions: Sequence[TopicPartition]) -> OffsetDeletion:
    """Raises NonEmptyGroupError when it is not known what the members read."""
    errors: dict[TopicPartition, GroupError] = {}
    if group.state is not GroupState.EMPTY:
        if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise NonEmptyGroupError(group.group_id)
        errors = {
            partition: GroupSubscribedToTopicError(group.group_id, partition.topic)
            for partition in partitions
            if group.is_subscribed(partition.topic)
        }
    records = group.offsets.delete(partition for partition in partitions if partition not in errors)
    return OffsetDeletion(Write(group.group_id, records), errors)


def delete_topic_offsets(group: Group, topics: Collection[str]) -> Write:
    return Write(group.group_id, group.offsets.delete_where(lambda partition: partition.topic in topics))
