"""Levels of the loggers of this process under Kafka's names, which clients can change while it runs (KIP-412).

`logbrook` is the logger of the broker, with one below it for each module; `root` is that of the libraries it uses. A
logger without a level of its own has that of the logger above it. Changes last until the process ends.
"""

import logging
from collections.abc import Mapping

from logbrook.config import LoggingConfig
from logbrook.config.kafka_settings import InvalidSettingError
from logbrook.model.text import join_words

ROOT = "root"
_BROKER = "logbrook"
# The standard library has no level below DEBUG; any lower number logs everything.
_LEVELS = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def logger_levels() -> dict[str, str]:
    """Return the level in force of each logger, by name."""
    # Packages are included, since a level applies to all modules below. Other threads may add loggers meanwhile.
    names = [name for name in list(logging.root.manager.loggerDict) if name.partition(".")[0] == _BROKER]
    return {name: _level_name(_logger(name).getEffectiveLevel()) for name in [ROOT, *sorted(names)]}


def check_levels(changes: Mapping[str, str | None]) -> None:
    """Check the new levels by logger; None removes the level of a logger. Raises InvalidSettingError."""
    known = logger_levels()
    for name, level in changes.items():
        if name not in known:
            raise InvalidSettingError(name, "there is no such logger")
        if level is not None and level not in _LEVELS:
            raise InvalidSettingError(name, f"{level[:100]!r} is not a level ({join_words(tuple(_LEVELS), 'or')})")


def change_levels(changes: Mapping[str, str | None], config: LoggingConfig) -> None:
    """Apply changes that `check_levels` has accepted. The broker's logger returns to the level in `config`."""
    for name, level in changes.items():
        if level is not None:
            _logger(name).setLevel(_LEVELS[level])
        elif name == _BROKER:
            _logger(name).setLevel(config.level.upper())
        else:
            _logger(name).setLevel(logging.NOTSET)


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _level_name(level: int) -> str:
    return next((name for name, number in reversed(_LEVELS.items()) if number <= level), "TRACE")
