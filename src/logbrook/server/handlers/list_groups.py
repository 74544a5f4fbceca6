"""ListGroups: the groups there are. All of them are of the classic kind."""

from logbrook.core.groups.errors import GroupError
from logbrook.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from logbrook.server.api import Api, Call
from logbrook.server.refusals import refuse
from logbrook.server.services import Services


def handle(services: Services, request: ListGroupsRequest, call: Call) -> ListGroupsResponse:
    try:
        groups = services.groups.coordinator.list_groups(request.states_filter)
    except GroupError as error:
        return ListGroupsResponse(error_code=refuse(services, request, error).code)
    types = {one.lower() for one in request.types_filter}
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
