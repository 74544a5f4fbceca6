"""DeleteAcls: delete the ACLs that filters match. The response lists them for each filter."""

from logbrook.core.acls import AclBinding, AclOperation
from logbrook.model import LogbrookError
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.errors import error_code, errors_in
from logbrook.server.security.acl_messages import change_acls, check_acl_request, filter_of
from logbrook.server.services import Services


async def handle(services: Services, request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    acls = services.security.acls
    results = [DeleteAclsFilterResult() for _ in request.filters]
    matched: list[list[AclBinding]] = []
    for wanted, result in zip(request.filters, results, strict=True):
        matched.append([])
        with errors_in(result):
            check_acl_request(services, context, AclOperation.ALTER)
            matched[-1] = acls.matching(filter_of(wanted))
    chosen = list(dict.fromkeys(acl for of_filter in matched for acl in of_filter))
    code = ErrorCode.NONE
    try:
        await change_acls(services, chosen, acls.delete)
    except LogbrookError as error:
        code = error_code(error)
    for of_filter, result in zip(matched, results, strict=True):
        result.matching_acls = [_matching(acl, code) for acl in of_filter]
    return DeleteAclsResponse(filter_results=results)


API = Api(DeleteAclsRequest, DeleteAclsResponse, handle)


def _matching(acl: AclBinding, code: ErrorCode) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=code,
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
