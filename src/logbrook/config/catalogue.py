"""Catalogue of all declared settings, with their names on the command line, in the environment and in the TOML file.

The names of `connections_max` in the section `network`:

    network.connections_max                 key; `connections_max` under `[network]` in the file
    --network-connections-max               flag: section and name, unless the field declares a shorter one
    LOGBROOK_NETWORK_CONNECTIONS_MAX        environment variable: the flag in capitals
"""

from dataclasses import Field, dataclass, fields, replace
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from logbrook.config.broker import PATH_SEPARATOR, BrokerConfig
from logbrook.config.setting import SettingFacts, facts_of, section_of

ENVIRONMENT_PREFIX = "LOGBROOK_"


class ValueKind(StrEnum):
    """Type of a setting's value as users write it."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    NUMBER = "number"
    TEXT = "text"
    PATHS = "paths"
    ADDRESS = "address"
    LISTENERS = "listeners"
    CHOICE = "choice"
    CHOICES = "choices"


@dataclass(frozen=True, slots=True)
class ValueForm:
    """Syntax of a value. `optional`: it may be empty, which means None if the setting is `nullable`.

    `bare_port`: an address may be a port alone, which means that port of 127.0.0.1.
    """

    kind: ValueKind
    choices: tuple[str, ...] = ()
    optional: bool = False
    nullable: bool = False
    bare_port: bool = False


@dataclass(frozen=True, slots=True)
class SettingsSection:
    """A table of the TOML file; `name` is empty for the settings above all tables."""

    name: str
    title: str


@dataclass(frozen=True, slots=True)
class DeclaredSetting:
    """A setting with its section and everything that its field declares."""

    section: str
    name: str
    default: Any
    form: ValueForm
    facts: SettingFacts

    @property
    def key(self) -> str:
        return f"{self.section}.{self.name}" if self.section else self.name

    @property
    def long_flag(self) -> str:
        """The flag derived from section and name, even if the field declares a shorter one."""
        return "--" + self.key.replace(".", "-").replace("_", "-")

    @property
    def flag(self) -> str:
        return f"--{self.facts.flag}" if self.facts.flag else self.long_flag

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.flag.removeprefix("--").replace("-", "_").upper()


# Kinds of several values in one text. Their flags may be repeated, and in a file they may be arrays.
SEPARATORS = {ValueKind.PATHS: PATH_SEPARATOR, ValueKind.LISTENERS: ","}
# Syntax of settings of type `str`, whose type alone does not define it.
_TEXT_FORMS = {
    "data": ValueForm(ValueKind.PATHS),
    "network.listen": ValueForm(ValueKind.ADDRESS),
    "network.advertise": ValueForm(ValueKind.ADDRESS, optional=True, nullable=True),
    "network.listeners": ValueForm(ValueKind.LISTENERS, optional=True),
    "network.advertised_listeners": ValueForm(ValueKind.LISTENERS, optional=True),
    "network.json_listen": ValueForm(ValueKind.ADDRESS, optional=True, bare_port=True),
    "metrics.listen": ValueForm(ValueKind.ADDRESS, optional=True),
    "console.listen": ValueForm(ValueKind.ADDRESS, optional=True, bare_port=True),
}


@cache
def all_sections() -> tuple[SettingsSection, ...]:
    """Return all sections in the order of declaration; the settings above all tables come first."""
    sections = [SettingsSection("", "General")]
    for field in fields(BrokerConfig):
        if section := section_of(field):
            title = (section.__doc__ or "").split("\n")[0].removeprefix("The settings of ").removesuffix(".")
            sections.append(SettingsSection(field.name, f"{field.name}: {title}"))
    return tuple(sections)


@cache
def all_settings() -> tuple[DeclaredSetting, ...]:
    """Return every setting in the order of the sections."""
    settings = [_declared("", field) for field in fields(BrokerConfig) if not section_of(field)]
    for field in fields(BrokerConfig):
        if section := section_of(field):
            settings += [_declared(field.name, inner) for inner in fields(section)]
    return tuple(settings)


@cache
def settings_by_key() -> dict[str, DeclaredSetting]:
    return {setting.key: setting for setting in all_settings()}


def _declared(section: str, field: Field[Any]) -> DeclaredSetting:
    key = f"{section}.{field.name}" if section else field.name
    form = _TEXT_FORMS.get(key) or _form_of(field.type)
    return DeclaredSetting(section, field.name, field.default, form, facts_of(field))


def _form_of(annotation: Any) -> ValueForm:
    if get_origin(annotation) is frozenset:
        (choice,) = get_args(annotation)
        return ValueForm(ValueKind.CHOICES, choices=tuple(choice))
    if get_origin(annotation) is UnionType:
        (inner,) = (member for member in get_args(annotation) if member is not NoneType)
        return replace(_form_of(inner), optional=True, nullable=True)
    if issubclass(annotation, StrEnum):
        return ValueForm(ValueKind.CHOICE, choices=tuple(annotation))
    if annotation is str:
        return ValueForm(ValueKind.TEXT, optional=True)
    return ValueForm({bool: ValueKind.BOOLEAN, int: ValueKind.INTEGER, float: ValueKind.NUMBER}[annotation])
