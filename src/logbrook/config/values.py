"""How the value of a setting is written by people, and how it is shown to them.

    a size        64MiB, 1GiB (1024s), 64MB, 1GB (1000s), or a number of bytes
    a duration    500ms, 30s, 15m, 12h, 7d, or a number of milliseconds
    a boolean     true, yes, on, 1; false, no, off, 0
    a choice      one of the words, in any case; several are joined with commas, or an array in the file
    unlimited     -1, where that is allowed

Text from a flag, from the environment and between quotes in the file is read by the same rules.
"""

import re
from collections.abc import Callable
from ipaddress import AddressValueError, IPv6Address
from typing import Any

from logbrook.config.catalogue import Declared, Kind
from logbrook.config.errors import NotAllowedError, listed
from logbrook.config.log import UNLIMITED

_SIZES = {"tib": 1 << 40, "gib": 1 << 30, "mib": 1 << 20, "kib": 1 << 10, "b": 1}
_DECIMAL_SIZES = {"tb": 10**12, "gb": 10**9, "mb": 10**6, "kb": 10**3}
_DURATIONS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_SUFFIXES = {"bytes": {**_SIZES, **_DECIMAL_SIZES}, "ms": _DURATIONS, None: dict[str, int]()}
_SHOWN_SUFFIXES = {
    "bytes": {"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "B": 1},
    "ms": _DURATIONS,
    None: {"": 1},
}
_BOOLEANS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_ALLOWED = {
    Kind.BOOLEAN: "true or false",
    Kind.TEXT: "a text",
    Kind.PATH: "the path of a directory",
    Kind.ADDRESS: "HOST:PORT",
}
_NUMBERS = {"bytes": "a size", "ms": "a duration", Kind.INTEGER: "a whole number", Kind.NUMBER: "a number"}
_EXAMPLES = {
    "bytes": " such as 64MiB or 1GiB",
    "ms": " such as 500ms, 30s or 7d",
    Kind.ADDRESS: ", such as 127.0.0.1:9092 or [::1]:9092",
}
_WHOLE_NUMBER = re.compile(r"([+-]?[0-9_]+) *([A-Za-z]*)")
_HOST_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_INT64_MAX = 2**63 - 1
_PORT_MAX = 65_535
_THIS_MACHINE = "127.0.0.1"


def read_value(setting: Declared, written: object) -> Any:
    """The value that `written` stands for: a text, or what TOML made of it. Raises NotAllowedError."""
    read = _read_text if isinstance(written, str) else _read_native
    try:
        value = read(setting, written)
    except (ValueError, KeyError):
        raise NotAllowedError(allowed_values(setting)) from None
    if setting.form.kind in (Kind.INTEGER, Kind.NUMBER):
        _check_bounds(setting, value)
    return value


def show_value(setting: Declared, value: Any) -> str:
    """`value` as `read_value` reads it and people like it: in the largest unit that leaves no remainder."""
    kind = setting.form.kind
    if kind is Kind.BOOLEAN:
        return "true" if value else "false"
    if kind is Kind.CHOICES:
        return ",".join(choice for choice in setting.form.choices if choice in value)
    if kind is Kind.INTEGER:
        return _show_integer(setting, value)
    return "" if value is None else str(value)


def allowed_values(setting: Declared, *, examples: bool = True) -> str:
    """What may be written, as the end of the sentence `it must be ...`."""
    form = setting.form
    example = _EXAMPLES.get(setting.unit or form.kind, "") if examples else ""
    if form.kind in _ALLOWED:
        return _ALLOWED[form.kind] + example + (", or empty" if form.optional else "")
    if form.kind is Kind.CHOICE:
        return listed(form.choices, "or")
    if form.kind is Kind.CHOICES:
        return f"one or more of {listed(form.choices, 'and')}"
    return _NUMBERS[setting.unit or form.kind] + example + _bounds(setting, separated=bool(example))


def split_address(text: str) -> tuple[str, int]:
    """The host and the port of HOST:PORT; an IPv6 host stands in brackets, which are taken off. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not (colon and port.isascii() and port.isdecimal() and int(port) <= _PORT_MAX):
        raise ValueError(f"{text!r} is not HOST:PORT")
    if host.startswith("[") and host.endswith("]"):
        try:
            IPv6Address(host[1:-1])
        except AddressValueError as error:
            raise ValueError(f"{text!r} has no IPv6 address in its brackets") from error
        return host[1:-1], int(port)
    if not _HOST_NAME.fullmatch(host):
        raise ValueError(f"{text!r} is not HOST:PORT")
    return host, int(port)


def _read_text(setting: Declared, written: Any) -> Any:
    """Raises ValueError or KeyError for what cannot be read."""
    text = written.strip()
    if not text and setting.form.optional:
        return None if setting.form.nullable else ""
    return _TEXT_READERS[setting.form.kind](setting, text)


def _read_native(setting: Declared, given: Any) -> Any:
    """What the file gives without quotes, where nothing is to be guessed: true is not 1 and 1.0 is not 1."""
    kinds = {Kind.BOOLEAN: (bool,), Kind.INTEGER: (int,), Kind.NUMBER: (int, float), Kind.CHOICES: (list,)}
    if type(given) not in kinds.get(setting.form.kind, ()):
        raise ValueError("it is of another kind")
    if isinstance(given, list):
        if not given or not all(isinstance(one, str) for one in given):
            raise ValueError("it is not a list of words")
        return frozenset(_read_choice(setting, one) for one in given)
    return given


def _read_boolean(_: Declared, text: str) -> bool:
    return _BOOLEANS[text.casefold()]


def _read_integer(setting: Declared, text: str) -> int:
    if text.casefold() == "unlimited" and setting.at_least == UNLIMITED:
        return UNLIMITED
    found = _WHOLE_NUMBER.fullmatch(text)
    if not found:
        raise ValueError("it is not a whole number")
    number, suffix = found.groups()
    return int(number) * (_SUFFIXES[setting.unit][suffix.casefold()] if suffix else 1)


def _read_number(_: Declared, text: str) -> float:
    return float(text)


def _read_plain(_: Declared, text: str) -> str:
    if not text or "\0" in text:
        raise ValueError("it is empty or has a zero byte")
    return text


def _read_address(setting: Declared, text: str) -> str:
    if setting.form.bare_port and ":" not in text:
        text = f"{_THIS_MACHINE}:{text}"
    split_address(text)
    return text


def _read_choice(setting: Declared, text: str) -> str:
    return {choice.casefold(): choice for choice in setting.form.choices}[text.casefold()]


def _read_choices(setting: Declared, text: str) -> frozenset[str]:
    return frozenset(_read_choice(setting, part.strip()) for part in text.split(","))


_TEXT_READERS: dict[Kind, Callable[[Declared, str], Any]] = {
    Kind.BOOLEAN: _read_boolean,
    Kind.INTEGER: _read_integer,
    Kind.NUMBER: _read_number,
    Kind.TEXT: _read_plain,
    Kind.PATH: _read_plain,
    Kind.ADDRESS: _read_address,
    Kind.CHOICE: _read_choice,
    Kind.CHOICES: _read_choices,
}


def _check_bounds(setting: Declared, value: float) -> None:
    too_small = setting.at_least is not None and not value >= setting.at_least
    too_large = setting.at_most is not None and not value <= setting.at_most
    if too_small or too_large:
        raise NotAllowedError(allowed_values(setting))
    if not abs(value) <= _INT64_MAX:
        raise NotAllowedError(f"at most {_INT64_MAX}, as large as 64 bits can say")


def _show_integer(setting: Declared, value: int) -> str:
    if value == UNLIMITED and setting.at_least == UNLIMITED:
        return "unlimited"
    suffixes = _SHOWN_SUFFIXES[setting.unit]
    *_, smallest = suffixes
    suffix = next((suffix for suffix, factor in suffixes.items() if value and value % factor == 0), smallest)
    return f"{value // suffixes[suffix]}{suffix}"


def _bounds(setting: Declared, *, separated: bool) -> str:
    unit = f" {setting.unit}" if setting.unit else ""
    if setting.at_least == UNLIMITED:
        return ", or unlimited"
    if setting.at_most is not None:
        separator = "," if separated else ""
        return f"{separator} from {setting.at_least} to {setting.at_most}{unit}"
    return f", at least {setting.at_least}{unit}" if setting.at_least is not None else ""
