"""Formatting of sizes and times for pages, and parsing of positions, partitions and settings that users type."""

from datetime import UTC, datetime

from logbrook.client.offset_specs import AtOffset, AtTime, Earliest, Latest, OffsetSpec
from logbrook.model.identifiers import Offset
from logbrook.model.text import size_text


def format_size(count: float | None) -> str:
    return "-" if count is None else size_text(count)


def format_count(count: float | None) -> str:
    return "-" if count is None else f"{count:,.0f}"


def format_rate(rate: float | None) -> str:
    if rate is None:
        return "-"
    return f"{rate:,.0f}" if rate >= 10 or rate == 0 else f"{rate:.1f}"


def format_time(timestamp_ms: int) -> str:
    """Format a timestamp in UTC to the millisecond; a dash if it is outside the calendar."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC) if timestamp_ms >= 0 else None
    except (ValueError, OverflowError, OSError):
        moment = None
    return "-" if moment is None else moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{moment.microsecond // 1000:03}"


def decode_text(data: bytes) -> str | None:
    """Decode UTF-8, ignoring a character cut off at the end. Returns None for other data and control characters."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if error.end < len(data) or error.reason != "unexpected end of data":
            return None
        text = data[: error.start].decode()
    return None if any(ord(char) < 32 and char not in "\t\r\n" for char in text) else text


def parse_position(kind: str, text: str) -> OffsetSpec:
    """Parse a position; `kind` is start, end, offset or time. Raises ValueError with a message for the user."""
    text = text.strip()
    match kind:
        case "start":
            return Earliest()
        case "end":
            return Latest()
        case "offset":
            if not (text.isascii() and text.isdecimal() and len(text) < 19):
                raise ValueError(f"{text!r} is not an offset: write a whole number from 0 on")
            return AtOffset(Offset(int(text)))
        case "time":
            return AtTime(parse_timestamp_ms(text))
    raise ValueError(f"{kind!r} is not a position: write start, end, offset or time")


def parse_partitions(text: str) -> list[int]:
    """Parse numbers and ranges such as `0, 2-5`. Raises ValueError with a message for the user."""
    numbers: set[int] = set()
    for part in filter(None, map(str.strip, text.split(","))):
        first, dash, last = part.partition("-")
        ends = (first.strip(), last.strip() if dash else first.strip())
        if not all(end.isascii() and end.isdecimal() and len(end) < 7 for end in ends):
            raise ValueError(f"{part!r} is not a partition: write numbers from 0 on, or ranges such as 2-5")
        numbers.update(range(int(ends[0]), int(ends[1]) + 1))
    return sorted(numbers)


def parse_settings(text: str) -> dict[str, str]:
    """Parse lines of name=value. Raises ValueError with a message for the user."""
    values = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"{line!r} is not a setting: write name=value, one per line")
        values[name.strip()] = value.strip()
    return values


def parse_timestamp_ms(text: str) -> int:
    """Parse ISO 8601 (UTC unless it has a zone) or ms since 1970. Raises ValueError with a message for the user."""
    if text.isascii() and text.isdecimal() and len(text) < 17:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            f"{text!r} is not a time: write 2026-01-31T12:00 (UTC unless it has a zone) or ms since 1970"
        ) from None
