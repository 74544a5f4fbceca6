"""Where settings are written: a TOML file, the environment, the command line.

Each source is read whole, and gives what was written under names that exist and the problems of those that do not.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from logbrook.config.catalogue import ENVIRONMENT_PREFIX, Declared, all_sections, all_settings, settings_by_key
from logbrook.config.console import TOKEN_VARIABLE
from logbrook.config.errors import Problem
from logbrook.config.printable import printable
from logbrook.config.toml_lines import TomlSyntaxError, lines_of_keys, parse_toml

CONFIG_FLAG = "--config"
CONFIG_VARIABLE = "LOGBROOK_CONFIG"
# Read by the commands that talk to a cluster and by the console, which may well run where a broker is started too.
_COMMANDS_VARIABLES = ("LOGBROOK_BOOTSTRAP", TOKEN_VARIABLE)
_OTHER_FLAGS = (CONFIG_FLAG, "--help")
_SHOWN_CHARACTERS_MAX = 60

# Kubernetes gives every container such variables for each service, and a service may well be called logbrook.
_KUBERNETES = re.compile(r"LOGBROOK_(.*_)?(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_\d+_(TCP|UDP|SCTP)(_.*)?)?)")


@dataclass(frozen=True, slots=True)
class Written:
    """A setting's value as someone wrote it. `where` and `name` say it in a problem, `origin` in a listing."""

    setting: Declared
    value: object
    where: str
    name: str
    origin: str
    line: int = 0


@dataclass(slots=True)
class Source:
    """What one place says."""

    written: list[Written] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def read_flags(flags: Mapping[str, object]) -> Source:
    """The command line: flags with their values. An argument that is no flag is a problem."""
    source = Source()
    where = "command line"
    by_flag = {setting.flag: setting for setting in all_settings()}
    for flag, value in flags.items():
        if flag in by_flag:
            source.written.append(Written(by_flag[flag], value, where, flag, flag))
        elif flag not in _OTHER_FLAGS:
            source.problems.append(Problem(where, _unknown_flag(flag)))
    return source


def read_environment(environment: Mapping[str, str]) -> Source:
    """The variables that begin with LOGBROOK_; one that is no setting is a problem, unless it is from Kubernetes."""
    source = Source()
    where = "environment"
    by_variable = {setting.variable: setting for setting in all_settings()}
    for variable, value in sorted(environment.items()):
        if variable in by_variable:
            source.written.append(Written(by_variable[variable], value, where, variable, variable))
        elif _is_ours(variable):
            source.problems.append(Problem(where, _unknown_variable(variable)))
    return source


def read_file(path: str) -> Source:
    """The TOML file at `path`: keys, and a table for each section."""
    try:
        with open(path, "rb") as file:
            return read_toml(path, file.read())
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        return Source(problems=[Problem(printable(path), f"the settings cannot be read: {why}")])


def read_toml(path: str, content: bytes) -> Source:
    try:
        document = parse_toml(content)
    except TomlSyntaxError as error:
        return Source(problems=[Problem(printable(path), f"this is not TOML: {error.reason}", error.line)])
    return _FileReader(path, document, lines_of_keys(content.decode())).read()


def shown(value: object) -> str:
    """A value in a message: as it was written, on one line and not too long of it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = printable(value if isinstance(value, str) else repr(value))
    if len(text) > _SHOWN_CHARACTERS_MAX:
        text = f"{text[:_SHOWN_CHARACTERS_MAX]}..."
    return f'"{text}"' if isinstance(value, str) else text


class _FileReader:
    """Goes through the tables of a document, knowing the line of each key."""

    def __init__(self, path: str, document: dict[str, Any], lines: Mapping[tuple[str, ...], int]) -> None:
        self._path = printable(path)
        self._origin = os.path.basename(self._path)
        self._document = document
        self._lines = lines
        self._source = Source()

    def read(self) -> Source:
        sections = {section.name for section in all_sections() if section.name}
        for name, value in self._document.items():
            if name in sections:
                self._read_section(name, value)
            elif isinstance(value, dict) and name not in settings_by_key():
                self._refuse((name,), f"[{printable(name)}] is not a section; {_section_suggestion(name)}")
            else:
                self._read_setting((name,), value)
        return self._source

    def _read_section(self, section: str, table: object) -> None:
        if not isinstance(table, dict):
            self._refuse((section,), f"{section} = {shown(table)}, but it must be the table [{section}]")
            return
        for name, value in table.items():
            self._read_setting((section, name), value)

    def _read_setting(self, path: tuple[str, ...], value: object) -> None:
        key = ".".join(path)
        setting = settings_by_key().get(key)
        if setting is None:
            self._refuse(path, _unknown_key(key))
            return
        line = self._lines[path]
        written = Written(setting, value, self._path, key, f"{self._origin}:{line}", line)
        self._source.written.append(written)

    def _refuse(self, path: tuple[str, ...], what: str) -> None:
        self._source.problems.append(Problem(self._path, what, self._lines[path]))


def _is_ours(variable: str) -> bool:
    if variable in (CONFIG_VARIABLE, *_COMMANDS_VARIABLES) or _KUBERNETES.fullmatch(variable):
        return False
    return variable.startswith(ENVIRONMENT_PREFIX)


def _unknown_flag(flag: str) -> str:
    if not flag.startswith("-"):
        return f"{shown(flag)} stands alone; a setting is given as --flag VALUE"
    known = {one: one for one in _OTHER_FLAGS} | _by_any_flag(
        {setting.flag: setting.flag for setting in all_settings()}
    )
    nearest = get_close_matches(flag, known, 1)
    return f"{printable(flag)} is not a setting; {_did_you_mean(known[one] for one in nearest)}"


def _unknown_variable(variable: str) -> str:
    """Underscores are taken for one, because other tools set two between a section and a name."""
    flag = "--" + re.sub("_+", "-", variable.removeprefix(ENVIRONMENT_PREFIX)).lower()
    known = _by_any_flag({setting.flag: setting.variable for setting in all_settings()})
    nearest = get_close_matches(flag, known, 1)
    return f"{printable(variable)} is not a setting; {_did_you_mean(known[one] for one in nearest)}"


def _by_any_flag(by_flag: Mapping[str, str]) -> dict[str, str]:
    """The same under the flags by the rule, which people try where a shorter one is declared."""
    return {setting.long_flag: by_flag[setting.flag] for setting in all_settings()} | dict(by_flag)


def _unknown_key(key: str) -> str:
    """The nearest are those that differ by their section only, or else the one that is spelled most alike."""
    known = list(settings_by_key())
    name = key.rpartition(".")[2]
    nearest = [one for one in known if one.endswith(f".{name}")] or get_close_matches(key, known, 1)
    return f"{printable(key)} is not a setting; {_did_you_mean(nearest)}"


def _did_you_mean(nearest: Iterable[str]) -> str:
    names = " or ".join(nearest)
    return f"did you mean {names}?" if names else "`logbrook config show` lists them all"


def _section_suggestion(name: str) -> str:
    names = [section.name for section in all_sections() if section.name]
    nearest = get_close_matches(name, names, 1)
    return f"did you mean [{nearest[0]}]?" if nearest else f"the sections are {', '.join(names)}"
