"""Parsing and formatting of setting values as users write them.

    size          64MiB, 1GiB (powers of 1024), 64MB, 1GB (powers of 1000), or a number of bytes
    duration      500ms, 30s, 15m, 12h, 7d, or a number of milliseconds
    boolean       true, yes, on, 1; false, no, off, 0
    choice        one of the allowed words in any case; several are separated by commas, or a TOML array
    unlimited     the same as -1 or Kafka's 9223372036854775807, where that is allowed

The same rules apply to flags, environment variables and quoted strings in the file.
"""

import re
from collections.abc import Callable
from typing import Any

from logbrook.config.broker import PATH_SEPARATOR
from logbrook.config.catalogue import SEPARATORS, DeclaredSetting, ValueKind
from logbrook.config.errors import NotAllowedError
from logbrook.config.network import parse_listeners, split_address
from logbrook.config.topics import INT64_MAX, UNLIMITED
from logbrook.model.text import join_words

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
    ValueKind.BOOLEAN: "true or false",
    ValueKind.TEXT: "a text",
    ValueKind.PATHS: "the path of a directory",
    ValueKind.ADDRESS: "HOST:PORT",
    ValueKind.LISTENERS: "NAME=HOST:PORT",
}
_NUMBERS = {"bytes": "a size", "ms": "a duration", ValueKind.INTEGER: "a whole number", ValueKind.NUMBER: "a number"}
_EXAMPLES = {
    "bytes": " such as 64MiB or 1GiB",
    "ms": " such as 500ms, 30s or 7d",
    ValueKind.ADDRESS: ", such as 127.0.0.1:9092 or [::1]:9092",
    ValueKind.LISTENERS: ", such as INTERNAL=10.0.0.1:9093, several separated by commas",
}
# Notations of numbers by the unit of their setting.
UNIT_FORMS = {unit: _NUMBERS[unit] + _EXAMPLES[unit] for unit in ("ms", "bytes")}
_WHOLE_NUMBER = re.compile(r"([+-]?[0-9_]+) *([A-Za-z]*)")
_THIS_MACHINE = "127.0.0.1"


def read_value(setting: DeclaredSetting, written: object) -> Any:
    """Parse a value: a string, or a native TOML value. Raises NotAllowedError."""
    read = _read_text if isinstance(written, str) else _read_native
    try:
        value = read(setting, written)
    except (ValueError, KeyError):
        raise NotAllowedError(allowed_values(setting)) from None
    if setting.form.kind in (ValueKind.INTEGER, ValueKind.NUMBER):
        _check_bounds(setting, value)
    return value


def read_quantity(text: str, unit: str | None) -> int:
    """Parse a whole number, with a suffix if `unit` is "ms" or "bytes". Raises ValueError or KeyError."""
    match = _WHOLE_NUMBER.fullmatch(text)
    if not match:
        raise ValueError("it is not a whole number")
    number, suffix = match.groups()
    return int(number) * (_SUFFIXES[unit][suffix.casefold()] if suffix else 1)


def show_value(setting: DeclaredSetting, value: Any) -> str:
    """Format `value` so that `read_value` reads it back; numbers in the largest unit without a remainder."""
    kind = setting.form.kind
    if kind is ValueKind.BOOLEAN:
        return "true" if value else "false"
    if kind is ValueKind.CHOICES:
        return ",".join(choice for choice in setting.form.choices if choice in value)
    if kind is ValueKind.INTEGER:
        return _show_integer(setting, value)
    return "" if value is None else str(value)


def allowed_values(setting: DeclaredSetting, *, examples: bool = True) -> str:
    """Describe the allowed values, to complete the sentence "it must be ..."."""
    form = setting.form
    example = _EXAMPLES.get(setting.facts.unit or form.kind, "") if examples else ""
    if form.kind in _ALLOWED:
        return _ALLOWED[form.kind] + example + (", or empty" if form.optional else "")
    if form.kind is ValueKind.CHOICE:
        return join_words(form.choices, "or")
    if form.kind is ValueKind.CHOICES:
        return f"any of {join_words(form.choices, 'and')}, or empty"
    return _NUMBERS[setting.facts.unit or form.kind] + example + _bounds(setting, separated=bool(example))


def _read_text(setting: DeclaredSetting, written: Any) -> Any:
    """Raises ValueError or KeyError."""
    text = written.strip()
    if not text and setting.form.optional:
        return None if setting.form.nullable else ""
    return _TEXT_READERS[setting.form.kind](setting, text)


def _read_native(setting: DeclaredSetting, given: Any) -> Any:
    """Check an unquoted TOML value. Types are not converted: true is not 1 and 1.0 is not 1. Raises ValueError."""
    kinds = {
        ValueKind.BOOLEAN: (bool,),
        ValueKind.INTEGER: (int,),
        ValueKind.NUMBER: (int, float),
        ValueKind.CHOICES: (list,),
        ValueKind.PATHS: (list,),
        ValueKind.LISTENERS: (list,),
    }
    if type(given) not in kinds.get(setting.form.kind, ()):
        raise ValueError("it is of another kind")
    if isinstance(given, list):
        if not all(isinstance(word, str) for word in given):
            raise ValueError("it is not a list of words")
        if setting.form.kind in SEPARATORS:
            return _read_text(setting, SEPARATORS[setting.form.kind].join(given))
        return frozenset(_read_choice(setting, word) for word in given)
    return given


def _read_integer(setting: DeclaredSetting, text: str) -> int:
    if text.casefold() == "unlimited" and (unlimited := _unlimited(setting)) is not None:
        return unlimited
    return read_quantity(text, setting.facts.unit)


def _read_plain(_: DeclaredSetting, text: str) -> str:
    if not text or "\0" in text:
        raise ValueError("it is empty or has a zero byte")
    return text


def _read_paths(setting: DeclaredSetting, text: str) -> str:
    paths = text.split(PATH_SEPARATOR)
    if not all(paths) or len(set(paths)) < len(paths):
        raise ValueError("a path is empty, or there twice")
    return _read_plain(setting, text)


def _read_address(setting: DeclaredSetting, text: str) -> str:
    if setting.form.bare_port and ":" not in text:
        text = f"{_THIS_MACHINE}:{text}"
    split_address(text)
    return text


def _read_listeners(_: DeclaredSetting, text: str) -> str:
    parse_listeners(text)
    return text


def _read_choice(setting: DeclaredSetting, text: str) -> str:
    return {choice.casefold(): choice for choice in setting.form.choices}[text.casefold()]


_TEXT_READERS: dict[ValueKind, Callable[[DeclaredSetting, str], Any]] = {
    ValueKind.BOOLEAN: lambda _, text: _BOOLEANS[text.casefold()],
    ValueKind.INTEGER: _read_integer,
    ValueKind.NUMBER: lambda _, text: float(text),
    ValueKind.TEXT: _read_plain,
    ValueKind.PATHS: _read_paths,
    ValueKind.ADDRESS: _read_address,
    ValueKind.LISTENERS: _read_listeners,
    ValueKind.CHOICE: _read_choice,
    ValueKind.CHOICES: lambda setting, text: frozenset(
        _read_choice(setting, part.strip()) for part in (text.split(",") if text else ())
    ),
}


def _check_bounds(setting: DeclaredSetting, value: float) -> None:
    too_small = setting.facts.at_least is not None and not value >= setting.facts.at_least
    too_large = setting.facts.at_most is not None and not value <= setting.facts.at_most
    if too_small or too_large:
        raise NotAllowedError(allowed_values(setting))
    if not abs(value) <= INT64_MAX:
        raise NotAllowedError(f"at most {INT64_MAX}, the largest integer of 64 bits")


def _unlimited(setting: DeclaredSetting) -> int | None:
    """Return the value that means no limit: -1 or, where Kafka has it as the default, the largest integer."""
    if setting.default == INT64_MAX:
        return INT64_MAX
    return UNLIMITED if setting.facts.unit and setting.facts.at_least == UNLIMITED else None


def _show_integer(setting: DeclaredSetting, value: int) -> str:
    if value == _unlimited(setting):
        return "unlimited"
    suffixes = _SHOWN_SUFFIXES[setting.facts.unit]
    *_, smallest = suffixes
    suffix = next((suffix for suffix, factor in suffixes.items() if value and value % factor == 0), smallest)
    return f"{value // suffixes[suffix]}{suffix}"


def _bounds(setting: DeclaredSetting, *, separated: bool) -> str:
    unit = f" {setting.facts.unit}" if setting.facts.unit else ""
    unlimited = _unlimited(setting)
    if unlimited == UNLIMITED:
        return ", or unlimited"
    if setting.facts.at_most is not None:
        separator = "," if separated else ""
        return f"{separator} from {setting.facts.at_least} to {setting.facts.at_most}{unit}"
    at_least = f", at least {setting.facts.at_least}{unit}" if setting.facts.at_least is not None else ""
    return at_least if unlimited is None else f"{at_least}, or unlimited"
