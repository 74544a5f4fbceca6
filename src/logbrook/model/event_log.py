"""Structured logging on the standard library: a constant event name, and the facts as fields.

    _logger = event_logger(__name__)
    _logger.info("topic created", topic=name, partitions=3)

The event is a literal, so that a log can be searched, counted and alerted on by it; every value is a field. The
handlers and formatters of the process decide how a record is written (`server.logs` for the broker). Under any other
handler the message is the event followed by the fields: `topic created topic='orders' partitions=3`.

`observe_events` sees all events, whatever the levels of the loggers: the test kit shows them when a test fails.
"""

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias


class LogEvent(NamedTuple):
    """The `msg` of a log record."""

    name: str
    fields: Mapping[str, Any]

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{key}={value!r}" for key, value in self.fields.items())])


# Takes the name of the logger, the level, the event, and its exception if there is one.
EventObserver: TypeAlias = Callable[[str, int, LogEvent, BaseException | None], None]

# Replaced as a whole, so that loggers in other threads can iterate over it.
_observers: tuple[EventObserver, ...] = ()


@contextmanager
def observe_events(observer: EventObserver) -> Iterator[None]:
    """Call `observer` for each event that is logged during the block, on the thread that logs it."""
    global _observers  # noqa: PLW0603
    _observers = (*_observers, observer)
    try:
        yield
    finally:
        _observers = tuple(other for other in _observers if other is not observer)


class EventLogger:
    """A named logger whose methods take an event and its fields. Safe in every thread, as `logging` is."""

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, /, **fields: Any) -> None:
        self._log(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: Any) -> None:
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: Any) -> None:
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, /, *, exc_info: BaseException | None = None, **fields: Any) -> None:
        self._log(logging.ERROR, event, fields, exc_info)

    def critical(self, event: str, /, *, exc_info: BaseException | None = None, **fields: Any) -> None:
        self._log(logging.CRITICAL, event, fields, exc_info)

    def exception(self, event: str, /, **fields: Any) -> None:
        """Log an error with the exception that is being handled."""
        self._log(logging.ERROR, event, fields, True)

    def _log(
        self, level: int, event: str, fields: Mapping[str, Any], exc_info: BaseException | bool | None = None
    ) -> None:
        for observer in _observers:
            error = exc_info if isinstance(exc_info, BaseException) else sys.exception() if exc_info else None
            observer(self._logger.name, level, LogEvent(event, fields), error)
        if self._logger.isEnabledFor(level):
            self._logger.log(level, LogEvent(event, fields), exc_info=exc_info, stacklevel=3)


def event_logger(name: str) -> EventLogger:
    """Return the event logger of a module; pass `__name__`."""
    return EventLogger(name)
