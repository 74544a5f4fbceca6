"""How bytes, sizes, times and places in a log are shown to people, and how what they type is understood."""

import json
from datetime import UTC, datetime

from logbrook.client.positions import AtOffset, AtTime, End, Position, Start

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_HEX_LINE = 16
SHOWN_BYTES_MAX = 256 << 10


def shown_size(count: int | None) -> str:
    if count is None:
        return "-"
    size, unit = float(count), 0
    while size >= 1024 and unit + 1 < len(_UNITS):
        size, unit = size / 1024, unit + 1
    return f"{size:.1f} {_UNITS[unit]}" if unit else f"{count} B"


def shown_count(count: float | None) -> str:
    return "-" if count is None else f"{count:,.0f}"


def shown_rate(rate: float | None) -> str:
    if rate is None:
        return "-"
    return f"{rate:,.0f}" if rate >= 10 or rate == 0 else f"{rate:.1f}"


def shown_time(timestamp_ms: int) -> str:
    """In UTC, to the millisecond; a dash for a time that no calendar has."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC) if timestamp_ms >= 0 else None
    except (ValueError, OverflowError, OSError):
        moment = None
    return "-" if moment is None else moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{moment.microsecond // 1000:03}"


def shown_bytes(data: bytes | None, form: str) -> str:
    """`form` is json, text or hex; what is not of that form is shown in the next that it is of."""
    if data is None:
        return "null"
    data = data[:SHOWN_BYTES_MAX]
    if form == "hex":
        return _hex(data)
    text = text_of(data)
    if text is None:
        return _hex(data)
    if form == "json":
        try:
            return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
        except ValueError:
            pass
    return text


def preview(data: bytes | None, form: str, length: int = 160) -> str:
    """One line of it."""
    if data is None:
        return "null"
    text = None if form == "hex" else text_of(data[: 4 * length])
    if text is None:
        return data[: length // 3].hex(" ") + (" …" if len(data) > length // 3 else "")
    line = " ".join(text.split())
    return line[:length] + (" …" if len(line) > length or len(data) > 4 * length else "")


def text_of(data: bytes) -> str | None:
    """None if it is no text: no UTF-8, or full of control characters. A last letter may be cut off."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if error.end < len(data) or error.reason != "unexpected end of data":
            return None
        text = data[: error.start].decode()
    return None if any(ord(one) < 32 and one not in "\t\r\n" for one in text) else text


def position_of(kind: str, text: str) -> Position:
    """Raises ValueError with a sentence. `kind` is start, end, offset or time."""
    text = text.strip()
    match kind:
        case "start":
            return Start()
        case "end":
            return End()
        case "offset":
            if not (text.isascii() and text.isdecimal() and len(text) < 19):
                raise ValueError(f"{text!r} is no offset: it is a whole number from 0 on")
            return AtOffset(int(text))
        case "time":
            return AtTime(_timestamp_ms(text))
    raise ValueError(f"{kind!r} is no place: it is start, end, offset or time")


def settings_in(text: str) -> dict[str, str]:
    """Lines of name=value. Raises ValueError with a sentence."""
    found = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"{line!r} is no setting: write name=value, one in a line")
        found[name.strip()] = value.strip()
    return found


def _timestamp_ms(text: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) < 17:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            f"{text!r} is no time: write 2026-01-31T12:00 (UTC unless it says otherwise) or ms since 1970"
        ) from None


def _hex(data: bytes) -> str:
    """Lines of offset, bytes and letters, as hexdump prints them."""
    lines = []
    for start in range(0, len(data), _HEX_LINE):
        piece = data[start : start + _HEX_LINE]
        letters = "".join(chr(one) if 32 <= one < 127 else "." for one in piece)
        lines.append(f"{start:08x}  {piece.hex(' '):<{3 * _HEX_LINE - 1}}  {letters}")
    return "\n".join(lines)
