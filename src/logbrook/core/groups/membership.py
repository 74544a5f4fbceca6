"""The rules of JoinGroup, SyncGroup and LeaveGroup.

JoinGroup without a member id: a new dynamic member gets an id and joins again with it (KIP-394), or is added at once if
the client is too old for that; a static member whose instance id is in use replaces its predecessor, which is fenced
(KIP-345). JoinGroup with an id: a pending member is added, and a member that joins again

    PreparingRebalance    waits for the other members
    CompletingRebalance   gets the generation again if unchanged (the first reply was lost), else starts a rebalance
    Stable                gets the generation if it is an unchanged follower, else starts a rebalance

A static member that replaces its predecessor in a Stable group takes over the predecessor's assignment without a
rebalance, unless it changes the selected protocol or its topics. If it is the leader it must not assign again, because
the other members would not sync: from JoinGroup v9 on the response has skip_assignment (KIP-814), before that the
response names its predecessor as the leader.

SyncGroup of the leader carries the assignment. It makes the group Stable and is written; every pending SyncGroup is
answered with that write. Members that sync later are answered from the assignment.

LeaveGroup removes several members, each with its own result (KIP-345). A client names its member id; an operator may
name a static member by its instance id. A pending member can leave too.
"""

from uuid import UUID

from logbrook.config import GroupConfig
from logbrook.core.groups.errors import (
    FencedInstanceIdError,
    GroupBytesExceededError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    MemberIdRequiredError,
    OversizedFieldError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from logbrook.core.groups.group import Group, GroupState
from logbrook.core.groups.member import (
    CONSUMER_PROTOCOL_TYPE,
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    Member,
    member_bytes,
    subscribed_topics,
)
from logbrook.core.groups.messages import GroupReply, JoinRequest, JoinResult, LeavingMember, SyncRequest, SyncResult
from logbrook.core.groups.operation import GroupOperation
from logbrook.core.groups.rebalance import (
    complete_join_if_possible,
    join_result,
    member_listing,
    prepare_rebalance,
    remove_member,
    remove_pending_member,
    sync_received,
)
from logbrook.ports import Random
from logbrook.records.fields import STRING_BYTES_MAX

# A member id starts with the client id, which may have the maximum length of a string, and must be a string itself.
_MEMBER_ID_PREFIX_LENGTH_MAX = 255


def check_join(request: JoinRequest, config: GroupConfig) -> None:
    """Check what does not depend on the group. Raises a GroupError."""
    timeout_ms_min, timeout_ms_max = config.session_timeout_ms_min, config.session_timeout_ms_max
    if not timeout_ms_min <= request.session_timeout_ms <= timeout_ms_max:
        raise InvalidSessionTimeoutError(request.session_timeout_ms, timeout_ms_min, timeout_ms_max)
    texts = [
        ("client_id", request.client_id),
        ("client_host", request.client_host),
        ("group_instance_id", request.group_instance_id or ""),
        ("protocol_type", request.protocol_type),
        *(("protocol name", name) for name, _ in request.protocols),
    ]
    for field, text in texts:
        # A character has at most four bytes.
        if len(text) > STRING_BYTES_MAX // 4 and (size := len(text.encode())) > STRING_BYTES_MAX:
            raise OversizedFieldError(field, size, STRING_BYTES_MAX)
    if (size := _member_bytes(request)) > config.member_bytes_max:
        raise OversizedFieldError("the member", size, config.member_bytes_max)


def join_group(group: Group, request: JoinRequest, reply_to: object, random: Random, operation: GroupOperation) -> None:
    """Answer the request or keep it pending. Raises the GroupError that rejects it."""
    try:
        if not _has_room(group, request.member_id, operation):
            # Of a group above its maximum size, the members that rejoin last are removed.
            group.remove(request.member_id)
            raise GroupMaxSizeReachedError(group.group_id, operation.config.members_max)
        names = tuple(name for name, _ in request.protocols)
        if not group.supports(request.protocol_type, names):
            raise InconsistentGroupProtocolError(group.group_id, request.protocol_type, names)
        _check_growth(group, _member_bytes(request) - _current_bytes(group, request), operation)
        if request.member_id:
            _join_with_id(group, request, reply_to, operation)
        else:
            _join_without_id(group, request, reply_to, _new_member_id(request, random), operation)
    finally:
        complete_join_if_possible(group, operation)


def sync_group(group: Group, request: SyncRequest, reply_to: object, operation: GroupOperation) -> None:
    """Answer the request or keep it pending. Raises the GroupError that rejects it."""
    member = group.current_member(request.member_id, request.group_instance_id)
    if request.generation != group.generation:
        raise IllegalGenerationError(group.group_id, request.generation, group.generation)
    for requested, current in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol_name),
    ):
        if requested is not None and requested != current:
            names = () if request.protocol_name is None else (request.protocol_name,)
            raise InconsistentGroupProtocolError(group.group_id, request.protocol_type, names)

    if group.state is GroupState.PREPARING_REBALANCE:
        raise RebalanceInProgressError(group.group_id)
    if group.state is GroupState.COMPLETING_REBALANCE:
        is_leader = group.leader_id == member.member_id
        if is_leader:
            _check_growth(group, _assignments_growth(group, request), operation)
        operation.await_sync(group, member, reply_to)
        sync_received(group, member)
        if is_leader:
            _assign(group, request, operation)
        return
    sync_received(group, member)
    member.touch(operation.now_ms)
    operation.outcome.reply(reply_to, _sync_result(group, member))


def leave_group(group: Group | None, group_id: str, leaving: LeavingMember, operation: GroupOperation) -> None:
    """Remove a member. Raises UnknownMemberIdError or FencedInstanceIdError."""
    if group is None:
        raise UnknownMemberIdError(group_id, leaving.member_id)
    if leaving.member_id in group.pending_members:
        remove_pending_member(group, leaving.member_id, operation)
        return
    member_id = leaving.member_id
    if not member_id and leaving.group_instance_id is not None:
        member_id = group.static_members.get(leaving.group_instance_id, "")
    remove_member(group, group.current_member(member_id, leaving.group_instance_id), operation)


def _has_room(group: Group, member_id: str, operation: GroupOperation) -> bool:
    members_max = operation.config.members_max
    member = group.members.get(member_id)
    if not member_id and len(group.pending_members) >= members_max:
        return False
    if group.state is GroupState.EMPTY:
        return True
    if group.state is GroupState.PREPARING_REBALANCE:
        awaiting = sum(other.awaits_join for other in group.members.values())
        return (member is not None and member.awaits_join) or awaiting < members_max
    return member is not None or len(group.members) < members_max


def _member_bytes(request: JoinRequest) -> int:
    return member_bytes(request.client_id, request.client_host, request.group_instance_id, request.protocols)


def _current_bytes(group: Group, request: JoinRequest) -> int:
    """Return the memory of the member that the request updates or replaces, without its assignment."""
    member_id = group.static_members.get(request.group_instance_id or "", request.member_id)
    return group.members[member_id].own_bytes if member_id in group.members else 0


def _assignments_growth(group: Group, request: SyncRequest) -> int:
    sizes = {member_id: len(assignment) for member_id, assignment in request.assignments}
    return sum(sizes.get(member.member_id, 0) - len(member.assignment) for member in group.members.values())


def _check_growth(group: Group, more_bytes: int, operation: GroupOperation) -> None:
    """Raises GroupBytesExceededError if the members may not take `more_bytes`."""
    config = operation.config
    if more_bytes > 0 and group.members_bytes + more_bytes > config.group_bytes_max:
        raise GroupBytesExceededError(group.group_id, "group_bytes_max", config.group_bytes_max)
    if more_bytes > 0 and more_bytes > operation.free_bytes():
        raise GroupBytesExceededError(group.group_id, "state_bytes_max", config.state_bytes_max)


def _join_without_id(
    group: Group, request: JoinRequest, reply_to: object, member_id: str, operation: GroupOperation
) -> None:
    if request.group_instance_id is not None:
        predecessor = group.static_members.get(request.group_instance_id)
        if predecessor is not None:
            _replace_static(group, group.members[predecessor], request, reply_to, member_id, operation)
        else:
            _add(group, request, reply_to, member_id, operation)
    elif request.requires_known_member_id:
        group.pending_members[member_id] = operation.now_ms + request.session_timeout_ms
        raise MemberIdRequiredError(group.group_id, member_id)
    else:
        _add(group, request, reply_to, member_id, operation)


def _join_with_id(group: Group, request: JoinRequest, reply_to: object, operation: GroupOperation) -> None:
    if request.member_id in group.pending_members:
        if request.group_instance_id is not None:
            # Only dynamic members get an id in advance.
            raise UnknownMemberIdError(group.group_id, request.member_id)
        _add(group, request, reply_to, request.member_id, operation)
        return

    member = group.current_member(request.member_id, request.group_instance_id)
    assert group.state is not GroupState.EMPTY, "the group has a member"
    is_unchanged = member.matches(request.protocols)
    is_follower = group.leader_id != member.member_id
    if is_unchanged and (
        group.state is GroupState.COMPLETING_REBALANCE or (group.state is GroupState.STABLE and is_follower)
    ):
        operation.outcome.reply(reply_to, join_result(group, member))
        return
    group.update(member, request)
    operation.await_join(group, member, reply_to)
    if group.state is not GroupState.PREPARING_REBALANCE:
        prepare_rebalance(group, operation)


def _add(group: Group, request: JoinRequest, reply_to: object, member_id: str, operation: GroupOperation) -> None:
    member = Member.from_request(request, member_id)
    if group.state is GroupState.PREPARING_REBALANCE and group.generation == 0:
        group.new_member_added = True
    group.add(member, request.protocol_type)
    member.session_deadline_ms = operation.now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS
    operation.await_join(group, member, reply_to)
    if group.state is not GroupState.PREPARING_REBALANCE:
        prepare_rebalance(group, operation)


def _replace_static(
    group: Group, member: Member, request: JoinRequest, reply_to: object, member_id: str, operation: GroupOperation
) -> None:
    assert request.group_instance_id is not None
    fenced = FencedInstanceIdError(group.group_id, request.group_instance_id, member.member_id)
    operation.answer_join(member, fenced)
    operation.answer_sync(member, fenced)

    leader_id_before = group.leader_id
    topics_before = _topics(group, member)
    group.replace_static(member, member_id)
    group.update(member, request)
    member.touch(operation.now_ms)
    if group.state is not GroupState.STABLE:
        operation.await_join(group, member, reply_to)
        if group.state is GroupState.COMPLETING_REBALANCE:
            # The leader may already compute an assignment for the predecessor's id.
            prepare_rebalance(group, operation)
    elif group.select_protocol() != group.protocol_name or _topics(group, member) != topics_before:
        operation.await_join(group, member, reply_to)
        prepare_rebalance(group, operation)
    else:
        result = _replacement_result(group, member, request, leader_id_before)
        operation.write_group(group, [GroupReply(reply_to, result)])


def _replacement_result(group: Group, member: Member, request: JoinRequest, leader_id_before: str | None) -> JoinResult:
    assert leader_id_before is not None
    assert group.leader_id is not None
    skips_assignment = request.supports_skip_assignment and group.leader_id == member.member_id
    return JoinResult(
        member.member_id,
        group.generation,
        group.protocol_type,
        group.protocol_name,
        group.leader_id if request.supports_skip_assignment else leader_id_before,
        members=member_listing(group) if skips_assignment else (),
        skip_assignment=skips_assignment,
    )


def _assign(group: Group, request: SyncRequest, operation: GroupOperation) -> None:
    """Store the leader's assignment; members that it does not mention get an empty one."""
    assignments = dict(request.assignments)
    replies: list[GroupReply] = []
    for member in group.members.values():
        group.assign(member, bytes(assignments.get(member.member_id, b"")))
        reply = operation.take_sync_reply(member, _sync_result(group, member))
        if reply is not None:
            replies.append(reply)
            member.touch(operation.now_ms)
    group.move_to(GroupState.STABLE, operation.now_ms)
    operation.write_group(group, replies)


def _sync_result(group: Group, member: Member) -> SyncResult:
    return SyncResult(group.protocol_type, group.protocol_name, member.assignment)


def _topics(group: Group, member: Member) -> frozenset[str] | None:
    """Return the member's topics. The rest of its metadata (owned partitions) differs after each restart."""
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE or group.protocol_name is None:
        return None
    return subscribed_topics(member.metadata_under(group.protocol_name))


def _new_member_id(request: JoinRequest, random: Random) -> str:
    prefix = request.client_id if request.group_instance_id is None else request.group_instance_id
    return f"{prefix[:_MEMBER_ID_PREFIX_LENGTH_MAX]}-{UUID(bytes=random.token(16), version=4)}"
