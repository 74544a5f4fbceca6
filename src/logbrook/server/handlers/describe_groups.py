"""DescribeGroups: who is in a group, and what it reads.

A group that is not there was `Dead` up to version 5; from version 6 on it is an error (KIP-1043).
"""

from logbrook.core.groups import GroupDescription
from logbrook.core.groups.errors import GroupError, GroupIdNotFoundError
from logbrook.core.groups.group import GroupState
from logbrook.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from logbrook.server.api import Api, Call
from logbrook.server.refusals import refuse
from logbrook.server.services import Services

_NOT_FOUND_SINCE = 6


def handle(services: Services, request: DescribeGroupsRequest, call: Call) -> DescribeGroupsResponse:
    # Each is described once, however often it is named, so that a small request does not make a huge answer.
    names = dict.fromkeys(request.groups)
    return DescribeGroupsResponse(groups=[_describe(services, request, name, call.version) for name in names])


API = Api(DescribeGroupsRequest, DescribeGroupsResponse, handle)


def _describe(services: Services, request: DescribeGroupsRequest, group_id: str, version: int) -> DescribedGroup:
    try:
        group = services.groups.coordinator.describe(group_id)
        if group.state == GroupState.DEAD and version >= _NOT_FOUND_SINCE:
            raise GroupIdNotFoundError(group_id)
    except GroupIdNotFoundError as error:
        code, message = refuse(services, request, error)
        return DescribedGroup(
            error_code=code, error_message=message, group_id=group_id, group_state=GroupState.DEAD.value
        )
    except GroupError as error:
        code, message = refuse(services, request, error)
        return DescribedGroup(error_code=code, error_message=message, group_id=group_id)
    return _described(group)


def _described(group: GroupDescription) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
    )
