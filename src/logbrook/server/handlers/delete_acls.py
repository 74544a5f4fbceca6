"""DeleteAcls: there is no authorizer, so there are no ACLs, and every filter is answered with SECURITY_DISABLED."""

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from logbrook.server.api import Api, RequestContext
from logbrook.server.authorized_operations import NO_AUTHORIZER
from logbrook.server.services import Services


def handle(services: Services, request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    refusal = DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return DeleteAclsResponse(filter_results=[refusal] * len(request.filters))


API = Api(DeleteAclsRequest, DeleteAclsResponse, handle)
