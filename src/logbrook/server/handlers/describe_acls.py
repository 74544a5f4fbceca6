"""DescribeAcls: the ACLs that a filter matches, by resource pattern."""

from collections.abc import Iterable
from itertools import groupby

from logbrook.core.acls import AclBinding, AclOperation
from logbrook.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.errors import errors_in
from logbrook.server.security.acl_messages import check_acl_request, filter_of
from logbrook.server.services import Services


def handle(services: Services, request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    response = DescribeAclsResponse()
    with errors_in(response):
        check_acl_request(services, context, AclOperation.DESCRIBE)
        response.resources = _resources(services.security.acls.matching(filter_of(request)))
    return response


API = Api(DescribeAclsRequest, DescribeAclsResponse, handle)


def _resources(acls: Iterable[AclBinding]) -> list[DescribeAclsResource]:
    """Describe sorted ACLs."""
    by_pattern = groupby(acls, lambda acl: (acl.resource_type, acl.pattern_type, acl.name))
    return [
        DescribeAclsResource(
            resource_type=resource_type,
            resource_name=name,
            pattern_type=pattern_type,
            acls=[
                AclDescription(
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission,
                )
                for acl in of_pattern
            ],
        )
        for (resource_type, pattern_type, name), of_pattern in by_pattern
    ]
