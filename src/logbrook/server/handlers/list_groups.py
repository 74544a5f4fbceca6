"""ListGroups: all groups, filtered by state and type. All have the type `classic`."""

from logbrook.core.acls import AclOperation, ResourceType
from logbrook.core.coordinator import CoordinatorError
from logbrook.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from logbrook.server.api import Api, RequestContext
from logbrook.server.errors import error_code
from logbrook.server.services import Services


def handle(services: Services, request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    try:
        groups = services.groups.list_groups(request.states_filter)
    except CoordinatorError as error:
        return ListGroupsResponse(error_code=error_code(error))
    authorizer = services.authorizer
    if not authorizer.allows_cluster(context, AclOperation.DESCRIBE, is_audited=False):
        groups = [
            group
            for group in groups
            if authorizer.allows(context, AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id, is_audited=False)
        ]
    types = {group_type.lower() for group_type in request.types_filter}
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.group_type,
            )
            for group in groups
            if not types or group.group_type in types
        ]
    )


API = Api(ListGroupsRequest, ListGroupsResponse, handle)
