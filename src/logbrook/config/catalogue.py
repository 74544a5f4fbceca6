"""Every setting that is declared, with the names that the command line, the environment and the file know it by.

The rule of the names: `connections_max` in the section `network` is

    network.connections_max                 the key, `connections_max` under `[network]` in the file
    --network-connections-max               the flag: section and name, or the short one that the field declares
    LOGBROOK_NETWORK_CONNECTIONS_MAX        the environment variable: the flag in capitals
"""

from dataclasses import Field, dataclass, fields, replace
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from logbrook.config.broker import BrokerConfig
from logbrook.config.setting import facts_of, section_of

ENVIRONMENT_PREFIX = "LOGBROOK_"


class Kind(StrEnum):
    """What the value of a setting is."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    NUMBER = "number"
    TEXT = "text"
    PATH = "path"
    ADDRESS = "address"
    CHOICE = "choice"
    CHOICES = "choices"


@dataclass(frozen=True, slots=True)
class Form:
    """What a value may look like. `optional`: the text may be empty, which stands for None if that is `nullable`.

    `bare_port`: an address may be written without its host, which is this machine then.
    """

    kind: Kind
    choices: tuple[str, ...] = ()
    optional: bool = False
    nullable: bool = False
    bare_port: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """A table of the file; `name` is empty for the settings above all tables."""

    name: str
    title: str


@dataclass(frozen=True, slots=True)
class Declared:
    """One setting, as it was declared."""

    section: str
    name: str
    doc: str
    default: Any
    form: Form
    at_least: float | None
    at_most: float | None
    unit: str | None
    kafka: str | None
    dynamic: bool
    short_flag: str | None

    @property
    def key(self) -> str:
        return f"{self.section}.{self.name}" if self.section else self.name

    @property
    def long_flag(self) -> str:
        """The flag by the rule, which is not the flag where the field declares a shorter one."""
        return "--" + self.key.replace(".", "-").replace("_", "-")

    @property
    def flag(self) -> str:
        return f"--{self.short_flag}" if self.short_flag else self.long_flag

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.flag.removeprefix("--").replace("-", "_").upper()


# What the type `str` does not tell: the form that the description of each of these promises.
_TEXT_FORMS = {
    "data": Form(Kind.PATH),
    "network.listen": Form(Kind.ADDRESS),
    "network.advertise": Form(Kind.ADDRESS, optional=True, nullable=True),
    "network.json_listen": Form(Kind.ADDRESS, optional=True, bare_port=True),
    "metrics.listen": Form(Kind.ADDRESS, optional=True),
    "console.listen": Form(Kind.ADDRESS, optional=True, bare_port=True),
}


@cache
def all_sections() -> tuple[Section, ...]:
    """The tables of the file in the order of their declaration, what is above all tables first."""
    sections = [Section("", "General")]
    for field in fields(BrokerConfig):
        if section := section_of(field):
            title = (section.__doc__ or "").split("\n")[0].removeprefix("The settings of ").removesuffix(".")
            sections.append(Section(field.name, f"{field.name}: {title}"))
    return tuple(sections)


@cache
def all_settings() -> tuple[Declared, ...]:
    """Every setting in the order of the sections."""
    found = [_declared("", field) for field in fields(BrokerConfig) if not section_of(field)]
    for field in fields(BrokerConfig):
        if section := section_of(field):
            found += [_declared(field.name, inner) for inner in fields(section)]
    return tuple(found)


@cache
def settings_by_key() -> dict[str, Declared]:
    return {setting.key: setting for setting in all_settings()}


def _declared(section: str, field: Field[Any]) -> Declared:
    facts = facts_of(field)
    key = f"{section}.{field.name}" if section else field.name
    return Declared(
        section=section,
        name=field.name,
        doc=facts.doc,
        default=field.default,
        form=_TEXT_FORMS.get(key) or _form_of(field.type),
        at_least=facts.at_least,
        at_most=facts.at_most,
        unit=facts.unit,
        kafka=facts.kafka,
        dynamic=facts.dynamic,
        short_flag=facts.flag,
    )


def _form_of(annotation: Any) -> Form:
    if get_origin(annotation) is frozenset:
        (choice,) = get_args(annotation)
        return Form(Kind.CHOICES, choices=tuple(choice))
    if get_origin(annotation) is UnionType:
        (inner,) = (one for one in get_args(annotation) if one is not NoneType)
        return replace(_form_of(inner), optional=True, nullable=True)
    if issubclass(annotation, StrEnum):
        return Form(Kind.CHOICE, choices=tuple(annotation))
    if annotation is str:
        return Form(Kind.TEXT, optional=True)
    return Form({bool: Kind.BOOLEAN, int: Kind.INTEGER, float: Kind.NUMBER}[annotation])
