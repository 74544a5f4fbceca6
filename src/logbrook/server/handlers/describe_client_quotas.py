"""DescribeClientQuotas: there are no quotas, so no filter matches any (KIP-546). Invalid filters are refused."""

from logbrook.core.acls import AclOperation
from logbrook.model import LogbrookError
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.errors import RequestRefusedError, report_error
from logbrook.server.services import Services

_ENTITY_TYPES = ("user", "client-id", "ip")
_EXACT, _DEFAULT, _SPECIFIED = range(3)


def handle(
    services: Services, request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    response = DescribeClientQuotasResponse(entries=[])
    try:
        services.authorizer.check_cluster(context, AclOperation.DESCRIBE_CONFIGS)
        entity_types = [_checked(component) for component in request.components]
        if len(set(entity_types)) < len(entity_types):
            raise RequestRefusedError(ErrorCode.INVALID_REQUEST, "an entity type may be named only once in a filter")
    except LogbrookError as error:
        response.entries = None
        report_error(error, response)
    return response


API = Api(DescribeClientQuotasRequest, DescribeClientQuotasResponse, handle)


def _checked(component: ComponentData) -> str:
    """Return the entity type. Raises RequestRefusedError."""
    if component.entity_type not in _ENTITY_TYPES:
        code = ErrorCode.UNSUPPORTED_VERSION if component.entity_type else ErrorCode.INVALID_REQUEST
        raise RequestRefusedError(code, f"the entity type {component.entity_type!r} is not supported")
    is_exact = component.match_type == _EXACT
    if component.match_type not in (_EXACT, _DEFAULT, _SPECIFIED) or is_exact != (component.match is not None):
        raise RequestRefusedError(
            ErrorCode.INVALID_REQUEST, f"a filter of type {component.match_type} with the name {component.match!r}"
        )
    return component.entity_type
