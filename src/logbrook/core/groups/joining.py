"""The rules of JoinGroup.

Who comes without a member id is new: a dynamic member is first given an id and joins again with it (KIP-394), or, with
old clients, is added at once; a static member whose instance id is known takes the place of its predecessor, which is
fenced (KIP-345). Who comes with an id is a pending member that is added now, or a member that joins again:

    PreparingRebalance    it waits with the others
    CompletingRebalance   unchanged: told of the generation again, its first answer was lost; changed: a new rebalance
    Stable                a follower that is unchanged: told of the generation; changed, or the leader: a new rebalance

A static member that takes its predecessor's place in a Stable group gets the predecessor's assignment without a
rebalance, unless what it brings changes the protocol or the topics. Its leader must not assign again: nobody would be
told. From JoinGroup v9 on it is told to skip the assignment (KIP-814); before, it is told that its predecessor leads.
"""

from uuid import UUID

from logbrook.config.groups import GroupConfig
from logbrook.core.fields import STRING_BYTES_MAX
from logbrook.core.groups.errors import (
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    MemberIdRequiredError,
    OversizedFieldError,
    UnknownMemberIdError,
)
from logbrook.core.groups.group import Group, GroupState
from logbrook.core.groups.member import NEW_MEMBER_JOIN_TIMEOUT_MS, Member
from logbrook.core.groups.rebalance import complete_join_if_possible, join_result, member_listing, prepare_rebalance
from logbrook.core.groups.requests import JoinRequest
from logbrook.core.groups.results import JoinResult, Reply
from logbrook.core.groups.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from logbrook.core.groups.turn import Turn
from logbrook.ports import Random

# A member id is made of the client's id, which may be as long as a string can be, and must fit a string itself.
_MEMBER_ID_PREFIX_LENGTH_MAX = 255


def check_join(request: JoinRequest, config: GroupConfig) -> None:
    """Raises the GroupError of a request that no group could take."""
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
        # No character takes more than four bytes.
        if len(text) > STRING_BYTES_MAX // 4 and (size := len(text.encode())) > STRING_BYTES_MAX:
            raise OversizedFieldError(field, size, STRING_BYTES_MAX)


def join_group(group: Group, request: JoinRequest, reply_to: object, random: Random, turn: Turn) -> None:
    """Answer the request now or later. Raises the GroupError that refuses it."""
    try:
        if not _has_room(group, request.member_id, turn):
            # In a group that is over its size it is the last to rejoin who go.
            group.remove(request.member_id)
            raise GroupMaxSizeReachedError(group.group_id, turn.config.members_max)
        names = tuple(name for name, _ in request.protocols)
        if not group.supports(request.protocol_type, names):
            raise InconsistentGroupProtocolError(group.group_id, request.protocol_type, names)
        if request.member_id:
            _join_with_id(group, request, reply_to, turn)
        else:
            _join_without_id(group, request, reply_to, _new_member_id(request, random), turn)
    finally:
        complete_join_if_possible(group, turn)


def _has_room(group: Group, member_id: str, turn: Turn) -> bool:
    members_max = turn.config.members_max
    member = group.members.get(member_id)
    if not member_id and len(group.pending_members) >= members_max:
        return False
    if group.state is GroupState.EMPTY:
        return True
    if group.state is GroupState.PREPARING_REBALANCE:
        awaiting = sum(each.awaits_join for each in group.members.values())
        return (member is not None and member.awaits_join) or awaiting < members_max
    return member is not None or len(group.members) < members_max


def _join_without_id(group: Group, request: JoinRequest, reply_to: object, member_id: str, turn: Turn) -> None:
    if request.group_instance_id is not None:
        predecessor = group.static_members.get(request.group_instance_id)
        if predecessor is not None:
            _replace_static(group, group.members[predecessor], request, reply_to, member_id, turn)
        else:
            _add(group, request, reply_to, member_id, turn)
    elif request.requires_known_member_id:
        group.pending_members[member_id] = turn.now_ms + request.session_timeout_ms
        raise MemberIdRequiredError(group.group_id, member_id)
    else:
        _add(group, request, reply_to, member_id, turn)


def _join_with_id(group: Group, request: JoinRequest, reply_to: object, turn: Turn) -> None:
    if request.member_id in group.pending_members:
        if request.group_instance_id is not None:
            # Ids are given in advance to dynamic members only: it has changed its mind about what it is.
            raise UnknownMemberIdError(group.group_id, request.member_id)
        _add(group, request, reply_to, request.member_id, turn)
        return

    member = group.current_member(request.member_id, request.group_instance_id)
    assert group.state is not GroupState.EMPTY, "it has a member"
    unchanged = member.matches(request.protocols)
    follows = group.leader_id != member.member_id
    if unchanged and (group.state is GroupState.COMPLETING_REBALANCE or (group.state is GroupState.STABLE and follows)):
        turn.outcome.reply(reply_to, join_result(group, member))
        return
    group.update(member, request)
    turn.await_join(group, member, reply_to)
    if group.state is not GroupState.PREPARING_REBALANCE:
        prepare_rebalance(group, turn)


def _add(group: Group, request: JoinRequest, reply_to: object, member_id: str, turn: Turn) -> None:
    member = Member.from_request(request, member_id)
    if group.state is GroupState.PREPARING_REBALANCE and group.generation == 0:
        group.new_member_added = True
    group.add(member, request.protocol_type)
    member.session_deadline_ms = turn.now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS
    turn.await_join(group, member, reply_to)
    if group.state is not GroupState.PREPARING_REBALANCE:
        prepare_rebalance(group, turn)


def _replace_static(
    group: Group, member: Member, request: JoinRequest, reply_to: object, member_id: str, turn: Turn
) -> None:
    assert request.group_instance_id is not None
    fenced = FencedInstanceIdError(group.group_id, request.group_instance_id, member.member_id)
    turn.answer_join(member, fenced)
    turn.answer_sync(member, fenced)

    leader_id_before = group.leader_id
    topics_before = _topics(group, member)
    group.replace_static(member, member_id)
    group.update(member, request)
    member.touch(turn.now_ms)
    if group.state is not GroupState.STABLE:
        turn.await_join(group, member, reply_to)
        if group.state is GroupState.COMPLETING_REBALANCE:
            # The leader may be assigning to the predecessor's id at this moment.
            prepare_rebalance(group, turn)
    elif group.select_protocol() != group.protocol_name or _topics(group, member) != topics_before:
        turn.await_join(group, member, reply_to)
        prepare_rebalance(group, turn)
    else:
        result = _take_over_result(group, member, request, leader_id_before)
        turn.write_group(group, [Reply(reply_to, result)])


def _take_over_result(group: Group, member: Member, request: JoinRequest, leader_id_before: str | None) -> JoinResult:
    assert leader_id_before is not None
    assert group.leader_id is not None
    skips = request.supports_skip_assignment and group.leader_id == member.member_id
    return JoinResult(
        member.member_id,
        group.generation,
        group.protocol_type,
        group.protocol_name,
        group.leader_id if request.supports_skip_assignment else leader_id_before,
        members=member_listing(group) if skips else (),
        skip_assignment=skips,
    )


def _topics(group: Group, member: Member) -> frozenset[str] | None:
    """What the member subscribes to. The rest of its metadata (what it owns) is different after each restart."""
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE or group.protocol_name is None:
        return None
    return subscribed_topics(member.metadata_under(group.protocol_name))


def _new_member_id(request: JoinRequest, random: Random) -> str:
    prefix = request.client_id if request.group_instance_id is None else request.group_instance_id
    return f"{prefix[:_MEMBER_ID_PREFIX_LENGTH_MAX]}-{UUID(bytes=random.token(16), version=4)}"
