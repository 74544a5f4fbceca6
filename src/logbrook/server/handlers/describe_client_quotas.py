"""DescribeClientQuotas: the quotas of the entities that match a filter (KIP-546)."""

from logbrook.core.acls import AclOperation
from logbrook.core.client_quotas import NameMatch
from logbrook.core.quota_entities import ENTITY_TYPES, EntityType
from logbrook.model import LogbrookError
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.errors import RequestRefusedError, report_error
from logbrook.server.services import Services

_EXACT, _DEFAULT, _SPECIFIED = range(3)


def handle(
    services: Services, request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    try:
        services.authorizer.check_cluster(context, AclOperation.DESCRIBE_CONFIGS)
        components = dict(_component(component) for component in request.components)
        if len(components) < len(request.components):
            raise RequestRefusedError(ErrorCode.INVALID_REQUEST, "an entity type may be named only once in a filter")
        described = services.security.quotas.describe(components, is_strict=request.strict)
    except LogbrookError as error:
        response = DescribeClientQuotasResponse(entries=None)
        report_error(error, response)
        return response
    return DescribeClientQuotasResponse(
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[ValueData(key=key, value=value) for key, value in quotas.items()],
            )
            for entity, quotas in described
        ]
    )


API = Api(DescribeClientQuotasRequest, DescribeClientQuotasResponse, handle)


def _component(component: ComponentData) -> tuple[EntityType, NameMatch]:
    """Raises RequestRefusedError."""
    if component.entity_type not in ENTITY_TYPES:
        code = ErrorCode.UNSUPPORTED_VERSION if component.entity_type else ErrorCode.INVALID_REQUEST
        raise RequestRefusedError(code, f"the entity type {component.entity_type[:100]!r} is not supported")
    is_exact = component.match_type == _EXACT
    if component.match_type not in (_EXACT, _DEFAULT, _SPECIFIED) or is_exact != (component.match is not None):
        raise RequestRefusedError(
            ErrorCode.INVALID_REQUEST, f"a filter of type {component.match_type} with the name {component.match!r}"
        )
    return EntityType(component.entity_type), NameMatch(component.match_type == _SPECIFIED, component.match)
