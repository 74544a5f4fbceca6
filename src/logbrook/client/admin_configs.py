"""Administration of the settings of topics and brokers: DescribeConfigs and IncrementalAlterConfigs."""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TypeVar

from logbrook.client.admin_results import Setting, SettingSource
from logbrook.client.client import Client
from logbrook.client.errors import ClientError, check_code
from logbrook.model.identifiers import BrokerId
from logbrook.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from logbrook.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from logbrook.protocol.schema import ApiMessage

R = TypeVar("R", bound=ApiMessage)


class _ConfigResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4


# The name of the resource that stands for all brokers.
_ALL_BROKERS = ""


class _AlterOperation(IntEnum):
    SET = 0
    DELETE = 1


# Sources of values that were set on the resource itself. The next synonym is the default that they override.
_OWN_SOURCES = {
    _ConfigResourceType.TOPIC: frozenset({SettingSource.TOPIC}),
    _ConfigResourceType.BROKER: frozenset({SettingSource.DYNAMIC_BROKER}),
}


class ConfigAdmin:
    """Every call may raise ClientError."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def of_topic(self, topic: str) -> list[Setting]:
        """Return all settings of a topic, by name."""
        return self.of_topics([topic])[topic]

    def of_topics(self, topics: Sequence[str]) -> dict[str, list[Setting]]:
        """Return the settings of several topics, with one request."""
        return self._describe(_ConfigResourceType.TOPIC, topics)

    def of_broker(self, broker_id: BrokerId) -> list[Setting]:
        """Return all settings of a broker, by name."""
        return self._describe(_ConfigResourceType.BROKER, [str(broker_id)])[str(broker_id)]

    def alter_topic(
        self, topic: str, values: Mapping[str, str], unset: Iterable[str] = (), *, validate_only: bool = False
    ) -> None:
        """Set and unset settings of a topic; if one is invalid, none is changed."""
        self._alter(_ConfigResourceType.TOPIC, topic, values, unset, validate_only)

    def alter_broker(
        self, broker_id: BrokerId, values: Mapping[str, str], unset: Iterable[str] = (), *, validate_only: bool = False
    ) -> None:
        """Set and unset dynamic settings of a broker; if one is invalid, none is changed."""
        self._alter(_ConfigResourceType.BROKER, str(broker_id), values, unset, validate_only)

    def alter_all_brokers(self, values: Mapping[str, str], unset: Iterable[str] = ()) -> None:
        """Set and unset dynamic settings that all brokers share; those of a single broker override them."""
        self._alter(_ConfigResourceType.BROKER, _ALL_BROKERS, values, unset, validate_only=False)

    def _describe(self, kind: _ConfigResourceType, names: Sequence[str]) -> dict[str, list[Setting]]:
        resources = [
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None) for name in names
        ]
        request = DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)
        settings = {}
        for result in self._request(kind, names, request, DescribeConfigsResponse).results:
            operation = f"describing the settings of {kind.name.lower()} {result.resource_name}"
            check_code(result.error_code, operation, result.error_message)
            settings[result.resource_name] = sorted(
                (_setting(config, kind) for config in result.configs), key=lambda setting: setting.name
            )
        return {name: settings.get(name, []) for name in names}

    def _alter(
        self, kind: _ConfigResourceType, name: str, values: Mapping[str, str], unset: Iterable[str], validate_only: bool
    ) -> None:
        changes = [AlterableConfig(name=key, config_operation=_AlterOperation.SET, value=values[key]) for key in values]
        changes += [AlterableConfig(name=key, config_operation=_AlterOperation.DELETE) for key in unset]
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
        for result in self._request(kind, [name], request, IncrementalAlterConfigsResponse).responses:
            is_all = (kind, name) == (_ConfigResourceType.BROKER, _ALL_BROKERS)
            described = "all brokers" if is_all else f"{kind.name.lower()} {name}"
            check_code(result.error_code, f"changing the settings of {described}", result.error_message)

    def _request(self, kind: _ConfigResourceType, names: Sequence[str], request: ApiMessage, response: type[R]) -> R:
        """Send a request about topics or all brokers to any broker, and one about a broker to that broker."""
        if kind is _ConfigResourceType.TOPIC or names[0] == _ALL_BROKERS:
            return self._client.request(request, response)
        brokers = {str(broker.node_id): (broker.host, broker.port) for broker in self._client.metadata([]).brokers}
        if names[0] not in brokers:
            raise ClientError(f"there is no broker {names[0]}; there are {', '.join(sorted(brokers))}")
        return self._client.connection(brokers[names[0]]).request(request, response)


def _setting(config: DescribeConfigsResourceResult, kind: _ConfigResourceType) -> Setting:
    source = (
        SettingSource(config.config_source)
        if config.config_source in SettingSource._value2member_map_
        else SettingSource.UNKNOWN
    )
    overridden = [synonym.value for synonym in config.synonyms if synonym.source not in _OWN_SOURCES[kind]]
    default = overridden[0] if overridden else (None if source in _OWN_SOURCES[kind] else config.value)
    return Setting(
        config.name, config.value, source, default, config.read_only, config.is_sensitive, config.documentation
    )
