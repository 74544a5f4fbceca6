"""The rules of OffsetCommit: who may commit what.

A consumer that uses the coordinator for its offsets alone names no generation, and may commit while the group is
Empty. Otherwise only members may, and only in the present generation: a consumer that lost its partitions to another
must not move that one's offsets. A commit in PreparingRebalance is welcome, that is the moment to say what is done;
in CompletingRebalance the partitions have new owners, so the consumer is sent to join again.
"""

from logbrook.config.groups import GroupConfig
from logbrook.core.fields import STRING_BYTES_MAX
from logbrook.core.groups.errors import (
    GroupError,
    IllegalGenerationError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from logbrook.core.groups.group import Group, GroupState
from logbrook.core.groups.requests import CommitRequest, OffsetToCommit
from logbrook.core.groups.results import CommitDecision, Write
from logbrook.model import TopicPartition


def commit_offsets(group: Group, request: CommitRequest, config: GroupConfig, now_ms: int) -> CommitDecision:
    """The records of the offsets. Raises the GroupError that refuses all of them."""
    _check_committer(group, request, now_ms)
    accepted: list[OffsetToCommit] = []
    errors: dict[TopicPartition, GroupError] = {}
    metadata_bytes_max = min(config.offset_metadata_bytes_max, STRING_BYTES_MAX)
    for each in request.offsets:
        size = len(each.metadata.encode())
        if size > metadata_bytes_max:
            errors[each.partition] = OffsetMetadataTooLargeError(size, metadata_bytes_max)
        else:
            accepted.append(each)
    return CommitDecision(Write(group.group_id, group.offsets.commit(accepted, now_ms)), errors)


def _check_committer(group: Group, request: CommitRequest, now_ms: int) -> None:
    names_nobody = request.generation < 0 and not request.member_id and request.group_instance_id is None
    if group.state is GroupState.EMPTY and request.generation < 0:
        return
    if names_nobody:
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
