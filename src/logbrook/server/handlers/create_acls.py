"""CreateAcls: create ACLs. One that exists already is not an error, and an invalid one does not affect the others."""

from logbrook.core.acls import AclBinding, AclOperation
from logbrook.model import LogbrookError
from logbrook.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from logbrook.server.api import Api, RequestContext
from logbrook.server.errors import errors_in, report_error
from logbrook.server.security.acl_messages import acl_of, change_acls, check_acl_request
from logbrook.server.services import Services


async def handle(services: Services, request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    results = [AclCreationResult() for _ in request.creations]
    # Valid ACLs, each with the results of its creations.
    new: dict[AclBinding, list[AclCreationResult]] = {}
    for creation, result in zip(request.creations, results, strict=True):
        with errors_in(result):
            check_acl_request(services, context, AclOperation.ALTER)
            acl = acl_of(creation)
            acl.check()
            new.setdefault(acl, []).append(result)
    await _create(services, new)
    return CreateAclsResponse(results=results)


API = Api(CreateAclsRequest, CreateAclsResponse, handle)


async def _create(services: Services, new: dict[AclBinding, list[AclCreationResult]]) -> None:
    try:
        await change_acls(services, list(new), services.security.acls.create)
    except LogbrookError as error:
        for result in (result for results in new.values() for result in results):
            report_error(error, result)
