"""CreateAcls: create ACLs. One that exists already is not an error, and an invalid one does not affect the others."""

from logbrook.core.acls import AclBinding, AclOperation
from logbrook.model import LogbrookError
from logbrook.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from logbrook.server.api import Api, RequestContext
from logbrook.server.errors import error_code, errors_in, report_error
from logbrook.server.security.acl_messages import acl_of, change_acls, refuse_acl_request
from logbrook.server.services import Services


async def handle(services: Services, request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    results = [AclCreationResult() for _ in request.creations]
    refusal = refuse_acl_request(services, context, AclOperation.ALTER)
    # Valid ACLs, each with the results of its creations.
    new: dict[AclBinding, list[AclCreationResult]] = {}
    for creation, result in zip(request.creations, results, strict=True):
        with errors_in(result):
            if refusal is not None:
                raise refusal
            acl = acl_of(creation)
            acl.check()
            new.setdefault(acl, []).append(result)
    await _create(services, new, context)
    return CreateAclsResponse(results=results)


API = Api(CreateAclsRequest, CreateAclsResponse, handle)


async def _create(services: Services, new: dict[AclBinding, list[AclCreationResult]], context: RequestContext) -> None:
    failure: LogbrookError | None = None
    try:
        await change_acls(services, list(new), services.security.acls.create)
    except LogbrookError as error:
        failure = error
    for acl, results in new.items():
        outcome = "NONE" if failure is None else error_code(failure).name
        services.audit.changed(context, "create ACL", str(acl), result=outcome)
        if failure is not None:
            for result in results:
                report_error(failure, result)
