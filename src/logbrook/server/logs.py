"""The broker's own log: one line per event, for people on a terminal and as JSON elsewhere.

Call sites log through `model.event_log`: a constant event and fields. On a terminal a line reads

    2026-01-31 12:00:00.000Z info    topic created topic=orders partitions=3

and elsewhere, with `ts`, `level`, `logger` and `event` first and the fields as further keys,

    {"ts": "2026-01-31T12:00:00.000Z", "level": "info", "logger": "logbrook.server.topics", "event": "topic created",
     "topic": "orders", "partitions": 3}

Field values may come from untrusted clients. They cannot start a new line, send terminal control sequences or imitate
another field: unprintable characters are escaped and long values truncated. Values of fields whose name suggests a
secret are never written.
"""

import json
import logging
import math
import os
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

from logbrook.config import LogFormat, LoggingConfig
from logbrook.model.event_log import EventLogger, LogEvent
from logbrook.model.text import printable
from logbrook.ports import Clock

_TEXT_CHARACTERS_MAX = 1_000
_EXCEPTION_CHARACTERS_MAX = 20_000
_ITEMS_MAX = 50
_DEPTH_MAX = 4
_SECRET = re.compile(r"password|passwd|secret|token|credential|authorization|private_?key|api_?key|jaas", re.IGNORECASE)
_HIDDEN = "[hidden]"
_BARE = re.compile(r"[^\s\"=]+")
_COLOURS = {
    logging.DEBUG: "2",
    logging.INFO: "32",
    logging.WARNING: "33",
    logging.ERROR: "31",
    logging.CRITICAL: "1;31",
}


def configure_logging(config: LoggingConfig, stream: TextIO) -> None:
    """Write the records of all loggers of this process to `stream`, replacing an earlier configuration.

    Logbrook's own loggers have the level `config.level`; other libraries log from `warning` on.
    """
    is_human = config.format is LogFormat.HUMAN or (config.format is LogFormat.AUTO and stream.isatty())
    handler = _BrokerHandler(stream)
    handler.setFormatter(HumanFormatter(coloured=_supports_colour(stream)) if is_human else JsonFormatter())
    root = logging.getLogger()
    for earlier in [handler for handler in root.handlers if isinstance(handler, _BrokerHandler)]:
        root.removeHandler(earlier)
    root.addHandler(handler)
    level = logging.getLevelNamesMapping()[config.level.upper()]
    logging.getLogger("logbrook").setLevel(level)
    root.setLevel(max(level, logging.WARNING))


class JsonFormatter(logging.Formatter):
    """One JSON object per line: ts, level, logger, event, then the fields, then an exception if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        event, fields = _event(record)
        line: dict[str, Any] = {
            "ts": _time(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": event,
        }
        for name, value in fields.items():
            line.setdefault(name, value)
        if exception := _exception(self, record):
            line["exception"] = exception
        return json.dumps(line)


class HumanFormatter(logging.Formatter):
    """Time (UTC), level, event, fields as name=value; the lines of an exception follow, indented."""

    def __init__(self, *, coloured: bool) -> None:
        super().__init__()
        self._coloured = coloured

    def format(self, record: logging.LogRecord) -> str:
        event, fields = _event(record)
        time = _time(record).isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")
        level = self._colour(_COLOURS.get(record.levelno, "0"), f"{record.levelname.lower():<7}")
        parts = [self._colour("2", time), level, printable(event)]
        parts += [f"{self._colour('2', f'{printable(name)}=')}{_shown(value)}" for name, value in fields.items()]
        # Indented, because a client may have chosen the text of the exception, and it may look like a line of the log.
        below = [f"    {printable(line)}" for line in _exception(self, record).splitlines()]
        return "\n".join([" ".join(parts), *below])

    def _colour(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._coloured else text


def plain_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an event as JSON can represent them: truncated, and without the values of secrets."""
    return _plain_mapping(fields, depth=0)


class RateLimitedWarnings:
    """Logs at most one warning per key and interval; the next one carries the number of those suppressed.

    It keeps the newest `keys_max` keys, so that clients cannot make it grow without bound.
    """

    def __init__(self, logger: EventLogger, clock: Clock, *, every_s: float = 1.0, keys_max: int = 1_000) -> None:
        self._logger = logger
        self._clock = clock
        self._every_s = every_s
        self._keys_max = keys_max
        self._last_s: OrderedDict[str, float] = OrderedDict()
        self._suppressed: dict[str, int] = {}

    def warn(self, key: str, event: str, **fields: Any) -> None:
        """Log `event`, unless `key` was logged less than `every_s` ago."""
        key = _cut(key)
        now_s = self._clock.monotonic_s()
        last_s = self._last_s.get(key)
        if last_s is not None and now_s - last_s < self._every_s:
            self._suppressed[key] = self._suppressed.get(key, 0) + 1
            return
        self._last_s[key] = now_s
        self._last_s.move_to_end(key)
        if suppressed := self._suppressed.pop(key, 0):
            fields["suppressed"] = suppressed
        if len(self._last_s) > self._keys_max:
            oldest, _ = self._last_s.popitem(last=False)
            self._suppressed.pop(oldest, None)
        self._logger.warning(event, **fields)


class _BrokerHandler(logging.StreamHandler[TextIO]):
    """Marks the handler that `configure_logging` installed."""


def _supports_colour(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _event(record: logging.LogRecord) -> tuple[str, dict[str, Any]]:
    """Return the event and fields of a record; the event of other libraries' records is their message."""
    if isinstance(record.msg, LogEvent):
        return record.msg.name, _plain_mapping(record.msg.fields, depth=0)
    return _cut(record.getMessage()), {}


def _exception(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = [formatter.formatException(record.exc_info)] if record.exc_info else []
    parts += [record.stack_info] if record.stack_info else []
    return _cut("\n".join(parts), _EXCEPTION_CHARACTERS_MAX)


def _plain(value: Any, depth: int) -> Any:
    """Convert `value` to what JSON can represent, truncated to a useful size."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth < _DEPTH_MAX and isinstance(value, Mapping):
        return _plain_mapping(value, depth)
    # Named tuples, such as a TopicPartition, have a text of their own.
    if depth < _DEPTH_MAX and type(value) in (list, tuple, set, frozenset):
        ordered: Iterable[Any] = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        return [_plain(item, depth + 1) for item, _ in zip(ordered, range(_ITEMS_MAX), strict=False)]
    return _cut(str(value))


def _plain_mapping(mapping: Mapping[Any, Any], depth: int) -> dict[str, Any]:
    pairs = zip(mapping.items(), range(_ITEMS_MAX), strict=False)
    return {
        _cut(str(key)): _HIDDEN if _SECRET.search(str(key)) else _plain(value, depth + 1) for (key, value), _ in pairs
    }


def _cut(text: str, characters_max: int = _TEXT_CHARACTERS_MAX) -> str:
    return text if len(text) <= characters_max else f"{text[:characters_max]}..."


def _shown(value: Any) -> str:
    """The value after `name=`, quoted where it could be taken for something else."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    safe = printable(text)
    if not isinstance(value, str) or _BARE.fullmatch(safe):
        return safe
    return '"' + safe.replace('"', '\\"') + '"'
