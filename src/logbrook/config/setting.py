"""How a setting is declared: once, with everything that anyone needs to know about it.

A group of settings is a frozen dataclass that takes keywords only. Whoever makes one, from a file or in a test, is held
to the declared types and bounds. What can be written of a value stands for it: a word for a choice, a list or a set
of words for several, a whole number for a number, and a mapping for a section.
"""

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, ClassVar, NamedTuple, Self, dataclass_transform, get_args, get_origin

from logbrook.config.errors import WrongValueError, listed

_FACTS = "facts"
_TYPES_IN_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


class Facts(NamedTuple):
    """What is declared of a setting beside its name, type and default. `doc` is a sentence."""

    doc: str
    unit: str | None
    kafka: str | None
    dynamic: bool
    flag: str | None
    at_least: float | None
    at_most: float | None


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class Settings:
    """A group of settings: immutable, and an unknown name is an error, not a silence.

    Making one raises TypeError for a name that is not declared, and WrongValueError for a value that is not allowed.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    _given: frozenset[str]

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)

    def __new__(cls, **given: object) -> Self:
        made = super().__new__(cls)
        object.__setattr__(made, "_given", frozenset(given))
        return made

    def __post_init__(self) -> None:
        """Checks what was given; the defaults are checked by a test."""
        for one in fields(self):
            if one.name in self._given:
                object.__setattr__(self, one.name, _taken(one, getattr(self, one.name)))

    @property
    def given(self) -> frozenset[str]:
        """The names that it was made with, were it with their defaults; `dataclasses.replace` gives every name."""
        return self._given


def setting(
    default: Any,
    doc: str,
    *,
    unit: str | None = None,
    kafka: str | None = None,
    dynamic: bool = False,
    flag: str | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
) -> Any:
    """A field of a `Settings`. `kafka` is the name Kafka's tools know it by; `dynamic` ones may change at run time.

    `flag` is for the few that people type: a shorter name on the command line than section and name together.
    """
    facts = Facts(doc, unit, kafka, dynamic, flag, at_least, at_most)
    return field(default=default, metadata={_FACTS: facts})


def facts_of(declared: Field[Any]) -> Facts:
    """The facts of a field that is not a section."""
    facts = declared.metadata.get(_FACTS)
    assert isinstance(facts, Facts), f"{declared.name} was not declared with setting()"
    return facts


def section_of(declared: Field[Any]) -> type[Settings] | None:
    """The settings that a field holds if it is a section."""
    kind = declared.type
    return kind if isinstance(kind, type) and issubclass(kind, Settings) else None


def _taken(declared: Field[Any], value: Any) -> Any:
    """What the field holds once it is given `value`. Raises WrongValueError."""
    if section := section_of(declared):
        if isinstance(value, Mapping):
            return section(**value)
        if not isinstance(value, section):
            raise WrongValueError(declared.name, value, f"a {section.__name__}")
        return value
    facts = facts_of(declared)
    try:
        taken = _as_type(declared.type, value)
    except (ValueError, OverflowError):
        raise WrongValueError(declared.name, value, _allowed(declared.type, facts)) from None
    too_small = facts.at_least is not None and not taken >= facts.at_least
    too_large = facts.at_most is not None and not taken <= facts.at_most
    if too_small or too_large:
        raise WrongValueError(declared.name, value, _allowed(declared.type, facts))
    return taken


def _as_type(kind: Any, value: Any) -> Any:
    """`value`, or what it stands for. Nothing is guessed: true is not 1, 1.0 is not 1, and "1" is a text.

    Raises ValueError or OverflowError for what is not of the type.
    """
    if type(value) is kind:
        return value
    if get_origin(kind) is frozenset and isinstance(value, frozenset | set | list) and value:
        (choice,) = get_args(kind)
        return frozenset(_as_type(choice, one) for one in value)
    if get_origin(kind) is UnionType:
        return None if value is None else _as_type(_without_none(kind), value)
    if isinstance(kind, type) and issubclass(kind, StrEnum) and isinstance(value, str):
        return kind(value)
    if kind is float and type(value) is int:
        return float(value)
    raise ValueError("it is of another type")


def _allowed(kind: Any, facts: Facts) -> str:
    """What the value may be, as the end of the sentence `it must be ...`."""
    if get_origin(kind) is frozenset:
        return f"one or more of {listed(tuple(*get_args(kind)), 'and')}"
    if get_origin(kind) is UnionType:
        return f"{_allowed(_without_none(kind), facts)} or None"
    if issubclass(kind, StrEnum):
        return listed(tuple(kind), "or")
    if facts.at_most is not None:
        return f"{_TYPES_IN_WORDS[kind]} from {facts.at_least} to {facts.at_most}"
    return _TYPES_IN_WORDS[kind] + (f", at least {facts.at_least}" if facts.at_least is not None else "")


def _without_none(kind: Any) -> Any:
    (inner,) = (one for one in get_args(kind) if one is not NoneType)
    return inner
