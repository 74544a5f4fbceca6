"""Declaration of settings: a section is a subclass of `Settings`, a setting is a field declared with `setting()`.

Flags, environment variables, the TOML file, Kafka's config names, help and documentation are derived from these
declarations. Sections are frozen keyword-only dataclasses that check types and bounds on construction. A value may be
given as an equivalent: a string for an enum member, a list or set of strings for a set of members, an int for a float,
a mapping for a section.
"""

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, ClassVar, NamedTuple, Self, dataclass_transform, get_args, get_origin

from logbrook.config.errors import WrongValueError
from logbrook.model.text import join_words

_FACTS = "facts"
_TYPES_IN_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


class ConfigType(StrEnum):
    """Types of config values in Kafka's DescribeConfigs response."""

    BOOLEAN = "boolean"
    STRING = "string"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    LIST = "list"


class SettingFacts(NamedTuple):
    """Attributes of a setting besides name, type and default. `doc` is one or more sentences.

    `unit` is the one in the setting's name: ms, bytes or none. `kafka` is the name of the same setting in Kafka.
    `dynamic` settings may change at run time. `flag` replaces the flag derived from section and name, for the few
    settings that are typed often.
    """

    doc: str
    at_least: float | None = None
    at_most: float | None = None
    kafka: str | None = None
    flag: str | None = None
    dynamic: bool = False
    unit: str | None = None


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class Settings:
    """Base class of a section of settings; instances are immutable.

    Constructing one raises TypeError for an undeclared name and WrongValueError for a value that is not allowed.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    _given: frozenset[str]

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)

    def __new__(cls, **given: object) -> Self:
        settings = super().__new__(cls)
        object.__setattr__(settings, "_given", frozenset(given))
        return settings

    def __post_init__(self) -> None:
        """Check and convert the given values. Defaults are checked by a test, not at run time."""
        for declared in fields(self):
            if declared.name in self._given:
                object.__setattr__(self, declared.name, _converted(declared, getattr(self, declared.name)))

    @property
    def given(self) -> frozenset[str]:
        """Names passed to the constructor, even with their default value; `dataclasses.replace` passes every name."""
        return self._given


def setting(
    default: Any,
    doc: str,
    *,
    kafka: str | None = None,
    flag: str | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
) -> Any:
    """Declare a field of a `Settings` subclass. The parameters are explained in `SettingFacts`."""
    return field(default=default, metadata={_FACTS: SettingFacts(doc, at_least, at_most, kafka, flag)})


def topic_setting(default: Any, doc: str, *, at_least: float | None = None, at_most: float | None = None) -> Any:
    """Declare a dynamic setting of topics. Its name is Kafka's, with underscores for dots."""
    return field(default=default, metadata={_FACTS: SettingFacts(doc, at_least, at_most, dynamic=True)})


@cache
def facts_of(declared: Field[Any]) -> SettingFacts:
    """Return the attributes of a field that is not a section."""
    facts = declared.metadata.get(_FACTS)
    assert isinstance(facts, SettingFacts), f"{declared.name} was not declared with setting()"
    unit = next((unit for unit in ("ms", "bytes") if unit in declared.name.split("_")), None)
    return facts._replace(unit=unit, kafka=declared.name.replace("_", ".") if facts.dynamic else facts.kafka)


def section_of(declared: Field[Any]) -> type[Settings] | None:
    """Return the class of the section that a field holds, None if it holds a single setting."""
    kind = declared.type
    return kind if isinstance(kind, type) and issubclass(kind, Settings) else None


def _converted(declared: Field[Any], value: Any) -> Any:
    """Convert `value` to the field's type and check its bounds. Raises WrongValueError."""
    if section := section_of(declared):
        if isinstance(value, Mapping):
            return section(**value)
        if not isinstance(value, section):
            raise WrongValueError(declared.name, value, f"a {section.__name__}")
        return value
    facts = facts_of(declared)
    try:
        converted = _as_type(declared.type, value)
    except (ValueError, OverflowError):
        raise WrongValueError(declared.name, value, _allowed(declared.type, facts)) from None
    too_small = facts.at_least is not None and not converted >= facts.at_least
    too_large = facts.at_most is not None and not converted <= facts.at_most
    if too_small or too_large:
        raise WrongValueError(declared.name, value, _allowed(declared.type, facts))
    return converted


def _as_type(kind: Any, value: Any) -> Any:
    """Convert `value` to `kind` without guessing: true is not 1, 1.0 is not 1, and "1" is a string.

    Raises ValueError or OverflowError if the value does not have the type.
    """
    if type(value) is kind:
        return value
    if get_origin(kind) is frozenset and isinstance(value, frozenset | set | list):
        (choice,) = get_args(kind)
        return frozenset(_as_type(choice, word) for word in value)
    if get_origin(kind) is UnionType:
        return None if value is None else _as_type(_without_none(kind), value)
    if isinstance(kind, type) and issubclass(kind, StrEnum) and isinstance(value, str):
        return kind(value)
    if kind is float and type(value) is int:
        return float(value)
    raise ValueError("it has another type")


def _allowed(kind: Any, facts: SettingFacts) -> str:
    """Describe the allowed values, to complete the sentence "it must be ..."."""
    if get_origin(kind) is frozenset:
        return f"any of {join_words(tuple(*get_args(kind)), 'and')}"
    if get_origin(kind) is UnionType:
        return f"{_allowed(_without_none(kind), facts)} or None"
    if issubclass(kind, StrEnum):
        return join_words(tuple(kind), "or")
    if facts.at_most is not None:
        return f"{_TYPES_IN_WORDS[kind]} from {facts.at_least} to {facts.at_most}"
    return _TYPES_IN_WORDS[kind] + (f", at least {facts.at_least}" if facts.at_least is not None else "")


def _without_none(kind: Any) -> Any:
    (inner,) = (member for member in get_args(kind) if member is not NoneType)
    return inner
