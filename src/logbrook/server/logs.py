"""The broker's own log: for people on a terminal, one JSON object a line elsewhere.

A record is a constant message and the facts beside it, so that a log can be searched by either:

    logger.warning("a frame was refused", extra=fields(client_id=client_id, size_bytes=size))

Much of what is logged was chosen by a stranger. Nothing in it begins a line, moves a cursor or passes for a fact of
its own: what does not print is escaped, what is longer than it helps is cut, and a fact whose name promises a secret is
not written at all.
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
from logbrook.config.printable import printable
from logbrook.ports import Clock

_TEXT_CHARACTERS_MAX = 1_000
_EXCEPTION_CHARACTERS_MAX = 20_000
_ITEMS_MAX = 50
_DEPTH_MAX = 4
_SECRET = re.compile(r"password|passwd|secret|token|credential|authorization|private_?key|api_?key", re.IGNORECASE)
_HIDDEN = "[hidden]"
_BARE = re.compile(r"[^\s\"=]+")
_COLOURS = {
    logging.DEBUG: "2",
    logging.INFO: "32",
    logging.WARNING: "33",
    logging.ERROR: "31",
    logging.CRITICAL: "1;31",
}


def fields(**facts: Any) -> dict[str, Any]:
    """The facts of a record, for `extra=`."""
    return {"fields": facts}


def configure_logging(config: LoggingConfig, stream: TextIO) -> None:
    """Send every logger of this process to `stream`; a second call takes the place of the first.

    Logbrook's own loggers follow `config.level`; those of libraries are heard from `warning` on.
    """
    human = config.format is LogFormat.HUMAN or (config.format is LogFormat.AUTO and stream.isatty())
    handler = _BrokerHandler(stream)
    handler.setFormatter(HumanFormatter(coloured=_takes_colour(stream)) if human else JsonFormatter())
    root = logging.getLogger()
    for earlier in [one for one in root.handlers if isinstance(one, _BrokerHandler)]:
        root.removeHandler(earlier)
    root.addHandler(handler)
    level = logging.getLevelNamesMapping()[config.level.upper()]
    logging.getLogger("logbrook").setLevel(level)
    root.setLevel(max(level, logging.WARNING))


class JsonFormatter(logging.Formatter):
    """One object a line: ts, level, logger, message, and where there are any, fields and exception."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": _time(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _cut(record.getMessage()),
        }
        if facts := _facts(record):
            line["fields"] = facts
        if exception := _exception(self, record):
            line["exception"] = exception
        return json.dumps(line)


class HumanFormatter(logging.Formatter):
    """Time (UTC), level, message, facts as key=value; the lines of an exception follow, indented."""

    def __init__(self, *, coloured: bool) -> None:
        super().__init__()
        self._coloured = coloured

    def format(self, record: logging.LogRecord) -> str:
        time = _time(record).isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")
        level = self._colour(_COLOURS.get(record.levelno, "0"), f"{record.levelname.lower():<7}")
        parts = [self._colour("2", time), level, printable(_cut(record.getMessage()))]
        parts += [f"{self._colour('2', f'{printable(key)}=')}{_shown(value)}" for key, value in _facts(record).items()]
        exception = _exception(self, record)
        # Indented, because a stranger may have chosen the text of the exception, with what looks like lines of a log.
        below = [f"    {printable(line)}" for line in exception.splitlines()]
        return "\n".join([" ".join(parts), *below])

    def _colour(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._coloured else text


class RepeatedWarnings:
    """Lets one warning a second through for each key, and tells with the next how many were held back.

    It remembers `keys_max` keys, so that strangers who bring new ones do not fill the memory.
    """

    def __init__(self, logger: logging.Logger, clock: Clock, *, every_s: float = 1.0, keys_max: int = 1_000) -> None:
        self._logger = logger
        self._clock = clock
        self._every_s = every_s
        self._keys_max = keys_max
        self._last_s: OrderedDict[str, float] = OrderedDict()
        self._suppressed: dict[str, int] = {}

    def warn(self, key: str, message: str, **facts: Any) -> None:
        """Log `message`, unless `key` was logged less than `every_s` ago."""
        key = _cut(key)
        now_s = self._clock.monotonic_s()
        last_s = self._last_s.get(key)
        if last_s is not None and now_s - last_s < self._every_s:
            self._suppressed[key] = self._suppressed.get(key, 0) + 1
            return
        self._last_s[key] = now_s
        self._last_s.move_to_end(key)
        if suppressed := self._suppressed.pop(key, 0):
            facts["suppressed"] = suppressed
        if len(self._last_s) > self._keys_max:
            oldest, _ = self._last_s.popitem(last=False)
            self._suppressed.pop(oldest, None)
        self._logger.warning("%s", message, extra=fields(**facts))


class _BrokerHandler(logging.StreamHandler[TextIO]):
    """Ours, to be told from handlers that others added."""


def _takes_colour(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    facts: Mapping[str, Any] = getattr(record, "fields", {})
    return _plain_mapping(facts, depth=0)


def _exception(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = [formatter.formatException(record.exc_info)] if record.exc_info else []
    parts += [record.stack_info] if record.stack_info else []
    return _cut("\n".join(parts), _EXCEPTION_CHARACTERS_MAX)


def _plain(value: Any, depth: int) -> Any:
    """What JSON can say of `value`, and no more of it than is useful."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth < _DEPTH_MAX and isinstance(value, Mapping):
        return _plain_mapping(value, depth)
    if depth < _DEPTH_MAX and isinstance(value, list | tuple | set | frozenset):
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
    """A value after `key=`: quoted wherever it could pass for something else."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    safe = printable(text)
    if not isinstance(value, str) or _BARE.fullmatch(safe):
        return safe
    return '"' + safe.replace('"', '\\"') + '"'
