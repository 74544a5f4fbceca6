"""Settings under Kafka's names and in Kafka's notation, for DescribeConfigs, AlterConfigs and CreateTopics.

A topic's settings are those of `LogConfig`. The broker has the same settings under other names (`log.retention.ms` for
`retention.ms`), as defaults for all topics. Values are strings in Java's notation: numbers without units and
underscores, true and false, comma-separated lists; surrounding blanks are ignored. The settings of `accepted_settings`
may also be set; they have no effect.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from typing import Any, NamedTuple

from logbrook.config.accepted_settings import (
    ACCEPTED,
    ACCEPTED_BY_BROKERS,
    ACCEPTED_BY_GROUPS,
    READ_ONLY,
    AcceptedSetting,
    check_flushes,
)
from logbrook.config.broker import BrokerConfig
from logbrook.config.errors import NotAllowedError, WrongValueError
from logbrook.config.setting import ConfigType, Settings, facts_of, section_of
from logbrook.config.storage import StorageConfig
from logbrook.config.topics import LogConfig
from logbrook.model import LogbrookError

_LOG_SECTION = "log"

# Kafka's name of the broker-wide default, by the name of the topic setting, where the two differ.
_BROKER_NAMES = {
    "segment.bytes": "log.segment.bytes",
    "segment.ms": "log.roll.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.type": "log.message.timestamp.type",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "validate": "log.validate",
    "cleanup.policy": "log.cleanup.policy",
    "retention.ms": "log.retention.ms",
    "retention.bytes": "log.retention.bytes",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
}

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1
_LONG_LENGTH_MAX = len(str(_LONG_MIN))
_SHOWN_LENGTH_MAX = 100
# Twice that of the longest setting; comparing longer texts costs time.
_NAME_LENGTH_MAX = 100


class InvalidSettingError(LogbrookError):
    """The setting does not exist, or the value is not allowed."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason


class KafkaSetting(NamedTuple):
    """A setting with the attributes that DescribeConfigs returns.

    `accepted` marks a setting without effect; it has no field in any section.
    """

    name: str
    field: str
    section: str
    kind: ConfigType
    doc: str
    default: str
    dynamic: bool
    accepted: AcceptedSetting | None = None


def broker_name(topic_name: str) -> str:
    """Return the name of the broker setting that is the default of a topic setting."""
    return _BROKER_NAMES.get(topic_name, topic_name)


def apply_overrides(
    defaults: LogConfig, texts: Mapping[str, str], names: Mapping[str, KafkaSetting], *, is_stored: bool = False
) -> LogConfig:
    """Return `defaults` with the values of `texts`, whose names must be in `names`. Raises InvalidSettingError.

    `is_stored`: the values are in the metadata. Those without effect are then not checked, since an earlier version may
    have had wider limits.
    """
    values: dict[str, Any] = {}
    for name, text in texts.items():
        setting = names.get(name)
        if setting is None:
            similar = similar_setting(name, names)
            hint = f"; did you mean {similar}?" if similar else ""
            raise InvalidSettingError(name, f"there is no such setting{hint}")
        if setting.section != _LOG_SECTION:
            raise InvalidSettingError(name, "it is not a setting of logs")
        try:
            value = parse_text(setting.kind, text)
            if setting.accepted is None:
                values[setting.field] = value
            elif not is_stored:
                setting.accepted.check(value)
        except NotAllowedError as error:
            raise _refusal(name, text, error) from None
    try:
        return replace(defaults, **values) if values else defaults
    except WrongValueError as error:
        # The defaults were checked on construction, so the invalid value is one of `texts`.
        name = next(name for name in texts if names[name].field == error.name)
        raise _refusal(name, texts[name], error) from None


def similar_setting(name: str, names: Iterable[str]) -> str | None:
    """Return the most similar of `names`, None if none is similar: retention.ms for retention_ms."""
    if len(name) > _NAME_LENGTH_MAX:
        return None
    similar = get_close_matches(name.replace("_", ".").casefold(), names, 1)
    return similar[0] if similar else None


def check_flush_settings(texts: Mapping[str, str], storage: StorageConfig) -> None:
    """Check settings of a topic or a broker that require syncs against the broker's durability.

    Raises InvalidSettingError.
    """
    for name, text in texts.items():
        accepted = ACCEPTED.get(name) or ACCEPTED_BY_BROKERS.get(name)
        if accepted is not None:
            try:
                check_flushes(name, parse_text(accepted.kind, text), storage)
            except NotAllowedError as error:
                raise _refusal(name, text, error) from None


def check_compaction_lags(config: LogConfig) -> None:
    """Raises InvalidSettingError if records would have to be compacted before they may be."""
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise InvalidSettingError(
            "max.compaction.lag.ms",
            f"{config.max_compaction_lag_ms} is below min.compaction.lag.ms, {config.min_compaction_lag_ms}",
        )


def canonical_values(texts: Mapping[str, str], names: Mapping[str, KafkaSetting]) -> dict[str, str]:
    """Return the settings in Kafka's canonical notation. Raises InvalidSettingError."""
    config = apply_overrides(LogConfig(), texts, names)
    return {
        name: format_text(
            parse_text(names[name].kind, text) if names[name].accepted else getattr(config, names[name].field)
        )
        for name, text in texts.items()
    }


def parse_text(kind: ConfigType, text: str) -> Any:
    """Parse a value in Kafka's notation.

    A value that is not in the notation of its type is returned as a string; the field then refuses it with a
    description of the allowed values. Raises NotAllowedError for a number beyond 64 bits.
    """
    return _READERS[kind](text.strip())


def format_text(value: object) -> str:
    """Format a value in Kafka's notation."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, frozenset):
        return ",".join(sorted(value))
    if isinstance(value, list):
        return ",".join(value)
    return "" if value is None else str(value)


def _shown(text: str) -> str:
    """Quote a value for a message; long ones are cut."""
    return repr(text if len(text) <= _SHOWN_LENGTH_MAX else f"{text[:_SHOWN_LENGTH_MAX]}...")


def _refusal(name: str, text: str, error: NotAllowedError) -> InvalidSettingError:
    return InvalidSettingError(name, f"{_shown(text)} is not allowed (it must be {error.must_be})")


def _read_whole_number(text: str) -> int | str:
    if not _WHOLE_NUMBER.fullmatch(text):
        return text
    # The length is checked first: int() refuses numbers with thousands of digits.
    if len(text) > _LONG_LENGTH_MAX or not _LONG_MIN <= int(text) <= _LONG_MAX:
        raise NotAllowedError("a whole number that fits into 64 bits")
    return int(text)


_READERS: dict[ConfigType, Callable[[str], Any]] = {
    ConfigType.BOOLEAN: lambda text: {"true": True, "false": False}.get(text.lower(), text),
    ConfigType.STRING: str,
    ConfigType.INT: _read_whole_number,
    ConfigType.LONG: _read_whole_number,
    ConfigType.DOUBLE: lambda text: float(text) if _NUMBER.fullmatch(text) else text,
    ConfigType.LIST: lambda text: [part.strip() for part in text.split(",")] if text else [],
}


def _settings_of(section: str, settings: type[Settings]) -> Iterator[KafkaSetting]:
    for field in fields(settings):
        if section_of(field):
            continue
        facts = facts_of(field)
        if facts.kafka:
            kind = _kind(field.default, facts.unit)
            default = format_text(field.default)
            yield KafkaSetting(facts.kafka, field.name, section, kind, facts.doc, default, facts.dynamic)


def _accepted_settings(table: Mapping[str, AcceptedSetting]) -> Iterator[KafkaSetting]:
    for name, accepted in table.items():
        is_dynamic = name not in READ_ONLY
        doc = (
            f"Accepted, and changes nothing: {accepted.doc[:1].lower()}{accepted.doc[1:]}"
            if is_dynamic
            else accepted.doc
        )
        section = _LOG_SECTION if is_dynamic else ""
        yield KafkaSetting(name, "", section, accepted.kind, doc, accepted.default, is_dynamic, accepted)


def _kind(default: object, unit: object) -> ConfigType:
    if isinstance(default, bool):
        return ConfigType.BOOLEAN
    if isinstance(default, int):
        return ConfigType.LONG if unit in ("ms", "bytes") else ConfigType.INT
    if isinstance(default, float):
        return ConfigType.DOUBLE
    return ConfigType.LIST if isinstance(default, frozenset) else ConfigType.STRING


def _by_name(settings: Iterable[KafkaSetting]) -> dict[str, KafkaSetting]:
    return {setting.name: setting for setting in settings}


def _broker_settings() -> Iterator[KafkaSetting]:
    for setting in TOPIC_SETTINGS.values():
        if setting.accepted is None:
            yield setting._replace(name=broker_name(setting.name))
    yield from _accepted_settings(ACCEPTED_BY_BROKERS)
    yield from _settings_of("", BrokerConfig)
    for field in fields(BrokerConfig):
        section = section_of(field)
        if section and field.name != _LOG_SECTION:
            yield from (setting._replace(dynamic=False) for setting in _settings_of(field.name, section))


# The settings of topics, brokers and groups by Kafka's names.
TOPIC_SETTINGS: Mapping[str, KafkaSetting] = _by_name(
    [*_settings_of(_LOG_SECTION, LogConfig), *_accepted_settings(ACCEPTED)]
)
BROKER_SETTINGS: Mapping[str, KafkaSetting] = _by_name(_broker_settings())
GROUP_SETTINGS: Mapping[str, KafkaSetting] = _by_name(_accepted_settings(ACCEPTED_BY_GROUPS))
