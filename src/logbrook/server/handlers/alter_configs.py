"""AlterConfigs: replace all settings of topics, brokers or groups. Tools prefer IncrementalAlterConfigs."""

from functools import partial

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.config_resources import ConfigResourceType, SettingsUpdate, unique_settings, update_resources
from logbrook.server.errors import RequestRefusedError
from logbrook.server.services import Services


async def handle(services: Services, request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    responses = [
        AlterConfigsResourceResponse(resource_type=wanted.resource_type, resource_name=wanted.resource_name)
        for wanted in request.resources
    ]
    updates = [partial(_update_to, wanted) for wanted in request.resources]
    await update_resources(services, context, responses, updates, only_check=request.validate_only)
    return AlterConfigsResponse(responses=responses)


API = Api(AlterConfigsRequest, AlterConfigsResponse, handle)


def _update_to(wanted: AlterConfigsResource) -> SettingsUpdate:
    """Raises RequestRefusedError."""
    if wanted.resource_type == ConfigResourceType.BROKER_LOGGER:
        raise RequestRefusedError(
            ErrorCode.INVALID_REQUEST, "the levels of loggers are changed one by one, with IncrementalAlterConfigs"
        )
    settings = unique_settings(((config.name, config.value) for config in wanted.configs), ErrorCode.INVALID_REQUEST)
    return lambda _resource, _current: settings
