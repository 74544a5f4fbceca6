"""DescribeGroups: the members of groups, their subscriptions and assignments.

A group that does not exist is `Dead` up to version 5, and an error from version 6 on (KIP-1043).
"""

from logbrook.core.acls import AclOperation, ResourceType
from logbrook.core.groups.errors import GroupIdNotFoundError
from logbrook.core.groups.group import GroupState
from logbrook.core.groups.messages import GroupDescription
from logbrook.model import LogbrookError
from logbrook.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.errors import error_reply
from logbrook.server.security.authorizer import NOT_REQUESTED
from logbrook.server.services import Services

_NOT_FOUND_SINCE = 6


def handle(services: Services, request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    # Repeated groups are described once: they would make a large response of a small request.
    names = dict.fromkeys(request.groups)
    return DescribeGroupsResponse(groups=[_describe(services, request, name, context) for name in names])


API = Api(DescribeGroupsRequest, DescribeGroupsResponse, handle)


def _describe(
    services: Services, request: DescribeGroupsRequest, group_id: str, context: RequestContext
) -> DescribedGroup:
    try:
        services.authorizer.check(context, AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
        group = services.groups.describe(group_id)
        if group.state == GroupState.DEAD and context.version >= _NOT_FOUND_SINCE:
            raise GroupIdNotFoundError(group_id)
    except LogbrookError as error:
        code, message = error_reply(error)
        state = GroupState.DEAD.value if isinstance(error, GroupIdNotFoundError) else ""
        return DescribedGroup(error_code=code, error_message=message, group_id=group_id, group_state=state)
    operations = NOT_REQUESTED
    if request.include_authorized_operations:
        operations = services.authorizer.operations(context, ResourceType.GROUP, group_id)
    return _described(group, operations)


def _described(group: GroupDescription, operations: int) -> DescribedGroup:
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
                member_metadata=member.subscription,
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
        authorized_operations=operations,
    )
