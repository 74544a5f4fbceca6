"""DeleteGroups: groups that have no members any more go, and what they committed goes with them."""

from asyncio import Future
from typing import Any

from logbrook.core.groups.errors import GroupError
from logbrook.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from logbrook.server.api import Api, Call, Handled
from logbrook.server.refusals import refuse
from logbrook.server.services import Services


def handle(services: Services, request: DeleteGroupsRequest, call: Call) -> Handled:
    results: list[DeletableGroupResult] = []
    deletions: list[tuple[DeletableGroupResult, Future[Any]]] = []
    for group_id in dict.fromkeys(request.groups_names):
        result = DeletableGroupResult(group_id=group_id)
        results.append(result)
        try:
            deletions.append((result, services.groups.delete_group(group_id)))
        except GroupError as error:
            result.error_code = refuse(services, request, error).code

    async def respond() -> DeleteGroupsResponse:
        for result, deletion in deletions:
            try:
                await deletion
            except GroupError as error:
                result.error_code = refuse(services, request, error).code
        return DeleteGroupsResponse(results=results)

    return respond()


API = Api(DeleteGroupsRequest, DeleteGroupsResponse, handle)
