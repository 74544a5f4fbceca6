"""What operators are shown about a group, under the rules of DescribeGroups.

The protocol and what members said and got are shown in a Stable group only: in between they are of no one generation.
"""

from logbrook.core.groups.group import Group, GroupState
from logbrook.core.groups.results import GroupDescription, MemberDescription


def describe_group(group_id: str, group: Group | None) -> GroupDescription:
    if group is None:
        return GroupDescription(group_id, GroupState.DEAD, protocol_type="", protocol_name="", members=())
    stable = group.state is GroupState.STABLE
    members = tuple(
        MemberDescription(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            metadata=member.metadata_under(group.protocol_name) if stable else b"",
            assignment=member.assignment if stable else b"",
        )
        for member in group.members.values()
    )
    protocol_name = group.protocol_name if stable else None
    return GroupDescription(group_id, group.state, group.protocol_type or "", protocol_name or "", members)
