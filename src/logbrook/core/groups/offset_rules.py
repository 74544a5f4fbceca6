"""Rules of OffsetCommit, OffsetDelete, DeleteGroups and offset retention.

Commit: a consumer that uses the coordinator for its offsets only names no generation and may commit while the group is
Empty. Otherwise only members may commit, in the current generation, so that a consumer that lost its partitions cannot
move the offsets of their new owner. A commit in PreparingRebalance is accepted; in CompletingRebalance the partitions
have new owners, and the consumer has to join again.

Delete: a group can be deleted while it is Empty. Offsets can be deleted (KIP-496) while the group is Empty, and in a
group of consumers also for topics that no member subscribes to.

Retention (KIP-211):

    Empty group                 counts from when the group became Empty, or from a later commit
    group without members ever  counts from the last commit
    Stable group of consumers   counts from the last commit, for topics that no member subscribes to
    otherwise                   nothing expires

An Empty group is deleted with its last offset. All groups are swept periodically, a limited number per tick.
"""

from collections.abc import Collection, Iterable, Sequence

from logbrook.config import GroupConfig
from logbrook.core.groups.errors import (
    GroupError,
    GroupSubscribedToTopicError,
    IllegalGenerationError,
    NonEmptyGroupError,
    OffsetBytesExceededError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from logbrook.core.groups.group import Group, GroupState
from logbrook.core.groups.member import CONSUMER_PROTOCOL_TYPE
from logbrook.core.groups.messages import CommitRequest, GroupWrite, OffsetDecision, OffsetToCommit
from logbrook.model import TopicPartition
from logbrook.records.fields import STRING_BYTES_MAX

SWEEP_INTERVAL_MS = 10 * 60_000
_GROUPS_PER_TICK_MAX = 1_000


def commit_offsets(
    group: Group, request: CommitRequest, config: GroupConfig, free_bytes: int, now_ms: int
) -> OffsetDecision:
    """Return the records of the offsets, which take at most `free_bytes` of memory in addition.

    Raises the GroupError that rejects all of them.
    """
    _check_committer(group, request, now_ms)
    accepted: list[OffsetToCommit] = []
    errors: dict[TopicPartition, GroupError] = {}
    metadata_bytes_max = min(config.offset_metadata_bytes_max, STRING_BYTES_MAX)
    for offset in request.offsets:
        size = len(offset.metadata.encode())
        if size > metadata_bytes_max:
            errors[offset.partition] = OffsetMetadataTooLargeError(size, metadata_bytes_max)
            continue
        more_bytes = group.offsets.growth(offset, is_pending=request.transactional)
        if more_bytes > 0 and more_bytes > free_bytes:
            errors[offset.partition] = OffsetBytesExceededError(group.group_id, config.state_bytes_max)
            continue
        free_bytes -= more_bytes
        accepted.append(offset)
    return OffsetDecision(GroupWrite(group.group_id, group.offsets.commit_records(accepted, now_ms)), errors)


def delete_group(group: Group) -> GroupWrite:
    """Return the tombstones of the group and its offsets. Raises NonEmptyGroupError."""
    if group.state is not GroupState.EMPTY:
        raise NonEmptyGroupError(group.group_id)
    records = group.offsets.tombstones_where(lambda _: True)
    if group.written_metadata is not None:
        records.append(group.tombstone())
    return GroupWrite(group.group_id, records)


def delete_offsets(group: Group, partitions: Sequence[TopicPartition]) -> OffsetDecision:
    """Raises NonEmptyGroupError if the members' subscriptions are unknown."""
    errors: dict[TopicPartition, GroupError] = {}
    if group.state is not GroupState.EMPTY:
        if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise NonEmptyGroupError(group.group_id)
        errors = {
            partition: GroupSubscribedToTopicError(group.group_id, partition.topic)
            for partition in partitions
            if group.is_subscribed(partition.topic)
        }
    records = group.offsets.tombstones(partition for partition in partitions if partition not in errors)
    return OffsetDecision(GroupWrite(group.group_id, records), errors)


def delete_topic_offsets(group: Group, topics: Collection[str]) -> GroupWrite:
    return GroupWrite(group.group_id, group.offsets.tombstones_where(lambda partition: partition.topic in topics))


def expire_offsets(group: Group, config: GroupConfig, now_ms: int) -> GroupWrite | None:
    """Return the tombstones of the offsets past their retention; None if there are none."""
    expired = _expired_partitions(group, config, now_ms)
    records = group.offsets.tombstones(expired)
    if group.is_unused and group.written_metadata is not None and not group.offsets.has_others_than(expired):
        records.append(group.tombstone())
    return GroupWrite(group.group_id, records) if records else None


class RetentionSweep:
    """Schedule of the retention sweep: which groups to check, and when."""

    def __init__(self) -> None:
        # When the next step is due; None before `start`.
        self.next_ms: int | None = None
        self._remaining: list[str] = []

    def start(self, now_ms: int) -> None:
        self.next_ms = now_ms + SWEEP_INTERVAL_MS

    def take_due(self, group_ids: Iterable[str], now_ms: int) -> list[str]:
        """Return the groups to check now. While a sweep has groups remaining, the next step is due at once."""
        if self.next_ms is None or now_ms < self.next_ms:
            return []
        if not self._remaining:
            self._remaining = list(group_ids)
        due, self._remaining = self._remaining[:_GROUPS_PER_TICK_MAX], self._remaining[_GROUPS_PER_TICK_MAX:]
        self.next_ms = now_ms if self._remaining else now_ms + SWEEP_INTERVAL_MS
        return due


def _check_committer(group: Group, request: CommitRequest, now_ms: int) -> None:
    if group.state is GroupState.EMPTY and request.generation < 0:
        return
    if request.generation < 0 and not request.member_id and request.group_instance_id is None:
        # Old versions of TxnOffsetCommit never name a member.
        if not request.transactional:
            raise UnknownMemberIdError(group.group_id, request.member_id)
        return
    member = group.current_member(request.member_id, request.group_instance_id)
    if request.generation != group.generation:
        raise IllegalGenerationError(group.group_id, request.generation, group.generation)
    if request.transactional:
        return
    if group.state is GroupState.COMPLETING_REBALANCE:
        raise RebalanceInProgressError(group.group_id)
    member.touch(now_ms)


def _expired_partitions(group: Group, config: GroupConfig, now_ms: int) -> list[TopicPartition]:
    retention_ms = config.offsets_retention_ms
    if group.state is GroupState.EMPTY:
        since_ms = group.state_timestamp_ms if group.protocol_type is not None else None
        return group.offsets.expired(now_ms, retention_ms, since_ms, kept_topics=())
    if group.state is GroupState.STABLE and group.subscribed_topics is not None:
        return group.offsets.expired(now_ms, retention_ms, None, kept_topics=group.subscribed_topics)
    return []
