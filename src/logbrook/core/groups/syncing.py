"""The rules of SyncGroup.

The leader's sync carries the assignment. It makes the group Stable and has it written; everyone who waits is answered
when that is durable, so that no consumer works by an assignment that a restart would forget. One who syncs later is
answered from the assignment as it stands; if its write is still on its way, so is the answer.
"""

from logbrook.core.groups.errors import (
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    RebalanceInProgressError,
)
from logbrook.core.groups.group import Group, GroupState
from logbrook.core.groups.member import Member
from logbrook.core.groups.rebalance import sync_received
from logbrook.core.groups.requests import SyncRequest
from logbrook.core.groups.results import Reply, SyncResult
from logbrook.core.groups.turn import Turn


def sync_group(group: Group, request: SyncRequest, reply_to: object, turn: Turn) -> None:
    """Answer the request now or later. Raises the GroupError that refuses it."""
    member = group.current_member(request.member_id, request.group_instance_id)
    if request.generation != group.generation:
        raise IllegalGenerationError(group.group_id, request.generation, group.generation)
    for asked, current in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol_name),
    ):
        if asked is not None and asked != current:
            names = () if request.protocol_name is None else (request.protocol_name,)
            raise InconsistentGroupProtocolError(group.group_id, request.protocol_type, names)

    if group.state is GroupState.PREPARING_REBALANCE:
        raise RebalanceInProgressError(group.group_id)
    if group.state is GroupState.COMPLETING_REBALANCE:
        turn.await_sync(group, member, reply_to)
        sync_received(group, member)
        if group.leader_id == member.member_id:
            _assign(group, request, turn)
        return
    sync_received(group, member)
    member.touch(turn.now_ms)
    reply = Reply(reply_to, _result(group, member))
    if group.metadata_in_flight:
        # Writing the same again is how this answer gets behind the first write, durable when that is.
        turn.write_group(group, [reply])
    else:
        turn.outcome.replies.append(reply)


def _assign(group: Group, request: SyncRequest, turn: Turn) -> None:
    """Give everyone what the leader says, and nothing where it says nothing."""
    assignments = dict(request.assignments)
    replies: list[Reply] = []
    for member in group.members.values():
        member.assignment = bytes(assignments.get(member.member_id, b""))
        reply = turn.take_sync_reply(member, _result(group, member))
        if reply is not None:
            replies.append(reply)
            member.touch(turn.now_ms)
    group.move_to(GroupState.STABLE, turn.now_ms)
    turn.write_group(group, replies)


def _result(group: Group, member: Member) -> SyncResult:
    return SyncResult(group.protocol_type, group.protocol_name, member.assignment)
