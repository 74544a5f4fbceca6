"""State transitions of a group, and the actions of its timers.

`membership` calls these functions for requests, `GroupCoordinatorShard.tick` calls `expire`. They change the group in
memory and collect replies and records in the `GroupOperation`.

- The first rebalance of an empty group waits for the initial rebalance delay, and longer while members arrive
  (KIP-134). Any other rebalance ends as soon as all members have joined, at the latest after the longest rebalance
  timeout. Dynamic members that have not joined by then are removed; static ones (KIP-345) stay until their session
  expires.
- A rebalance also waits for pending members (KIP-394: those with a new member id, yet to join), up to their deadline.
- In a new generation every member has another rebalance timeout to send SyncGroup, or is removed (KAFKA-12890).
- A member whose session expires, or that leaves, is removed, which starts a rebalance.
"""

from logbrook.core.groups.errors import RebalanceInProgressError, UnknownMemberIdError
from logbrook.core.groups.group import Group, GroupState
from logbrook.core.groups.member import Member
from logbrook.core.groups.messages import JoinResult
from logbrook.core.groups.operation import GroupOperation
from logbrook.core.groups.records import MemberMetadata

# Minimum delay before a rebalance that no member joined is retried.
_RETRY_MS_MIN = 1_000


def prepare_rebalance(group: Group, operation: GroupOperation) -> None:
    """Start a rebalance: all members have to join again."""
    assert group.state is not GroupState.PREPARING_REBALANCE
    if group.state is GroupState.COMPLETING_REBALANCE:
        for member in group.members.values():
            group.assign(member, b"")
            if member.awaits_sync:
                operation.answer_sync(member, RebalanceInProgressError(group.group_id))
                member.touch(operation.now_ms)
    group.pending_sync.clear()
    group.sync_deadline_ms = None

    if group.state is GroupState.EMPTY:
        delay_ms = operation.config.initial_rebalance_delay_ms
        group.initial_delay_ms = delay_ms
        group.initial_delay_ms_left = max(group.rebalance_timeout_ms - delay_ms, 0)
        group.new_member_added = False
        group.join_deadline_ms = operation.now_ms + delay_ms
    else:
        group.join_deadline_ms = operation.now_ms + group.rebalance_timeout_ms
    group.move_to(GroupState.PREPARING_REBALANCE, operation.now_ms)
    complete_join_if_possible(group, operation)


def complete_join_if_possible(group: Group, operation: GroupOperation) -> None:
    """Begin the next generation if all members have joined."""
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    # The first rebalance waits for members that may still arrive, unless the configured delay is 0.
    if group.initial_delay_ms == 0 or (group.initial_delay_ms is None and group.all_joined):
        _complete_join(group, operation)


def remove_member(group: Group, member: Member, operation: GroupOperation) -> None:
    """Remove a member that left, or whose session expired."""
    _remove_and_reject(group, member, operation)
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare_rebalance(group, operation)
    else:
        complete_join_if_possible(group, operation)


def remove_pending_member(group: Group, member_id: str, operation: GroupOperation) -> None:
    del group.pending_members[member_id]
    complete_join_if_possible(group, operation)


def sync_received(group: Group, member: Member) -> None:
    """Stop waiting for the member's SyncGroup."""
    group.pending_sync.pop(member.member_id, None)
    if not group.pending_sync:
        group.sync_deadline_ms = None


def member_listing(group: Group) -> tuple[MemberMetadata, ...]:
    """Return the members as the leader's JoinGroup response lists them."""
    return tuple(member.to_metadata(group.protocol_name) for member in group.members.values())


def join_result(group: Group, member: Member) -> JoinResult:
    """Return the JoinGroup result of the current generation."""
    assert group.leader_id is not None
    is_leader = group.leader_id == member.member_id
    return JoinResult(
        member.member_id,
        group.generation,
        group.protocol_type,
        group.protocol_name,
        group.leader_id,
        member_listing(group) if is_leader else (),
    )


def expire(group: Group, operation: GroupOperation) -> None:
    """Apply expired deadlines: of pending members, sessions, the join phase, and missing SyncGroups."""
    now_ms = operation.now_ms
    for member_id in [member_id for member_id, deadline_ms in group.pending_members.items() if deadline_ms <= now_ms]:
        remove_pending_member(group, member_id, operation)
    for member in list(group.members.values()):
        if member.session_deadline_ms is not None and member.session_deadline_ms <= now_ms:
            if member.cannot_heartbeat:
                # The reply to its pending request starts a new session timeout.
                member.session_deadline_ms = None
            elif group.members.get(member.member_id) is member:
                remove_member(group, member, operation)
    if group.join_deadline_ms is not None and group.join_deadline_ms <= now_ms:
        _end_join_phase(group, operation)
    if group.sync_deadline_ms is not None and group.sync_deadline_ms <= now_ms:
        for member_id in list(group.pending_sync):
            _remove_and_reject(group, group.members[member_id], operation)
        prepare_rebalance(group, operation)


def _end_join_phase(group: Group, operation: GroupOperation) -> None:
    """End the join phase at its deadline, or extend the initial rebalance delay."""
    if group.initial_delay_ms is not None and group.new_member_added and group.initial_delay_ms_left > 0:
        delay_ms = min(operation.config.initial_rebalance_delay_ms, group.initial_delay_ms_left)
        group.initial_delay_ms_left = max(group.initial_delay_ms_left - group.initial_delay_ms, 0)
        group.initial_delay_ms = delay_ms
        group.new_member_added = False
        group.join_deadline_ms = operation.now_ms + delay_ms
    else:
        _complete_join(group, operation)


def _complete_join(group: Group, operation: GroupOperation) -> None:
    """Begin the next generation with the members that have joined."""
    for member in [member for member in group.members.values() if not (member.awaits_join or member.is_static)]:
        group.remove(member.member_id)
    if group.members and not _elect_joined_leader(group):
        # Only static members remain and none of them has joined: wait until they join or their sessions expire.
        group.initial_delay_ms = None
        group.join_deadline_ms = operation.now_ms + max(group.rebalance_timeout_ms, _RETRY_MS_MIN)
        return

    group.join_deadline_ms = None
    group.initial_delay_ms = None
    group.begin_generation()
    if not group.members:
        group.move_to(GroupState.EMPTY, operation.now_ms)
        operation.write_group(group, [])
        return
    group.move_to(GroupState.COMPLETING_REBALANCE, operation.now_ms)
    group.sync_deadline_ms = operation.now_ms + group.rebalance_timeout_ms
    for member in group.members.values():
        operation.answer_join(member, join_result(group, member))
        member.touch(operation.now_ms)
        member.is_new = False
        group.pending_sync[member.member_id] = None


def _elect_joined_leader(group: Group) -> bool:
    """Elect another leader if the current one has not joined again. Return False if no member has joined."""
    assert group.leader_id is not None
    if not group.members[group.leader_id].awaits_join:
        joined = next((member for member in group.members.values() if member.awaits_join), None)
        if joined is None:
            return False
        group.leader_id = joined.member_id
    return True


def _remove_and_reject(group: Group, member: Member, operation: GroupOperation) -> None:
    """Remove a member and reject its pending requests, so that a client that is still running joins as a new one."""
    error = UnknownMemberIdError(group.group_id, member.member_id)
    operation.answer_join(member, error)
    operation.answer_sync(member, error)
    group.remove(member.member_id)
    if not group.pending_sync:
        group.sync_deadline_ms = None
