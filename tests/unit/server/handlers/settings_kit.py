"""Settings for the tests of the handlers."""

from collections.abc import Mapping

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.unit.server.handlers.kit import Peer

SET, DELETE, APPEND, SUBTRACT = range(4)


def operation(name: str, kind: int, value: str | None = None) -> AlterableConfig:
    return AlterableConfig(name=name, config_operation=kind, value=value)


def alter(
    peer: Peer,
    resource_type: int,
    name: str,
    *operations: AlterableConfig,
    version: int | None = None,
    validate_only: bool = False,
) -> AlterConfigsResourceResponse:
    resource = AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=operations)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (response,) = peer.ask(request, IncrementalAlterConfigsResponse, version).responses
    assert (response.resource_type, response.resource_name) == (resource_type, name)
    assert bool(response.error_code) == bool(response.error_message)
    return response


def set_settings(peer: Peer, resource_type: int, name: str, settings: Mapping[str, str]) -> None:
    response = alter(peer, resource_type, name, *[operation(key, SET, value) for key, value in settings.items()])
    assert response.error_code == ErrorCode.NONE, response.error_message
