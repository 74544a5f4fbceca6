"""The settings of topics and brokers: what they are, where each is from, and changing them."""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TypeVar

from logbrook.client.admin_results import Setting, SettingSource
from logbrook.client.client import Client
from logbrook.client.coordinators import check
from logbrook.client.errors import ClientError
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


class _Resource(IntEnum):
    TOPIC = 2
    BROKER = 4


class _Operation(IntEnum):
    SET = 0
    DELETE = 1


# Values that were set for the resource itself; what stands behind them is its default.
_OWN = {
    _Resource.TOPIC: frozenset({SettingSource.TOPIC}),
    _Resource.BROKER: frozenset({SettingSource.DYNAMIC_BROKER}),
}


class ConfigAdmin:
    """Every call may raise ClientError."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def of_topic(self, topic: str) -> list[Setting]:
        """All settings of a topic, by name."""
        return self.of_topics([topic])[topic]

    def of_topics(self, topics: Sequence[str]) -> dict[str, list[Setting]]:
        """The same for several, in one request."""
        return self._describe(_Resource.TOPIC, topics)

    def of_broker(self, broker_id: int) -> list[Setting]:
        """All settings of a broker, as it tells them itself."""
        return self._describe(_Resource.BROKER, [str(broker_id)])[str(broker_id)]

    def alter_topic(
        self, topic: str, values: Mapping[str, str], unset: Iterable[str] = (), *, validate_only: bool = False
    ) -> None:
        """Set and unset settings of a topic, all of them or none."""
        self._alter(_Resource.TOPIC, topic, values, unset, validate_only)

    def alter_broker(
        self, broker_id: int, values: Mapping[str, str], unset: Iterable[str] = (), *, validate_only: bool = False
    ) -> None:
        """The same for a broker."""
        self._alter(_Resource.BROKER, str(broker_id), values, unset, validate_only)

    def _describe(self, kind: _Resource, names: Sequence[str]) -> dict[str, list[Setting]]:
        resources = [
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None) for name in names
        ]
        request = DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)
        found = {}
        for one in self._request(kind, names, request, DescribeConfigsResponse).results:
            what = f"asking for the settings of {kind.name.lower()} {one.resource_name}"
            check(one.error_code, what, one.error_message)
            found[one.resource_name] = sorted(
                (_setting(each, kind) for each in one.configs), key=lambda each: each.name
            )
        return {name: found.get(name, []) for name in names}

    def _alter(
        self, kind: _Resource, name: str, values: Mapping[str, str], unset: Iterable[str], validate_only: bool
    ) -> None:
        changes = [AlterableConfig(name=key, config_operation=_Operation.SET, value=values[key]) for key in values]
        changes += [AlterableConfig(name=key, config_operation=_Operation.DELETE) for key in unset]
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
        for one in self._request(kind, [name], request, IncrementalAlterConfigsResponse).responses:
            check(one.error_code, f"changing the settings of {kind.name.lower()} {name}", one.error_message)

    def _request(self, kind: _Resource, names: Sequence[str], request: ApiMessage, response: type[R]) -> R:
        """Only a broker itself knows its settings; those of topics are known to any."""
        if kind is _Resource.TOPIC:
            return self._client.request(request, response)
        brokers = {str(one.node_id): (one.host, one.port) for one in self._client.metadata([]).brokers}
        if names[0] not in brokers:
            raise ClientError(f"there is no broker {names[0]}; there are {', '.join(sorted(brokers))}")
        return self._client.connection(brokers[names[0]]).request(request, response)


def _setting(one: DescribeConfigsResourceResult, kind: _Resource) -> Setting:
    source = (
        SettingSource(one.config_source)
        if one.config_source in SettingSource._value2member_map_
        else SettingSource.UNKNOWN
    )
    behind = [each.value for each in one.synonyms if each.source not in _OWN[kind]]
    default = behind[0] if behind else (None if source in _OWN[kind] else one.value)
    return Setting(one.name, one.value, source, default, one.read_only, one.is_sensitive, one.documentation)
