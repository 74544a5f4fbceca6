"""IncrementalAlterConfigs: set, unset, or extend single settings of topics or of this broker (KIP-339)."""

from collections import Counter
from collections.abc import Callable, Mapping
from enum import IntEnum

from logbrook.config.kafka_settings import InvalidSettingError, to_text
from logbrook.config.setting_kind import SettingKind
from logbrook.model import LogbrookError
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from logbrook.server.api import Api, Call
from logbrook.server.config_changes import Change, Resource, change_resource, find_resource
from logbrook.server.refusals import RefusedError, refuse
from logbrook.server.services import Services


class Operation(IntEnum):
    """Kafka's numbers. Lists can be added to and taken from."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


async def handle(
    services: Services, request: IncrementalAlterConfigsRequest, call: Call
) -> IncrementalAlterConfigsResponse:
    times_named = Counter((one.resource_type, one.resource_name) for one in request.resources)
    responses = []
    for one in request.resources:
        response = AlterConfigsResourceResponse(resource_type=one.resource_type, resource_name=one.resource_name)
        responses.append(response)
        try:
            if times_named[one.resource_type, one.resource_name] > 1:
                raise RefusedError(ErrorCode.INVALID_REQUEST, "each resource may be named once in a request")
            change = _change_by(one)
            resource = find_resource(services, one.resource_type, one.resource_name)
            await change_resource(services, resource, change, only_check=request.validate_only)
        except LogbrookError as error:
            response.error_code, response.error_message = refuse(services, request, error)
    return IncrementalAlterConfigsResponse(responses=responses)


API = Api(IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, handle)


def _change_by(wanted: AlterConfigsResource) -> Change:
    """Raises RefusedError."""
    names = set()
    for one in wanted.configs:
        if one.config_operation not in Operation.__members__.values():
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"there is no operation {one.config_operation}")
        if one.value is None and one.config_operation != Operation.DELETE:
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"{one.name} has no value")
        if one.name in names:
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"{one.name} is given twice")
        names.add(one.name)

    def change(resource: Resource, current: Mapping[str, str]) -> Mapping[str, str]:
        settings = dict(current)
        for one in wanted.configs:
            _CHANGES[Operation(one.config_operation)](settings, one, resource)
        return settings

    return change


def _set(settings: dict[str, str], one: AlterableConfig, resource: Resource) -> None:
    settings[one.name] = one.value or ""


def _delete(settings: dict[str, str], one: AlterableConfig, resource: Resource) -> None:
    settings.pop(one.name, None)


def _append(settings: dict[str, str], one: AlterableConfig, resource: Resource) -> None:
    before, parts = _list(settings, one, resource)
    settings[one.name] = ",".join(dict.fromkeys([*before, *parts]))


def _subtract(settings: dict[str, str], one: AlterableConfig, resource: Resource) -> None:
    before, parts = _list(settings, one, resource)
    settings[one.name] = ",".join(part for part in before if part not in parts)


def _list(settings: dict[str, str], one: AlterableConfig, resource: Resource) -> tuple[list[str], list[str]]:
    """What the list has, and what is given. Raises InvalidSettingError."""
    known = resource.names.get(one.name)
    if known is None or known.kind is not SettingKind.LIST:
        raise InvalidSettingError(one.name, "there is no list of that name to add to or take from")
    inherited = known.default if known.accepted else to_text(getattr(resource.inherited, known.field))
    before = settings.get(one.name, inherited)
    return before.split(",") if before else [], [part.strip() for part in (one.value or "").split(",")]


_CHANGES: dict[Operation, Callable[[dict[str, str], AlterableConfig, Resource], None]] = {
    Operation.SET: _set,
    Operation.DELETE: _delete,
    Operation.APPEND: _append,
    Operation.SUBTRACT: _subtract,
}
