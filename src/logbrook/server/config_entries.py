"""What Kafka's tools are shown of a setting: its value, and the places it could come from, the first of which counts.

    a topic's own  >  the broker's, changed while it runs  >  the broker's, given at its start  >  the default

Values are shown as they are in force, not as they were typed.
"""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from logbrook.config.kafka_settings import (
    KafkaSetting,
    broker_name,
    broker_settings,
    override,
    to_text,
    topic_settings,
)
from logbrook.config.setting_kind import SettingKind
from logbrook.server.services import Services


class ConfigSource(IntEnum):
    """Kafka's numbers."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


CONFIG_TYPES = {
    SettingKind.BOOLEAN: 1,
    SettingKind.STRING: 2,
    SettingKind.INT: 3,
    SettingKind.LONG: 5,
    SettingKind.DOUBLE: 6,
    SettingKind.LIST: 7,
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
    """The settings as they are now. Made for one request, since nothing changes while that is answered."""

    def __init__(self, services: Services) -> None:
        self._config = services.config
        self._defaults = services.topics.defaults
        self._dynamic = services.topics.metadata.broker_settings

    def of_topic(self, settings: Mapping[str, str]) -> Iterator[ConfigEntry]:
        """The entries of a topic with these settings. Raises InvalidSettingError."""
        config = override(self._defaults, settings, topic_settings())
        for setting in topic_settings().values():
            if setting.accepted is None:
                synonyms = self._broker_synonyms(broker_settings()[broker_name(setting.name)])
            else:
                synonyms = [ConfigSynonym(setting.name, setting.default, ConfigSource.DEFAULT_CONFIG)]
            if setting.name in settings:
                # Those that are accepted were written in one notation when they were set.
                value = settings[setting.name] if setting.accepted else to_text(getattr(config, setting.field))
                synonyms.insert(0, ConfigSynonym(setting.name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG))
            yield _entry(setting, synonyms, is_read_only=False)

    def of_broker(self) -> Iterator[ConfigEntry]:
        for setting in broker_settings().values():
            yield _entry(setting, self._broker_synonyms(setting), is_read_only=not setting.dynamic)

    def _broker_synonyms(self, setting: KafkaSetting) -> list[ConfigSynonym]:
        section = getattr(self._config, setting.section) if setting.section else self._config
        synonyms = [ConfigSynonym(setting.name, setting.default, ConfigSource.DEFAULT_CONFIG)]
        if setting.field in section.given:
            value = to_text(getattr(section, setting.field))
            synonyms.insert(0, ConfigSynonym(setting.name, value, ConfigSource.STATIC_BROKER_CONFIG))
        if setting.name in self._dynamic:
            value = to_text(getattr(self._defaults, setting.field))
            synonyms.insert(0, ConfigSynonym(setting.name, value, ConfigSource.DYNAMIC_BROKER_CONFIG))
        return synonyms


def _entry(setting: KafkaSetting, synonyms: list[ConfigSynonym], *, is_read_only: bool) -> ConfigEntry:
    first = synonyms[0]
    return ConfigEntry(
        setting.name, first.value, first.source, is_read_only, CONFIG_TYPES[setting.kind], setting.doc, synonyms
    )
