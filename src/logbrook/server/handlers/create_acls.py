"""CreateAcls: there is no authorizer that would enforce ACLs, so every creation is refused with SECURITY_DISABLED."""

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from logbrook.server.api import Api, RequestContext
from logbrook.server.authorized_operations import NO_AUTHORIZER
from logbrook.server.services import Services


def handle(services: Services, request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    refusal = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return CreateAclsResponse(results=[refusal] * len(request.creations))


API = Api(CreateAclsRequest, CreateAclsResponse, handle)
