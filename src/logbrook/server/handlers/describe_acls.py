"""DescribeAcls: there is no authorizer, so there are no ACLs, and Kafka's answer is SECURITY_DISABLED."""

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from logbrook.server.api import Api, RequestContext
from logbrook.server.authorized_operations import NO_AUTHORIZER
from logbrook.server.services import Services


def handle(services: Services, request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)


API = Api(DescribeAclsRequest, DescribeAclsResponse, handle)
