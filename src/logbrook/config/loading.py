"""Loading of a broker's settings: flags override the environment, the environment the file, the file the defaults.

Each source is read whole, and every mistake in any of them is reported at once, with its location. Overridden values
are checked too: a mistake must not stay hidden until the override is removed.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from logbrook.config.broker import BrokerConfig
from logbrook.config.catalogue import ENVIRONMENT_PREFIX, DeclaredSetting, all_sections, all_settings, settings_by_key
from logbrook.config.errors import NotAllowedError, Problem, SettingsRefusedError, WrongValueError
from logbrook.config.network import TOKEN_VARIABLE
from logbrook.config.toml_lines import TomlSyntaxError, lines_of_keys, parse_toml
from logbrook.config.values import read_value
from logbrook.model.text import printable, quoted

CONFIG_FLAG = "--config"
CONFIG_VARIABLE = "LOGBROOK_CONFIG"
DEFAULT_ORIGIN = "default"
# Variables of the client commands and of the console, which may be set on a host that also runs a broker.
_COMMANDS_VARIABLES = ("LOGBROOK_BOOTSTRAP", "LOGBROOK_CLIENT_CONFIG", "LOGBROOK_SCHEMA_REGISTRY", TOKEN_VARIABLE)
_OTHER_FLAGS = (CONFIG_FLAG, "--help")

# Kubernetes sets such variables in every container for each service, which may be called logbrook.
_KUBERNETES = re.compile(r"LOGBROOK_(.*_)?(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_\d+_(TCP|UDP|SCTP)(_.*)?)?)")


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The settings, and the origin of each key's value: `default`, `logbrook.toml:7`, a variable or a flag."""

    config: BrokerConfig
    origins: Mapping[str, str]

    def value(self, key: str) -> Any:
        """Return the value of a key such as `network.listen`."""
        value: Any = self.config
        for name in key.split("."):
            value = getattr(value, name)
        return value


@dataclass(frozen=True, slots=True)
class SourcedValue:
    """A value as written in a source. `where` and `name` locate it in messages, `origin` in listings."""

    setting: DeclaredSetting
    value: object
    where: str
    name: str
    origin: str
    line: int = 0


@dataclass(slots=True)
class SettingsSource:
    """The values and mistakes of one source: the file, the environment or the command line."""

    values: list[SourcedValue] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def load_settings(flags: Mapping[str, object], environment: Mapping[str, str]) -> LoadedSettings:
    """Load settings from `flags` (by flag, such as `--listen`), `environment`, and the file that either one names.

    Raises SettingsRefusedError with all mistakes.
    """
    path = flags.get(CONFIG_FLAG) or environment.get(CONFIG_VARIABLE)
    sources = [
        read_file(str(path)) if path else SettingsSource(),
        read_environment(environment),
        read_flags(flags),
    ]
    return merge_sources(sources)


def read_flags(flags: Mapping[str, object]) -> SettingsSource:
    """Read command-line flags with their values. An argument that is not a flag is a problem."""
    source = SettingsSource()
    where = "command line"
    by_flag = {setting.flag: setting for setting in all_settings()}
    for flag, value in flags.items():
        if flag in by_flag:
            source.values.append(SourcedValue(by_flag[flag], value, where, flag, flag))
        elif flag not in _OTHER_FLAGS:
            source.problems.append(Problem(where, _unknown_flag(flag)))
    return source


def read_environment(environment: Mapping[str, str]) -> SettingsSource:
    """Read the variables that start with LOGBROOK_; an unknown one is a problem, unless Kubernetes sets it."""
    source = SettingsSource()
    where = "environment"
    by_variable = {setting.variable: setting for setting in all_settings()}
    for variable, value in sorted(environment.items()):
        if variable in by_variable:
            source.values.append(SourcedValue(by_variable[variable], value, where, variable, variable))
        elif _is_for_settings(variable):
            source.problems.append(Problem(where, _unknown_variable(variable)))
    return source


def read_file(path: str) -> SettingsSource:
    """Read the TOML file at `path`: keys, and a table for each section."""
    try:
        with open(path, "rb") as file:
            return read_toml(path, file.read())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return SettingsSource(problems=[Problem(printable(path), f"the settings cannot be read: {reason}")])


def read_toml(path: str, content: bytes) -> SettingsSource:
    try:
        document = parse_toml(content)
    except TomlSyntaxError as error:
        return SettingsSource(problems=[Problem(printable(path), f"this is not TOML: {error.reason}", error.line)])
    return _TomlReader(path, document, lines_of_keys(content.decode())).read()


def read_mapping(settings: Mapping[str, Any], where: str = "settings") -> SettingsSource:
    """Read settings of a program, in the notation of the file: `{"topics": {"partitions": 3}}`.

    Keys may be dotted: `{"topics.partitions": 3}`. Beside TOML's values, None and tuples or sets of words are read.
    """
    document: dict[str, Any] = {}
    for key, value in settings.items():
        section, _, name = key.partition(".")
        if name:
            table = document.setdefault(section, {})
            table[name] = _as_toml(value)
        elif isinstance(value, Mapping):
            document.setdefault(key, {}).update({name: _as_toml(inner) for name, inner in value.items()})
        else:
            document[key] = _as_toml(value)
    return _TomlReader(where, document, defaultdict(int)).read()


def _as_toml(value: object) -> object:
    if value is None:
        return ""
    return sorted(value) if isinstance(value, tuple | set | frozenset) else value


class _TomlReader:
    """Collects the settings of a parsed document, with the line of each key."""

    def __init__(self, path: str, document: dict[str, Any], lines: Mapping[tuple[str, ...], int]) -> None:
        self._path = printable(path)
        self._origin = os.path.basename(self._path)
        self._document = document
        self._lines = lines
        self._source = SettingsSource()

    def read(self) -> SettingsSource:
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
            self._refuse((section,), f"{section} = {quoted(table)}, but it must be the table [{section}]")
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
        self._source.values.append(SourcedValue(setting, value, self._path, key, f"{self._origin}:{line}", line))

    def _refuse(self, path: tuple[str, ...], reason: str) -> None:
        self._source.problems.append(Problem(self._path, reason, self._lines[path]))


def merge_sources(sources: Iterable[SettingsSource]) -> LoadedSettings:
    """Merge sources in order of increasing precedence. Raises SettingsRefusedError."""
    problems: list[Problem] = []
    winners: dict[str, SourcedValue] = {}
    values: dict[str, Any] = {}
    for source in sources:
        source_problems = list(source.problems)
        for sourced in source.values:
            try:
                values[sourced.setting.key] = read_value(sourced.setting, sourced.value)
            except NotAllowedError as error:
                source_problems.append(_refusal(sourced, f"it must be {error.must_be}"))
            winners[sourced.setting.key] = sourced
        problems += sorted(source_problems, key=lambda problem: problem.line)
    if problems:
        raise SettingsRefusedError(tuple(problems))
    try:
        config = _build(values)
    except WrongValueError as error:
        # The values are allowed, each for itself.
        given = next((sourced for key, sourced in winners.items() if key.rpartition(".")[2] == error.name), None)
        problem = _refusal(given, f"it must be {error.must_be}") if given else Problem("settings", str(error))
        raise SettingsRefusedError((problem,)) from None
    origins = {setting.key: DEFAULT_ORIGIN for setting in all_settings()}
    origins |= {key: sourced.origin for key, sourced in winners.items()}
    return LoadedSettings(config, origins)


def _build(values: Mapping[str, Any]) -> BrokerConfig:
    nested: dict[str, Any] = {}
    for key, value in values.items():
        section, _, name = key.rpartition(".")
        (nested.setdefault(section, {}) if section else nested)[name] = value
    return BrokerConfig(**nested)


def _refusal(sourced: SourcedValue, reason: str) -> Problem:
    return Problem(sourced.where, f"{sourced.name} = {quoted(sourced.value)}, but {reason}", sourced.line)


def _is_for_settings(variable: str) -> bool:
    if variable in (CONFIG_VARIABLE, *_COMMANDS_VARIABLES) or _KUBERNETES.fullmatch(variable):
        return False
    return variable.startswith(ENVIRONMENT_PREFIX)


def _unknown_flag(flag: str) -> str:
    if not flag.startswith("-"):
        return f"{quoted(flag)} is not an option; a setting is given as --flag VALUE"
    suggestions = {flag: flag for flag in _OTHER_FLAGS} | _with_long_flags(
        {setting.flag: setting.flag for setting in all_settings()}
    )
    matches = get_close_matches(flag, suggestions, 1)
    return f"{printable(flag)} is not a setting; {_did_you_mean(suggestions[match] for match in matches)}"


def _unknown_variable(variable: str) -> str:
    """Treat repeated underscores as one: other tools put two between section and name."""
    flag = "--" + re.sub("_+", "-", variable.removeprefix(ENVIRONMENT_PREFIX)).lower()
    suggestions = _with_long_flags({setting.flag: setting.variable for setting in all_settings()})
    matches = get_close_matches(flag, suggestions, 1)
    return f"{printable(variable)} is not a setting; {_did_you_mean(suggestions[match] for match in matches)}"


def _with_long_flags(by_flag: Mapping[str, str]) -> dict[str, str]:
    """Add the derived flag of each setting, which users try where the declared one is shorter."""
    return {setting.long_flag: by_flag[setting.flag] for setting in all_settings()} | dict(by_flag)


def _unknown_key(key: str) -> str:
    """Suggest the same name in other sections, or else the most similar key."""
    keys = list(settings_by_key())
    name = key.rpartition(".")[2]
    matches = [candidate for candidate in keys if candidate.endswith(f".{name}")] or get_close_matches(key, keys, 1)
    return f"{printable(key)} is not a setting; {_did_you_mean(matches)}"


def _did_you_mean(suggestions: Iterable[str]) -> str:
    names = " or ".join(suggestions)
    return f"did you mean {names}?" if names else "`logbrook config show` lists them all"


def _section_suggestion(name: str) -> str:
    names = [section.name for section in all_sections() if section.name]
    matches = get_close_matches(name, names, 1)
    return f"did you mean [{matches[0]}]?" if matches else f"the sections are {', '.join(names)}"
