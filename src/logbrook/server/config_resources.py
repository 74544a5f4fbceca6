"""The settings of config resources, as Kafka's tools describe and change them.

The resources are topics, this broker, all brokers (a broker without a name), the loggers of this broker and groups. A
setting has synonyms, the places that its value can come from. The first that is set applies:

    the topic's own  >  this broker's, changed at run time  >  that of all brokers, changed at run time
                     >  this broker's, given at start  >  the default

A group has its own settings and defaults, and need not exist. Levels of loggers are not stored.
Values are described in normalized notation, not as they were typed. An update is a function from the current settings
to the new ones, applied under the metadata's lock, so that concurrent updates do not overwrite each other.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol, TypeAlias

from logbrook.config import CleanupPolicy, LogConfig
from logbrook.config.kafka_settings import (
    BROKER_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    InvalidSettingError,
    KafkaSetting,
    apply_overrides,
    broker_name,
    canonical_values,
    format_text,
)
from logbrook.config.setting import ConfigType
from logbrook.core.acls import AclOperation, ResourceType
from logbrook.model import check_topic_name
from logbrook.protocol.error_codes import ErrorCode
from logbrook.server.api import RequestContext
from logbrook.server.errors import HasErrorCode, RequestRefusedError, errors_in
from logbrook.server.log_levels import ROOT, change_levels, check_levels, logger_levels
from logbrook.server.services import Services
from logbrook.server.topics import AUDIT


class ConfigResourceType(IntEnum):
    """The resource types that can be described and changed, with Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    GROUP = 32


class ConfigResource(NamedTuple):
    """A resource that exists. `names`: the settings it may have; `inherited`: its config if it sets none of them.

    A broker without a name stands for all brokers.
    """

    type: ConfigResourceType
    name: str
    names: Mapping[str, KafkaSetting]
    inherited: LogConfig


# Settings are kept for groups that do not exist, in memory too.
_GROUP_ID_LENGTH_MAX = 1_000

# Stands for the level of a logger before an update; no client can set it.
_UNCHANGED = "\0"

# From a resource and its current settings to its new settings.
SettingsUpdate: TypeAlias = Callable[[ConfigResource, Mapping[str, str]], Mapping[str, str]]


def find_resource(services: Services, resource_type: int, name: str) -> ConfigResource:
    """Return a resource; whether a topic exists is not checked. Raises InvalidTopicNameError or RequestRefusedError."""
    if resource_type == ConfigResourceType.TOPIC:
        check_topic_name(name)
        return ConfigResource(ConfigResourceType.TOPIC, name, TOPIC_SETTINGS, services.topics.defaults)
    if resource_type == ConfigResourceType.GROUP:
        if not 0 < len(name) <= _GROUP_ID_LENGTH_MAX:
            raise RequestRefusedError(
                ErrorCode.INVALID_REQUEST, f"the group id has {len(name)} characters, not 1 to {_GROUP_ID_LENGTH_MAX}"
            )
        return ConfigResource(ConfigResourceType.GROUP, name, GROUP_SETTINGS, services.config.log)
    if resource_type not in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER):
        raise RequestRefusedError(ErrorCode.INVALID_REQUEST, f"resource type {resource_type} is not supported")
    node_id = services.config.node_id
    is_all = name == "" and resource_type == ConfigResourceType.BROKER
    if name != str(node_id) and not is_all:
        raise RequestRefusedError(ErrorCode.INVALID_REQUEST, f"unknown broker {name!r}; this is broker {node_id}")
    if resource_type == ConfigResourceType.BROKER_LOGGER:
        return ConfigResource(ConfigResourceType.BROKER_LOGGER, name, {}, services.config.log)
    return ConfigResource(ConfigResourceType.BROKER, name, BROKER_SETTINGS, services.config.log)


def unique_settings(pairs: Iterable[tuple[str, str | None]], no_value: ErrorCode) -> dict[str, str]:
    """Return the values by name. Raises RequestRefusedError, with the code `no_value` for a value of None."""
    settings: dict[str, str] = {}
    for name, value in pairs:
        if value is None:
            raise RequestRefusedError(no_value, f"{name} has no value")
        if name in settings:
            raise RequestRefusedError(ErrorCode.INVALID_REQUEST, f"{name} is set more than once")
        settings[name] = value
    return settings


class ResourceResponse(HasErrorCode, Protocol):
    """The response for one resource of AlterConfigs or IncrementalAlterConfigs."""

    resource_type: int
    resource_name: str


def check_config_right(
    services: Services, context: RequestContext, operation: AclOperation, resource_type: int, name: str
) -> None:
    """Raises AuthorizationFailedError. The settings of brokers and loggers belong to the cluster."""
    if resource_type == ConfigResourceType.TOPIC:
        services.authorizer.check(context, operation, ResourceType.TOPIC, name)
    elif resource_type == ConfigResourceType.GROUP:
        services.authorizer.check(context, operation, ResourceType.GROUP, name)
    else:
        services.authorizer.check_cluster(context, operation)


async def update_resources(
    services: Services,
    context: RequestContext,
    responses: Sequence[ResourceResponse],
    updates: Iterable[Callable[[], SettingsUpdate]],
    *,
    only_check: bool,
) -> None:
    """Apply, or only validate, the update of each resource. Its errors, and those of `updates`, are in its response."""
    times_named = Counter((response.resource_type, response.resource_name) for response in responses)
    for response, make_update in zip(responses, updates, strict=True):
        with errors_in(response):
            if times_named[response.resource_type, response.resource_name] > 1:
                raise RequestRefusedError(ErrorCode.INVALID_REQUEST, "a resource may be named only once in a request")
            check_config_right(
                services, context, AclOperation.ALTER_CONFIGS, response.resource_type, response.resource_name
            )
            update = make_update()
            resource = find_resource(services, response.resource_type, response.resource_name)
            await _update_resource(services, resource, update, only_check=only_check)


async def _update_resource(
    services: Services, resource: ConfigResource, update: SettingsUpdate, *, only_check: bool
) -> None:
    """Apply `update`, or only validate it.

    Raises RequestRefusedError, TopicNotFoundError, InvalidSettingError or StorageError.
    """

    def apply(current: Mapping[str, str]) -> Mapping[str, str]:
        settings = update(resource, current)
        for name, value in settings.items():
            setting = resource.names.get(name)
            if setting is not None and not setting.dynamic and current.get(name) != value:
                raise RequestRefusedError(ErrorCode.INVALID_REQUEST, f"{name} cannot be changed while the broker runs")
        if resource[:2] == (ConfigResourceType.TOPIC, AUDIT) and settings.get("cleanup.policy") != CleanupPolicy.DELETE:
            raise InvalidSettingError("cleanup.policy", "audit events are never compacted")
        return canonical_values(settings, resource.names)

    topics = services.topics
    if resource.type is ConfigResourceType.TOPIC:
        await topics.change_topic(resource.name, apply, only_check=only_check)
    elif resource.type is ConfigResourceType.GROUP:
        await topics.change_group(resource.name, apply, only_check=only_check)
    elif resource.type is ConfigResourceType.BROKER_LOGGER:
        _update_loggers(services, resource, update, only_check=only_check)
    elif resource.name:
        await topics.change_broker(apply, only_check=only_check)
    else:
        await topics.change_all_brokers(apply, only_check=only_check)


def _update_loggers(services: Services, resource: ConfigResource, update: SettingsUpdate, *, only_check: bool) -> None:
    """Raises RequestRefusedError or InvalidSettingError."""
    unchanged = dict.fromkeys(logger_levels(), _UNCHANGED)
    levels = update(resource, unchanged)
    changes: dict[str, str | None] = {name: None for name in unchanged if name not in levels}
    changes |= {name: level for name, level in levels.items() if level != _UNCHANGED}
    if changes.get(ROOT, ROOT) is None:
        raise RequestRefusedError(ErrorCode.INVALID_REQUEST, f"the logger {ROOT!r} must have a level")
    check_levels(changes)
    if not only_check:
        change_levels(changes, services.config.logging)


class ConfigSource(IntEnum):
    """The place a value comes from, with Kafka's numbers."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    GROUP_CONFIG = 8


CONFIG_TYPES = {
    ConfigType.BOOLEAN: 1,
    ConfigType.STRING: 2,
    ConfigType.INT: 3,
    ConfigType.LONG: 5,
    ConfigType.DOUBLE: 6,
    ConfigType.LIST: 7,
}


class ConfigSynonym(NamedTuple):
    name: str
    value: str
    source: ConfigSource


class ConfigEntry(NamedTuple):
    name: str
    value: str
    source: ConfigSource
    is_read_only: bool
    config_type: int
    doc: str
    synonyms: list[ConfigSynonym]


class ConfigEntries:
    """The current settings with their sources. Made for one request, which is answered without an await."""

    def __init__(self, services: Services) -> None:
        self._config = services.config
        self._defaults = services.topics.defaults
        metadata = services.topics.metadata
        # Both were normalized when they were set.
        self._own: Mapping[str, str] = metadata.broker_settings
        self._of_all: Mapping[str, str] = metadata.broker_defaults

    def of_topic(self, settings: Mapping[str, str]) -> Iterator[ConfigEntry]:
        """Yield the entries of a topic that has these settings of its own. Raises InvalidSettingError."""
        config = apply_overrides(self._defaults, settings, TOPIC_SETTINGS, is_stored=True)
        for setting in TOPIC_SETTINGS.values():
            if setting.accepted is None:
                synonyms = self._broker_synonyms(BROKER_SETTINGS[broker_name(setting.name)])
            else:
                synonyms = [ConfigSynonym(setting.name, setting.default, ConfigSource.DEFAULT_CONFIG)]
            if setting.name in settings:
                # Settings that are accepted without effect have no field; they were normalized when they were set.
                value = settings[setting.name] if setting.accepted else format_text(getattr(config, setting.field))
                synonyms.insert(0, ConfigSynonym(setting.name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG))
            yield _entry(setting, synonyms, is_read_only=False)

    def of_broker(self) -> Iterator[ConfigEntry]:
        for setting in BROKER_SETTINGS.values():
            yield _entry(setting, self._broker_synonyms(setting), is_read_only=not setting.dynamic)

    def of_all_brokers(self) -> Iterator[ConfigEntry]:
        """Yield the entries that are set for all brokers; others have no value that is common to all."""
        for name, value in self._of_all.items():
            synonym = ConfigSynonym(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
            yield _entry(BROKER_SETTINGS[name], [synonym], is_read_only=False)

    def of_group(self, settings: Mapping[str, str]) -> Iterator[ConfigEntry]:
        """Yield the entries of a group that has these settings of its own."""
        for setting in GROUP_SETTINGS.values():
            synonyms = [ConfigSynonym(setting.name, setting.default, ConfigSource.DEFAULT_CONFIG)]
            if setting.name in settings:
                synonyms.insert(0, ConfigSynonym(setting.name, settings[setting.name], ConfigSource.GROUP_CONFIG))
            yield _entry(setting, synonyms, is_read_only=False)

    def of_loggers(self) -> Iterator[ConfigEntry]:
        for name, level in logger_levels().items():
            source, config_type = ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG, CONFIG_TYPES[ConfigType.STRING]
            yield ConfigEntry(name, level, source, False, config_type, "Level of a logger of this broker.", [])

    def _broker_synonyms(self, setting: KafkaSetting) -> list[ConfigSynonym]:
        name = setting.name
        synonyms = []
        if name in self._own:
            synonyms.append(ConfigSynonym(name, self._own[name], ConfigSource.DYNAMIC_BROKER_CONFIG))
        if name in self._of_all:
            synonyms.append(ConfigSynonym(name, self._of_all[name], ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG))
        section = getattr(self._config, setting.section) if setting.section else self._config
        if setting.accepted is None and setting.field in section.given:
            value = format_text(getattr(section, setting.field))
            synonyms.append(ConfigSynonym(name, value, ConfigSource.STATIC_BROKER_CONFIG))
        return [*synonyms, ConfigSynonym(name, setting.default, ConfigSource.DEFAULT_CONFIG)]


def _entry(setting: KafkaSetting, synonyms: list[ConfigSynonym], *, is_read_only: bool) -> ConfigEntry:
    first = synonyms[0]
    return ConfigEntry(
        setting.name, first.value, first.source, is_read_only, CONFIG_TYPES[setting.kind], setting.doc, synonyms
    )
