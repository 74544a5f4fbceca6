"""The rules of LeaveGroup.

Members leave one by one or several at once (KIP-345), each with its own result. A client names itself by its member
id; an operator may remove a static member by its instance id alone. An id that was given out but not used can be given
back.
"""

from logbrook.core.groups.errors import UnknownMemberIdError
from logbrook.core.groups.group import Group
from logbrook.core.groups.rebalance import remove_member, remove_pending_member
from logbrook.core.groups.requests import LeavingMember
from logbrook.core.groups.turn import Turn


def leave_group(group: Group | None, group_id: str, leaving: LeavingMember, turn: Turn) -> None:
    """Raises UnknownMemberIdError or FencedInstanceIdError."""
    if group is None:
        raise UnknownMemberIdError(group_id, leaving.member_id)
    if leaving.member_id in group.pending_members:
        remove_pending_member(group, leaving.member_id, turn)
        return
    member_id = leaving.member_id
    if not member_id and leaving.group_instance_id is not None:
        member_id = group.static_members.get(leaving.group_instance_id, "")
    remove_member(group, group.current_member(member_id, leaving.group_instance_id), turn)
