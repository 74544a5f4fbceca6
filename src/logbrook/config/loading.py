"""The settings of a broker, from everything that people said: flags over environment over file over defaults.

Whatever is wrong is told at once, with its place; a value that is overruled must be right all the same, because the
day its overruling goes is a bad day to learn of it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from logbrook.config.broker import BrokerConfig
from logbrook.config.catalogue import all_settings
from logbrook.config.errors import NotAllowedError, Problem, SettingsRefusedError
from logbrook.config.sources import (
    CONFIG_FLAG,
    CONFIG_VARIABLE,
    Source,
    Written,
    read_environment,
    read_file,
    read_flags,
    shown,
)
from logbrook.config.values import read_value

DEFAULT_ORIGIN = "default"


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings, and for each key where its value is from: `default`, `logbrook.toml:7`, a variable, or a flag."""

    config: BrokerConfig
    origins: Mapping[str, str]

    def value(self, key: str) -> Any:
        """The value of the setting that `key` names, such as `network.listen`."""
        found: Any = self.config
        for name in key.split("."):
            found = getattr(found, name)
        return found


def load_settings(flags: Mapping[str, object], environment: Mapping[str, str]) -> Loaded:
    """Settings from `flags` (`--listen` and so on, with `--config` for the file), `environment` and the file.

    Raises SettingsRefusedError, with all that is wrong.
    """
    path = flags.get(CONFIG_FLAG) or environment.get(CONFIG_VARIABLE)
    sources = [
        read_file(str(path)) if path else Source(),
        read_environment(environment),
        read_flags(flags),
    ]
    return _merge(sources)


def _merge(sources: Iterable[Source]) -> Loaded:
    """The later source has its way."""
    problems: list[Problem] = []
    winners: dict[str, Written] = {}
    values: dict[str, Any] = {}
    for source in sources:
        found = list(source.problems)
        for written in source.written:
            try:
                values[written.setting.key] = read_value(written.setting, written.value)
            except NotAllowedError as error:
                found.append(_refusal(written, f"it must be {error.must_be}"))
            winners[written.setting.key] = written
        problems += sorted(found, key=lambda problem: problem.line)
    if problems:
        raise SettingsRefusedError(tuple(problems))
    origins = {setting.key: DEFAULT_ORIGIN for setting in all_settings()}
    origins |= {key: written.origin for key, written in winners.items()}
    return Loaded(_build(values), origins)


def _build(values: Mapping[str, Any]) -> BrokerConfig:
    nested: dict[str, Any] = {}
    for key, value in values.items():
        section, _, name = key.rpartition(".")
        (nested.setdefault(section, {}) if section else nested)[name] = value
    return BrokerConfig(**nested)


def _refusal(written: Written, why: str) -> Problem:
    return Problem(written.where, f"{written.name} = {shown(written.value)}, but {why}", written.line)
