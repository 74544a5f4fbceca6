"""Settings under Kafka's names, as Kafka's tools read and write them.

A topic's settings are those of `LogConfig`. A broker has the same ones under other names (`log.retention.ms` for
`retention.ms`); there they are the defaults of all topics that do not set their own. Values are text in Kafka's own
notation: plain numbers, and lists with commas.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from pydantic import ValidationError

from logbrook.config.broker import BrokerConfig
from logbrook.config.log import LogConfig
from logbrook.config.setting import Settings
from logbrook.model import LogbrookError

# Kafka's broker-wide name for what a topic calls otherwise.
_BROKER_NAMES = {
    "segment.bytes": "log.segment.bytes",
    "segment.ms": "log.roll.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.type": "log.message.timestamp.type",
    "cleanup.policy": "log.cleanup.policy",
    "retention.ms": "log.retention.ms",
    "retention.bytes": "log.retention.bytes",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
}

# Kafka's numbers are Java's.
_LONG_MAX = 2**63 - 1
_SHOWN_LENGTH_MAX = 100


class InvalidSettingError(LogbrookError):
    """A name that is not known, or a value that is not allowed."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason


class SettingKind(StrEnum):
    BOOLEAN = "boolean"
    STRING = "string"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    LIST = "list"


class KafkaSetting(NamedTuple):
    """One setting, with what Kafka's tools ask about it."""

    name: str
    field: str
    section: str
    kind: SettingKind
    doc: str
    default: str
    dynamic: bool


def topic_settings() -> Mapping[str, KafkaSetting]:
    """What a topic may set, by Kafka's name."""
    return _TOPIC


def broker_settings() -> Mapping[str, KafkaSetting]:
    """What a broker may set, by Kafka's name."""
    return _BROKER


def broker_name(topic_name: str) -> str:
    """What a broker calls the default of a topic's setting."""
    return _BROKER_NAMES.get(topic_name, topic_name)


def override(defaults: LogConfig, texts: Mapping[str, str], names: Mapping[str, KafkaSetting]) -> LogConfig:
    """`defaults` with the settings in `texts`, by names of `names`. Raises InvalidSettingError."""
    values: dict[str, Any] = {}
    for name, text in texts.items():
        known = names.get(name)
        if known is None:
            raise InvalidSettingError(name, "there is no such setting")
        values[known.field] = [part.strip() for part in text.split(",")] if known.kind is SettingKind.LIST else text
    try:
        # The defaults were checked when they were made, so only what is new can be wrong.
        checked = LogConfig(**values)
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0])
        name = next(name for name in texts if names[name].field == field)
        raise InvalidSettingError(name, f"{_shown(texts[name])} is not allowed ({first['msg']})") from None
    for name, text in texts.items():
        value = getattr(checked, names[name].field)
        if isinstance(value, int) and value > _LONG_MAX:
            raise InvalidSettingError(name, f"{_shown(text)} is not allowed (Input should fit into 64 bits)")
    return defaults.model_copy(update={field: getattr(checked, field) for field in values})


def to_text(value: object) -> str:
    """A value in Kafka's notation."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, frozenset):
        return ",".join(sorted(value))
    return "" if value is None else str(value)


def _shown(text: str) -> str:
    """A value as a message quotes it. Whoever sent it may have sent much."""
    return repr(text if len(text) <= _SHOWN_LENGTH_MAX else f"{text[:_SHOWN_LENGTH_MAX]}...")


def _settings_of(section: str, settings: type[Settings]) -> Iterator[KafkaSetting]:
    for field, info in settings.model_fields.items():
        facts = info.json_schema_extra
        if isinstance(facts, dict) and (name := facts.get("kafka")):
            default = info.default
            kind = _kind(default, facts.get("unit"))
            doc = info.description or ""
            yield KafkaSetting(str(name), field, section, kind, doc, to_text(default), bool(facts.get("dynamic")))


def _kind(default: object, unit: object) -> SettingKind:
    if isinstance(default, bool):
        return SettingKind.BOOLEAN
    if isinstance(default, int):
        return SettingKind.LONG if unit in ("ms", "bytes") else SettingKind.INT
    if isinstance(default, float):
        return SettingKind.DOUBLE
    return SettingKind.LIST if isinstance(default, frozenset) else SettingKind.STRING


def _by_name(settings: Iterable[KafkaSetting]) -> dict[str, KafkaSetting]:
    return {one.name: one for one in settings}


def _broker_settings() -> Iterator[KafkaSetting]:
    yield from (one._replace(name=broker_name(one.name)) for one in _TOPIC.values())
    yield from (one._replace(section="") for one in _settings_of("", BrokerConfig))
    for section, info in BrokerConfig.model_fields.items():
        if section != "log" and isinstance(info.annotation, type) and issubclass(info.annotation, Settings):
            yield from (one._replace(dynamic=False) for one in _settings_of(section, info.annotation))


_TOPIC = _by_name(_settings_of("log", LogConfig))
_BROKER = _by_name(_broker_settings())
