"""DeleteGroups: delete groups without members, and their offsets."""

from asyncio import Future
from typing import Any

from logbrook.core.acls import AclOperation, ResourceType
from logbrook.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from logbrook.server.api import Api, HandlerResult, RequestContext
from logbrook.server.errors import errors_in
from logbrook.server.services import Services


def handle(services: Services, request: DeleteGroupsRequest, context: RequestContext) -> HandlerResult:
    results: list[DeletableGroupResult] = []
    deletions: list[tuple[DeletableGroupResult, Future[Any]]] = []
    for group_id in dict.fromkeys(request.groups_names):
        result = DeletableGroupResult(group_id=group_id)
        results.append(result)
        with errors_in(result):
            services.authorizer.check(context, AclOperation.DELETE, ResourceType.GROUP, group_id)
            deletions.append((result, services.groups.delete_group(group_id)))

    async def respond() -> DeleteGroupsResponse:
        for result, deletion in deletions:
            with errors_in(result):
                await deletion
        return DeleteGroupsResponse(results=results)

    return respond()


API = Api(DeleteGroupsRequest, DeleteGroupsResponse, handle)
