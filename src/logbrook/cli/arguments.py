"""Syntax of arguments that several commands share: acks, compression, positions in a log, times."""

import re
from datetime import UTC, datetime
from enum import StrEnum
from time import time

from logbrook.cli.failures import refuse
from logbrook.client.client import ACKS_ALL, ACKS_LEADER, ACKS_NONE
from logbrook.client.offset_specs import AtOffset, AtTime, Earliest, LastRecords, Latest, OffsetSpec
from logbrook.model.identifiers import Offset

PLACE_FORMS = (
    "start, end, an offset, -N for the last N, a time (2026-01-31T12:00 or @ms) or an age (-90s, -10m, -2h, -1d)"
)
PLACE_EPILOG = f"A PLACE is one of: {PLACE_FORMS}."

_WORDS: dict[str, OffsetSpec] = {
    "start": Earliest(),
    "beginning": Earliest(),
    "earliest": Earliest(),
    "end": Latest(),
    "latest": Latest(),
}
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_AGE = re.compile(rf"-({_PART.pattern})+")
_OFFSET_MAX = 2**63 - 1


class Acks(StrEnum):
    """Replicas that must have a record before it is acknowledged."""

    ALL = "all"
    LEADER = "1"
    NONE = "0"

    @property
    def number(self) -> int:
        """The value in a produce request."""
        return {Acks.ALL: ACKS_ALL, Acks.LEADER: ACKS_LEADER, Acks.NONE: ACKS_NONE}[self]


class Compression(StrEnum):
    """Codec of record batches."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


def parse_offset_spec(text: str, option: str) -> OffsetSpec:
    """Parse a PLACE; end the command with an error about `option` if it is invalid."""
    if text in _WORDS:
        return _WORDS[text]
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdecimal():
        if int(digits) > _OFFSET_MAX:
            refuse(option, f"{text} is larger than any offset")
        return LastRecords(int(digits)) if text.startswith("-") else AtOffset(Offset(int(digits)))
    timestamp_ms = _timestamp_ms(text)
    if timestamp_ms is None:
        refuse(option, f"{text!r} is not a place; write {PLACE_FORMS}")
    return AtTime(timestamp_ms)


def parse_timestamp(text: str) -> int | None:
    """Parse an ISO 8601 time, local unless it has a zone. Returns ms since the epoch, None if it is invalid."""
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return None


def iso_time(timestamp_ms: int) -> str:
    """Format a timestamp in UTC to the millisecond; a dash if it is outside the calendar."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC) if timestamp_ms >= 0 else None
    except (ValueError, OverflowError, OSError):
        moment = None
    return "-" if moment is None else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _timestamp_ms(text: str) -> int | None:
    if text.startswith("@"):
        rest = text.removeprefix("@")
        return int(rest) if rest.isascii() and rest.isdecimal() else parse_timestamp(rest)
    if _AGE.fullmatch(text):
        age_ms = sum(float(number) * _UNIT_MS[unit] for number, unit in _PART.findall(text))
        return round(time() * 1000 - age_ms)
    return parse_timestamp(text)
