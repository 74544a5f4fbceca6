"""AlterConfigs: give topics or this broker these settings and no others. Tools prefer IncrementalAlterConfigs."""

from collections import Counter
from collections.abc import Mapping

from logbrook.model import LogbrookError
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from logbrook.server.api import Api, Call
from logbrook.server.config_changes import Change, Resource, change_resource, find_resource
from logbrook.server.refusals import RefusedError, refuse
from logbrook.server.services import Services


async def handle(services: Services, request: AlterConfigsRequest, call: Call) -> AlterConfigsResponse:
    times_named = Counter((one.resource_type, one.resource_name) for one in request.resources)
    responses = []
    for one in request.resources:
        response = AlterConfigsResourceResponse(resource_type=one.resource_type, resource_name=one.resource_name)
        responses.append(response)
        try:
            if times_named[one.resource_type, one.resource_name] > 1:
                raise RefusedError(ErrorCode.INVALID_REQUEST, "each resource may be named once in a request")
            change = _change_to(one)
            resource = find_resource(services, one.resource_type, one.resource_name)
            await change_resource(services, resource, change, only_check=request.validate_only)
        except LogbrookError as error:
            response.error_code, response.error_message = refuse(services, request, error)
    return AlterConfigsResponse(responses=responses)


API = Api(AlterConfigsRequest, AlterConfigsResponse, handle)


def _change_to(wanted: AlterConfigsResource) -> Change:
    """Raises RefusedError."""
    settings: dict[str, str] = {}
    for one in wanted.configs:
        if one.value is None:
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"{one.name} has no value")
        if one.name in settings:
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"{one.name} is given twice")
        settings[one.name] = one.value

    def change(_resource: Resource, _current: Mapping[str, str]) -> Mapping[str, str]:
        return settings

    return change
