"""Settings under Kafka's names, as Kafka's tools read and write them.

A topic's settings are those of `LogConfig`. A broker has the same ones under other names (`log.retention.ms` for
`retention.ms`); there they are the defaults of all topics that do not set their own. Values are text in Kafka's own
notation, which is Java's: numbers without units and underscores, true and false, and lists with commas. Blanks around
a value do not count. Topics may also set what `accepted_settings` has, which changes nothing.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple

from logbrook.config.accepted_settings import ACCEPTED, AcceptedSetting, check_flushes
from logbrook.config.broker import BrokerConfig
from logbrook.config.errors import NotAllowedError, WrongValueError
from logbrook.config.log import LogConfig
from logbrook.config.setting import Settings, facts_of, section_of
from logbrook.config.setting_kind import SettingKind
from logbrook.config.storage import StorageConfig
from logbrook.model import LogbrookError

_LOG_SECTION = "log"

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

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1
_LONG_LENGTH_MAX = len(str(_LONG_MIN))
_SHOWN_LENGTH_MAX = 100


class InvalidSettingError(LogbrookError):
    """A name that is not known, or a value that is not allowed."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason


class KafkaSetting(NamedTuple):
    """One setting, with what Kafka's tools ask about it. One that is `accepted` is a field of nothing."""

    name: str
    field: str
    section: str
    kind: SettingKind
    doc: str
    default: str
    dynamic: bool
    accepted: AcceptedSetting | None = None


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
        if known.section != _LOG_SECTION:
            raise InvalidSettingError(name, "it is not a setting of logs")
        try:
            value = from_text(known.kind, text)
            if known.accepted is None:
                values[known.field] = value
            else:
                known.accepted.check(value)
        except NotAllowedError as error:
            raise _refusal(name, text, error) from None
    try:
        return replace(defaults, **values) if values else defaults
    except WrongValueError as error:
        # The defaults were checked when they were made, so only what is new can be wrong.
        name = next(name for name in texts if names[name].field == error.name)
        raise _refusal(name, texts[name], error) from None


def check_promises(texts: Mapping[str, str], storage: StorageConfig) -> None:
    """Whether this broker does what settings that it accepts promise. Raises InvalidSettingError."""
    for name, text in texts.items():
        if name in ACCEPTED:
            try:
                check_flushes(name, from_text(ACCEPTED[name].kind, text), storage)
            except NotAllowedError as error:
                raise _refusal(name, text, error) from None


def in_one_notation(texts: Mapping[str, str], names: Mapping[str, KafkaSetting]) -> dict[str, str]:
    """The settings as Kafka would write them. Raises InvalidSettingError."""
    config = override(LogConfig(), texts, names)
    return {
        name: to_text(from_text(names[name].kind, text) if names[name].accepted else getattr(config, names[name].field))
        for name, text in texts.items()
    }


def from_text(kind: SettingKind, text: str) -> Any:
    """What a text in Kafka's notation stands for.

    What is not in the notation of its kind stays a text, which a field of another type refuses, saying what it takes.
    Raises NotAllowedError for a number that is too large for any field.
    """
    return _READERS[kind](text.strip())


def to_text(value: object) -> str:
    """A value in Kafka's notation."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, frozenset):
        return ",".join(sorted(value))
    if isinstance(value, list):
        return ",".join(value)
    return "" if value is None else str(value)


def _shown(text: str) -> str:
    """A value as a message quotes it. Whoever sent it may have sent much."""
    return repr(text if len(text) <= _SHOWN_LENGTH_MAX else f"{text[:_SHOWN_LENGTH_MAX]}...")


def _refusal(name: str, text: str, error: NotAllowedError) -> InvalidSettingError:
    return InvalidSettingError(name, f"{_shown(text)} is not allowed (it must be {error.must_be})")


def _read_boolean(text: str) -> bool | str:
    return {"true": True, "false": False}.get(text.lower(), text)


def _read_whole_number(text: str) -> int | str:
    if not _WHOLE_NUMBER.fullmatch(text):
        return text
    # The length is looked at first, since Python reads no number of thousands of digits.
    if len(text) > _LONG_LENGTH_MAX or not _LONG_MIN <= int(text) <= _LONG_MAX:
        raise NotAllowedError("a whole number that fits into 64 bits")
    return int(text)


def _read_number(text: str) -> float | str:
    return float(text) if _NUMBER.fullmatch(text) else text


def _read_list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


_READERS: dict[SettingKind, Callable[[str], Any]] = {
    SettingKind.BOOLEAN: _read_boolean,
    SettingKind.STRING: str,
    SettingKind.INT: _read_whole_number,
    SettingKind.LONG: _read_whole_number,
    SettingKind.DOUBLE: _read_number,
    SettingKind.LIST: _read_list,
}


def _settings_of(section: str, settings: type[Settings]) -> Iterator[KafkaSetting]:
    for field in fields(settings):
        if section_of(field):
            continue
        facts = facts_of(field)
        if facts.kafka:
            kind = _kind(field.default, facts.unit)
            default = to_text(field.default)
            yield KafkaSetting(facts.kafka, field.name, section, kind, facts.doc, default, facts.dynamic)


def _accepted_settings() -> Iterator[KafkaSetting]:
    for one in ACCEPTED.values():
        doc = f"Accepted, and changes nothing: {one.doc[:1].lower()}{one.doc[1:]}"
        yield KafkaSetting(one.name, "", _LOG_SECTION, one.kind, doc, one.default, True, one)


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
    yield from (one._replace(name=broker_name(one.name)) for one in _TOPIC.values() if one.accepted is None)
    yield from (one._replace(section="") for one in _settings_of("", BrokerConfig))
    for field in fields(BrokerConfig):
        section = section_of(field)
        if section and field.name != _LOG_SECTION:
            yield from (one._replace(dynamic=False) for one in _settings_of(field.name, section))


_TOPIC = _by_name([*_settings_of(_LOG_SECTION, LogConfig), *_accepted_settings()])
_BROKER = _by_name(_broker_settings())
