"""The transitions of a group, and what its timers do.

- Members of an empty group are awaited for a while, and longer while more of them come (KIP-134). Any other rebalance
  ends as soon as all members have joined, at the latest after the longest rebalance timeout. Dynamic members that have
  not joined by then are removed; static ones (KIP-345) stay until their session ends.
- An id that was given out (KIP-394) but not used holds the rebalance up until it expires.
- In a new generation everyone has another rebalance timeout to send SyncGroup, or is removed (KAFKA-12890).
- A session that ends removes its member, and so does leaving; both start a rebalance.
"""

from logbrook.core.groups.errors import RebalanceInProgressError, UnknownMemberIdError
from logbrook.core.groups.group import Group, GroupState
from logbrook.core.groups.member import Member
from logbrook.core.groups.results import JoinedMember, JoinResult
from logbrook.core.groups.turn import Turn

# A rebalance that nobody joined is tried again after this long at the earliest, whatever the members ask for.
_RETRY_MS_MIN = 1_000


def prepare_rebalance(group: Group, turn: Turn) -> None:
    """Have everyone join again."""
    assert group.state is not GroupState.PREPARING_REBALANCE
    if group.state is GroupState.COMPLETING_REBALANCE:
        for member in group.members.values():
            member.assignment = b""
            if member.awaits_sync:
                turn.answer_sync(member, RebalanceInProgressError(group.group_id))
                member.touch(turn.now_ms)
    _stop_waiting_for_syncs(group)

    if group.state is GroupState.EMPTY:
        delay_ms = turn.config.initial_rebalance_delay_ms
        group.initial_delay_ms = delay_ms
        group.initial_delay_ms_left = max(group.rebalance_timeout_ms - delay_ms, 0)
        group.new_member_added = False
        group.join_deadline_ms = turn.now_ms + delay_ms
    else:
        group.join_deadline_ms = turn.now_ms + group.rebalance_timeout_ms
    group.move_to(GroupState.PREPARING_REBALANCE, turn.now_ms)
    complete_join_if_possible(group, turn)


def complete_join_if_possible(group: Group, turn: Turn) -> None:
    """End the collecting of joins if there is nobody left to wait for."""
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    # A first rebalance waits for members that nobody knows of yet, unless it is told not to wait at all.
    if group.initial_delay_ms == 0 or (group.initial_delay_ms is None and group.all_joined):
        _complete_join(group, turn)


def remove_member(group: Group, member: Member, turn: Turn) -> None:
    """A member left, or its session ended."""
    _drop(group, member, turn)
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare_rebalance(group, turn)
    else:
        complete_join_if_possible(group, turn)


def remove_pending_member(group: Group, member_id: str, turn: Turn) -> None:
    del group.pending_members[member_id]
    complete_join_if_possible(group, turn)


def sync_received(group: Group, member: Member) -> None:
    group.pending_sync.pop(member.member_id, None)
    if not group.pending_sync:
        group.sync_deadline_ms = None


def member_listing(group: Group) -> tuple[JoinedMember, ...]:
    """What a leader is told about the members."""
    return tuple(
        JoinedMember(member.member_id, member.group_instance_id, member.metadata_under(group.protocol_name))
        for member in group.members.values()
    )


def join_result(group: Group, member: Member) -> JoinResult:
    """Welcome to the present generation."""
    assert group.leader_id is not None
    leads = group.leader_id == member.member_id
    return JoinResult(
        member.member_id,
        group.generation,
        group.protocol_type,
        group.protocol_name,
        group.leader_id,
        member_listing(group) if leads else (),
    )


def expire(group: Group, turn: Turn) -> None:
    """Do what is due: ids that nobody used, sessions, the end of a rebalance, missing syncs."""
    now_ms = turn.now_ms
    for member_id in [each for each, deadline_ms in group.pending_members.items() if deadline_ms <= now_ms]:
        remove_pending_member(group, member_id, turn)
    for member in list(group.members.values()):
        if member.session_deadline_ms is not None and member.session_deadline_ms <= now_ms:
            if member.cannot_heartbeat:
                member.session_deadline_ms = None
            elif group.members.get(member.member_id) is member:
                remove_member(group, member, turn)
    if group.join_deadline_ms is not None and group.join_deadline_ms <= now_ms:
        _end_join_phase(group, turn)
    if group.sync_deadline_ms is not None and group.sync_deadline_ms <= now_ms:
        for member_id in list(group.pending_sync):
            _drop(group, group.members[member_id], turn)
        prepare_rebalance(group, turn)


def _end_join_phase(group: Group, turn: Turn) -> None:
    """The time to join is up."""
    if group.initial_delay_ms is not None and group.new_member_added and group.initial_delay_ms_left > 0:
        delay_ms = min(turn.config.initial_rebalance_delay_ms, group.initial_delay_ms_left)
        group.initial_delay_ms_left = max(group.initial_delay_ms_left - group.initial_delay_ms, 0)
        group.initial_delay_ms = delay_ms
        group.new_member_added = False
        group.join_deadline_ms = turn.now_ms + delay_ms
    else:
        _complete_join(group, turn)


def _complete_join(group: Group, turn: Turn) -> None:
    """Begin the next generation with those who joined."""
    for member in [each for each in group.members.values() if not (each.awaits_join or each.is_static)]:
        group.remove(member.member_id)
    if group.members and not _elect_joined_leader(group):
        # Only static members are left and none of them joined: their sessions decide.
        group.initial_delay_ms = None
        group.join_deadline_ms = turn.now_ms + max(group.rebalance_timeout_ms, _RETRY_MS_MIN)
        return

    group.join_deadline_ms = None
    group.initial_delay_ms = None
    group.begin_generation()
    if not group.members:
        group.move_to(GroupState.EMPTY, turn.now_ms)
        turn.write_group(group, [])
        return
    group.move_to(GroupState.COMPLETING_REBALANCE, turn.now_ms)
    group.sync_deadline_ms = turn.now_ms + group.rebalance_timeout_ms
    for member in group.members.values():
        turn.answer_join(member, join_result(group, member))
        member.touch(turn.now_ms)
        member.is_new = False
        group.pending_sync[member.member_id] = None


def _elect_joined_leader(group: Group) -> bool:
    """Have a leader that has joined. False if nobody has."""
    assert group.leader_id is not None
    if not group.members[group.leader_id].awaits_join:
        joined = next((member for member in group.members.values() if member.awaits_join), None)
        if joined is None:
            return False
        group.leader_id = joined.member_id
    return True


def _drop(group: Group, member: Member, turn: Turn) -> None:
    """Take a member out and refuse what it waits for: a client that is still there joins as a new one."""
    error = UnknownMemberIdError(group.group_id, member.member_id)
    turn.answer_join(member, error)
    turn.answer_sync(member, error)
    group.remove(member.member_id)
    if not group.pending_sync:
        group.sync_deadline_ms = None


def _stop_waiting_for_syncs(group: Group) -> None:
    group.pending_sync.clear()
    group.sync_deadline_ms = None
