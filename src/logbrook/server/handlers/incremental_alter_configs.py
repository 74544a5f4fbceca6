"""IncrementalAlterConfigs: set, delete, append to or subtract from settings (KIP-339).

The resources are topics, brokers, groups, and the loggers of this broker (KIP-412).
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import partial

from logbrook.config.kafka_settings import InvalidSettingError, format_text
from logbrook.config.setting import ConfigType
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from logbrook.server.api import Api, RequestContext
from logbrook.server.config_resources import ConfigResource, ConfigResourceType, SettingsUpdate, update_resources
from logbrook.server.errors import RequestRefusedError
from logbrook.server.services import Services


class AlterConfigOp(IntEnum):
    """The operations on a setting, with Kafka's numbers. APPEND and SUBTRACT are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


async def handle(
    services: Services, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    responses = [
        AlterConfigsResourceResponse(resource_type=wanted.resource_type, resource_name=wanted.resource_name)
        for wanted in request.resources
    ]
    updates = [partial(_update_of, wanted) for wanted in request.resources]
    await update_resources(services, context, responses, updates, only_check=request.validate_only)
    return IncrementalAlterConfigsResponse(responses=responses)


API = Api(IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, handle)


def _update_of(wanted: AlterConfigsResource) -> SettingsUpdate:
    """Raises RequestRefusedError."""
    names = set()
    for config in wanted.configs:
        if config.config_operation not in AlterConfigOp.__members__.values():
            raise RequestRefusedError(ErrorCode.INVALID_REQUEST, f"unknown operation {config.config_operation}")
        if config.value is None and config.config_operation != AlterConfigOp.DELETE:
            raise RequestRefusedError(ErrorCode.INVALID_REQUEST, f"{config.name} has no value")
        if config.name in names:
            raise RequestRefusedError(ErrorCode.INVALID_REQUEST, f"{config.name} is set more than once")
        names.add(config.name)

    def update(resource: ConfigResource, current: Mapping[str, str]) -> Mapping[str, str]:
        settings = dict(current)
        for config in wanted.configs:
            _OPERATIONS[AlterConfigOp(config.config_operation)](settings, config, resource)
        return settings

    return update


def _set(settings: dict[str, str], config: AlterableConfig, resource: ConfigResource) -> None:
    settings[config.name] = config.value or ""


def _delete(settings: dict[str, str], config: AlterableConfig, resource: ConfigResource) -> None:
    if resource.type is ConfigResourceType.BROKER_LOGGER and config.name not in settings:
        raise InvalidSettingError(config.name, "there is no such logger")
    settings.pop(config.name, None)


def _append(settings: dict[str, str], config: AlterableConfig, resource: ConfigResource) -> None:
    before, parts = _list(settings, config, resource)
    settings[config.name] = ",".join(dict.fromkeys([*before, *parts]))


def _subtract(settings: dict[str, str], config: AlterableConfig, resource: ConfigResource) -> None:
    before, parts = _list(settings, config, resource)
    settings[config.name] = ",".join(part for part in before if part not in parts)


def _list(settings: dict[str, str], config: AlterableConfig, resource: ConfigResource) -> tuple[list[str], list[str]]:
    """Return the current items of a list setting and the items of the request.

    Raises InvalidSettingError or RequestRefusedError.
    """
    if resource.type is ConfigResourceType.BROKER_LOGGER:
        raise RequestRefusedError(ErrorCode.INVALID_REQUEST, "the level of a logger is not a list")
    setting = resource.names.get(config.name)
    if setting is None or setting.kind is not ConfigType.LIST:
        raise InvalidSettingError(config.name, "it is not a list setting, so items cannot be appended or subtracted")
    inherited = setting.default if setting.accepted else format_text(getattr(resource.inherited, setting.field))
    before = settings.get(config.name, inherited)
    return before.split(",") if before else [], [part.strip() for part in (config.value or "").split(",")]


_OPERATIONS: dict[AlterConfigOp, Callable[[dict[str, str], AlterableConfig, ConfigResource], None]] = {
    AlterConfigOp.SET: _set,
    AlterConfigOp.DELETE: _delete,
    AlterConfigOp.APPEND: _append,
    AlterConfigOp.SUBTRACT: _subtract,
}
