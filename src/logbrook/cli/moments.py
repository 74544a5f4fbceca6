"""Places in a log, as they are typed: start, end, an offset, the last N, a time."""

import re
from datetime import UTC, datetime
from time import time

from logbrook.cli.failures import refuse
from logbrook.client.positions import AtOffset, AtTime, End, Last, Position, Start

FORMS = "start, end, an offset, -N for the last N, a time (2026-01-31T12:00 or @ms) or an age (-90s, -10m, -2h, -1d)"
EPILOG = f"A PLACE is one of: {FORMS}."

_WORDS: dict[str, Position] = {
    "start": Start(),
    "beginning": Start(),
    "earliest": Start(),
    "end": End(),
    "latest": End(),
}
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_AGE = re.compile(rf"-({_PART.pattern})+")
_OFFSET_MAX = 2**63 - 1


def position_of(text: str, option: str) -> Position:
    """Ends the command if it is none, naming `option`."""
    if text in _WORDS:
        return _WORDS[text]
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdecimal():
        if int(digits) > _OFFSET_MAX:
            refuse(option, f"{text} is larger than any offset")
        return Last(int(digits)) if text.startswith("-") else AtOffset(int(digits))
    timestamp_ms = _timestamp_ms(text)
    if timestamp_ms is None:
        refuse(option, f"{text!r} is none of: {FORMS}")
    return AtTime(timestamp_ms)


def timestamp_of(text: str) -> int | None:
    """A time in ms, from ISO 8601; local time if it does not say otherwise. None if it is none."""
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return None


def iso_time(timestamp_ms: int) -> str:
    """In UTC, to the millisecond; a dash for a time that no calendar has."""
    try:
        shown = datetime.fromtimestamp(timestamp_ms / 1000, UTC) if timestamp_ms >= 0 else None
    except (ValueError, OverflowError, OSError):
        shown = None
    return "-" if shown is None else shown.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _timestamp_ms(text: str) -> int | None:
    if text.startswith("@"):
        rest = text.removeprefix("@")
        return int(rest) if rest.isascii() and rest.isdecimal() else timestamp_of(rest)
    if _AGE.fullmatch(text):
        age_ms = sum(float(number) * _UNIT_MS[unit] for number, unit in _PART.findall(text))
        return round(time() * 1000 - age_ms)
    return timestamp_of(text)
